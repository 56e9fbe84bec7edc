"""The flows that Prefect deployments name: ``statpress.flows.deployed.release`` and others.

Beside them stand the steps that only they have.

Prefect keeps nothing of them but names, states and public parameters.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, get_type_hints
from uuid import UUID

from prefect import Flow, tags
from prefect.client.schemas.objects import State
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import Field, TypeAdapter, ValidationError

from statpress.configs.loading import PlannedOrder, leaves_period_open
from statpress.configs.order import Order, Override, from_environment, from_options
from statpress.flows.facts import waiting_facts
from statpress.flows.release import press
from statpress.flows.release import publish as publish_approved
from statpress.flows.runner import open_context, plain_context, run_due, run_inside
from statpress.mechanisms.errors import (
    ConfigError,
    LedgerIntegrityError,
    PeriodError,
    StatpressError,
    UploadError,
)
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.orchestration.monitoring import (
    name_schedule,
    show_rejection,
    show_series,
    show_unsent,
)
from statpress.tasks.orchestration.server import (
    check_nothing_wrong,
    examine_server,
    final_state,
    rejected,
)
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import as_text
from statpress.tasks.private_zone.run_context import RunContext, step
from statpress.tasks.release.ledger_check import confirm_ledger
from statpress.tasks.release.review import Prepared, check_unsigned, is_prepared, record_unsigned
from statpress.tasks.release.runs import Outcome
from statpress.tasks.release.series_periods import Due
from statpress.tasks.release.steps import read_config
from statpress.tasks.release.succession import propose
from statpress.tasks.upkeep.checkup import HEAD_TO, examine, needing_attention
from statpress.tasks.upkeep.retention import KEEP_DAYS, kept_days, tidy
from statpress.tasks.uploads.heads import destination, send_head

P = ParamSpec("P")
T = TypeVar("T")


class SealedFlow(Flow[P, T]):
    """A flow whose parameters are checked before Prefect stores them.

    Prefect itself first stores what a flow is called with, a whole table if need be, then
    checks it and logs it in full. (Of a deployed flow the server checks parameters first.)
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        called = {k: v for k, v in kwargs.items() if k not in ("return_state", "wait_for")}
        wrong, kinds = False, get_type_hints(self.fn)
        try:
            given = inspect.signature(self.fn).bind(*args, **called).arguments
            for name, value in given.items():
                TypeAdapter(kinds[name]).validate_python(value)
        except (TypeError, ValidationError):
            wrong = True
        if wrong:  # outside the except block: a message would quote what was given
            raise ConfigError(
                "The flow was called with other parameters than it declares.",
                where=self.name,
                next_step="Give it paths and names, never data.",
            )
        return super().__call__(*args, **kwargs)


def sealed_flow(name: str) -> Callable[[Callable[P, T]], SealedFlow[P, T]]:
    """Make a function a flow that is not retried, and of which no result or print is kept.

    Its runs are called after it and the day, until they know their dataset.
    """

    def dated() -> str:
        return f"{name.removeprefix('statpress-')} {datetime.now(UTC).date().isoformat()}"

    def decorate(function: Callable[P, T]) -> SealedFlow[P, T]:
        return SealedFlow(
            function,
            name=name,
            flow_run_name=dated,
            retries=0,
            persist_result=False,
            log_prints=False,
        )

    return decorate


@sealed_flow("statpress-verify-ledger")
def verify(public_key: str | None = None, head: str | None = None) -> None:
    """Verify the ledger that the worker's environment names, as 'statpress ledger verify' does.

    The orchestrator learns whether it holds; what was found goes to the curator log. The worker's
    home keeps the head that was found, and the next verification wants it in the chain. Then the
    installation is checked as 'statpress doctor' does; the run fails if something is wrong.

    Args:
        public_key: Path on the worker of a trusted key in PEM form; with one, every
            checkpoint must be signed by it.
        head: A hash kept elsewhere, as 'statpress ledger verify' prints it, that the chain
            must hold.
    """
    context = plain_context(Home.default(), run_id=UUID(flow_run.id).hex)

    def checked() -> None:
        confirm_ledger(context.home, context.log, public_key, head)
        tidy_by_setting(context)
        confirm_installation(context)

    run_inside(context, checked)


def _schedule_state(released: Sequence[str], due: Due) -> State[str]:
    """What a flow returns that released the periods of a series that are due."""
    from prefect.states import Completed

    done = f"Released {', '.join(released)}" if released else "Released nothing"
    name = "WaitingForSource" if due.waits else "UpToDate"
    return Completed(name=name, message=f"{done}; {due.words}.", data=", ".join(released))


@step("check installation")
def confirm_installation(context: RunContext) -> None:
    """Check home, ledger and server; what is wrong goes to the curator log, its checks further.

    Raises:
        CheckupError: Something is wrong.
    """
    findings = [*examine(context.home), *examine_server()]
    for each in needing_attention(findings):
        context.log.write(f"{each.check}: {each.what} {each.next_step}")
    check_nothing_wrong(findings)


def tidy_by_setting(context: RunContext) -> None:
    """Remove what is overdue if the environment says for how long things are kept."""
    if os.environ.get(KEEP_DAYS):
        _tidy(context)


@step("tidy home")
def _tidy(context: RunContext) -> None:
    """Remove what is overdue; a failure is for the curator, and the checkup finds what is left."""
    try:
        days = kept_days()
        removed = tidy(context.home, days) if days else []
        context.log.write("".join(f"Removed {path}.\n" for path in removed))
    except StatpressError as error:
        context.log.write(f"Nothing was removed. {error}")


Scalars = dict[str, str | int | float | bool]
WhileUndecided = Literal["refuse", "charge"]
_DAY = 24 * 60 * 60
_PRINTABLE = r"^[^\x00-\x1f\x7f]+$"


@contextmanager
def kept_afterwards(context: RunContext) -> Iterator[None]:
    """After a release verify the ledger, then send its head where the environment says.

    Then what the home keeps too long is removed. All of it also where a release stands although
    an upload failed. A head that was not sent is a notice; a ledger that does not hold, or is not
    the one whose head was sent before, an error.
    """
    failed: UploadError | None = None
    try:
        yield
    except UploadError as error:
        failed = error
    confirm_ledger(context.home, context.log, after=" The release before that stands.")
    unsent = _send_to_setting(context)
    if unsent:
        show_unsent(context, context.home, unsent)
    tidy_by_setting(context)
    if failed is not None:
        raise failed


def _send_to_setting(context: RunContext) -> str:
    """Send the head where the environment says, if it does; why it was not sent, if it was not.

    Raises:
        LedgerIntegrityError: The ledger does not continue the head that is kept there.
    """
    return _send(context) if os.environ.get(HEAD_TO) else ""


@step("send head")
def _send(context: RunContext) -> str:
    try:
        send_head(context.home, destination(None))
        return ""
    except LedgerIntegrityError:
        raise
    except StatpressError as error:
        reason = f"{error.where}: {error.what}"
    except Exception as error:
        context.log.write(as_text(error, trace=True))
        reason = f"{type(error).__name__}; the curator log {context.run_id}.log says more."
    context.notify(f"The head of the ledger was not sent. {reason}")
    return reason


@sealed_flow("statpress-release")
def release(
    config: str,
    while_undecided: WhileUndecided = "refuse",
    period: str | None = None,
    again: bool = False,
) -> str | State[str]:
    """Press one release on a worker, with the home that its environment names.

    The orchestrator's id of the flow run is the run's id in the ledger. So a flow run
    that is started again is never charged twice: it goes on if it had not begun to
    draw, and is refused if it had. Where the dataset has approvers, the bundle is
    prepared, and waits for one of them.

    Of a config with a section ``series`` it releases the period, whose run in the ledger is always
    the same; without one, all that are due, in order, each in a flow run of its own below this.

    Args:
        config: Path of the release config on the worker.
        while_undecided: Whether it is charged or refused while another release of the
            dataset is undecided: prepared, and neither approved nor rejected.
        period: Of the config's series, such as 2026-10; by default those that are due.
        again: Whether the period is charged once more that was charged and published nothing.

    Returns:
        The path of the bundle; where it waits for an approval, in a final state that says so. Of
        periods that are due, a final state that says which were released, and what comes next.
    """
    order = _ordered(config)
    if period is not None:
        order = order.at_period(period)
    elif not again and leaves_period_open(order):
        return _released_due(order, config, while_undecided)
    return _pressed(lambda home: order, while_undecided, again)


def _released_due(order: Order, config: str, while_undecided: WhileUndecided) -> State[str]:
    """Release all periods that are due, each in a flow run of its own."""

    def one(_: Order, period: str) -> str:
        with tags("statpress", "release"):
            state: Any = release(config, while_undecided, period, return_state=True)
        state.result()  # raises what ended it
        return period

    context = plain_context(Home.default(), run_id=UUID(flow_run.id).hex)
    written = run_inside(context, lambda: read_config(order))
    name_schedule(context, written)
    due = None
    try:
        released, due = run_due(context, order, one)
    finally:
        show_series(context, context.home, written, due)
    return _schedule_state(released, due)


@sealed_flow("statpress-rerelease")
def rerelease(
    bundle: str,
    config: str | None = None,
    folder: str | None = None,
    overrides: Scalars | None = None,
    while_undecided: WhileUndecided = "refuse",
    again: bool = False,
) -> str | State[str]:
    """Press the release that follows a bundle; whoever starts it confirms the charge.

    Args:
        bundle: Path of the bundle on the worker.
        config: Path of a changed config; by default the bundle's own is used, on new data.
        folder: Where the paths of the bundle's own config are taken from; by default where it
            lay, if the data is there, else the worker's folder.
        overrides: Values of the config by key, such as ``source.path``; scalars only.
        while_undecided: Whether it is charged or refused while another release of the
            dataset is undecided: prepared, and neither approved nor rejected.
        again: Whether it is charged once more if it is of a period, was charged and published
            nothing.

    Returns:
        As of a release, of the new bundle.
    """

    def order(home: Home) -> PlannedOrder:
        changed = (*from_environment(os.environ), *from_scalars(overrides or {}))
        revised = None if config is None else Path(config)
        named = None if folder is None else Path(folder)
        proposal = propose(Path(bundle), revised, changed, named, home)
        proposal.check(home)
        return proposal.planned

    return _pressed(order, while_undecided, again)


def _ordered(config: str) -> Order:
    """A config, with the overrides of the worker's environment."""
    return Order(Path(config), from_environment(os.environ))


def _pressed(
    order: Callable[[Home], Order | PlannedOrder],
    while_undecided: WhileUndecided,
    again: bool = False,
) -> str | State[str]:
    """Press what is ordered, as the run that the orchestrator started."""
    home, beside = Home.default(), while_undecided == "charge"
    with open_context(home, run_id=UUID(flow_run.id).hex) as context:

        def pressed() -> Outcome:
            with kept_afterwards(context):
                return press(context, order(home), again=again, beside_undecided=beside)

        return final_state(run_inside(context, pressed))


def _published(context: RunContext, run_id: str) -> str:
    """Publish a prepared bundle; the path of what was published."""
    with kept_afterwards(context):
        return str(publish_approved(context, run_id).bundle)


@sealed_flow("statpress-publish")
def publish(run_id: str) -> str:
    """Publish a prepared bundle that is approved; again, it changes nothing.

    Args:
        run_id: The run that prepared it, as 'statpress review' lists it.

    Returns:
        The path of the bundle.
    """
    context = plain_context(Home.default())
    return run_inside(context, lambda: _published(context, run_id))


class Review(RunInput):
    """The form that a reviewer fills in on the run's page; nothing proves the name."""

    decision: Literal["approve", "reject"]
    reason: str = Field(
        min_length=1, max_length=1000, pattern=_PRINTABLE, description="Stays in the ledger."
    )
    name: str = Field(
        min_length=1,
        max_length=200,
        pattern=_PRINTABLE,
        description="Your name. The ledger notes that it was not signed.",
    )


@sealed_flow("statpress-release-with-form")
def release_with_form(
    config: str, days: int = 30, while_undecided: WhileUndecided = "refuse"
) -> str | State[str]:
    """Press one release, wait for a form on the run's page, then publish or keep back.

    While it waits, no process does: the flow run is suspended, and a worker starts it
    again when the form was sent. For datasets whose ledger account allows unsigned
    decisions. If nobody answers in time, the bundle stays prepared and nothing is lost.

    Args:
        config: Path of the release config on the worker.
        days: How long the form waits.
        while_undecided: As of a release.

    Returns:
        The path of the bundle; where it was rejected, a final state that says so.
    """
    home, run_id = Home.default(), UUID(flow_run.id).hex
    context = plain_context(home)

    def prepared() -> bool:
        if is_prepared(home, run_id):
            return True
        written = read_config(_ordered(config))
        if written.config.series is not None:
            raise PeriodError(
                "A series is not released by this deployment.",
                where=written.document.where(("series",)),
                next_step="Use the deployment 'release' and, once it is approved, 'publish'.",
            )
        check_unsigned(home, written.config.dataset)
        return False

    if not run_inside(context, prepared):
        release.fn(config, while_undecided)
    context = plain_context(home)
    waits = run_inside(context, lambda: Prepared.described(home, run_id))
    form = Review.with_initial_data(description=form_text(waits))
    answer = suspend_flow_run(wait_for_input=form, timeout=days * _DAY, key="review")

    def decided() -> str | State[str]:
        status = record_unsigned(
            home, run_id, decision=answer.decision, reason=answer.reason, by=answer.name
        )
        if status is Status.REJECTED:
            show_rejection(context, waits.charge.entry.body["dataset"], run_id)
            return rejected()
        return _published(context, run_id)

    return run_inside(context, decided)


def form_text(found: Prepared) -> str:
    """A prepared bundle in Markdown, above the form that asks for a decision."""
    facts = waiting_facts(found)
    mark = "" if facts["publishable"] else "\n\n**NOT PUBLISHABLE: drawn from a known seed.**"
    return (
        f"**{facts['title']}**, dataset `{facts['dataset']}`: epsilon {facts['epsilon']},"
        f" delta {facts['delta']}, products {', '.join(facts['products'])}.{mark}\n\n"
        f"The bundle lies in `{facts['folder']}` and would be published as `{facts['place']}`."
        " Its budget is spent, whatever is decided. A rejection is final."
    )


def from_scalars(values: Mapping[str, str | int | float | bool]) -> tuple[Override, ...]:
    """Overrides from a mapping of scalars, as a scheduler hands them over.

    Raises:
        ConfigError: A value is not a scalar.
    """
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    found = from_options(f"{key}={text}" for key, text in texts.items())
    for override in found:
        if isinstance(override.value, (dict, list)):
            raise ConfigError("Give a single value here.", where=override.place)
    return found
