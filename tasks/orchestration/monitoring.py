"""What a release shows on a Prefect server: artifacts, tags and events of public facts.

Everything here is in the plan, the ledger or the published bundle. What the input and
table gates found is private, so that they passed is said only once a bundle shows it.
A server that does not answer is noted in the curator log, and the run goes on.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from statpress.configs.loading import Release
from statpress.configs.release_config import ReleaseConfig
from statpress.mechanisms.domain.domain import Size
from statpress.mechanisms.planning.plan import Plan, PlannedProduct, verdict
from statpress.tasks.bundle.manifest import STATEMENT
from statpress.tasks.ledger.accounts import Account
from statpress.tasks.ledger.entries import canonical
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.orchestration.server import key_of, notice_client, show, watched_run
from statpress.tasks.pages.numbers import how_many
from statpress.tasks.pages.rendering import escaped
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.foreseen import warnings
from statpress.tasks.release.runs import Outcome, design_in_words, left_in_words
from statpress.tasks.release.series_periods import Calendar, Due, calendar_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


BUDGET_LOW = "statpress.budget.low"
"""Event of a charge that leaves less than a fifth of a dataset's budget."""

_LOW = Decimal("0.2")
_BAR = 30
_OF_THE_RUN = 8


def run_name(config: ReleaseConfig, run_id: str) -> str:
    """What a release's run is called: the dataset, the period that it is of or the day, the run."""
    of, day = config.about.temporal, datetime.now(UTC).date().isoformat()
    ends = [end for end in (of.start, of.end) if end] if of else []
    named = config.series.current if config.series else None
    period = named or " to ".join(dict.fromkeys(ends)) or day
    return f"{config.dataset}, {period}, {run_id[:_OF_THE_RUN]}"


_P = ParamSpec("_P")


def notice(
    send: Callable[Concatenate[SyncPrefectClient, _P], None],
) -> Callable[Concatenate[RunContext, _P], None]:
    """Send something to the server, if one watches the run; that never fails."""

    @functools.wraps(send)
    def sent(context: RunContext, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if not context.orchestrated:
            return
        try:
            if watched_run() is not None:
                with notice_client() as client:
                    send(client, *args, **kwargs)
        except Exception as error:
            context.log.write(f"The server was not told: {type(error).__name__}: {error}")

    return sent


@notice
def show_plan(client: SyncPrefectClient, release: Release, plan: Plan, run_id: str) -> None:
    """Name the run, tag it, and show what it will release at what cost.

    Its tags are the dataset and, of a series, the series and the period.
    """
    run, dataset, series = watched_run(), release.config.dataset, release.config.series
    series_tags = {series.name, str(release.period)} if series else set()
    if run is not None:
        name = run_name(release.config, run_id)
        client.update_flow_run(run.id, name=name, tags=sorted({*run.tags, dataset, *series_tags}))
    rows = [plan_row(product) for product in plan.products]
    total = {name: canonical(plan.amounts[name]) for name in plan.amounts}
    text = (
        f"**{escaped(release.config.title)}**, a release of {escaped(dataset)}. "
        f"Protected: {escaped(plan.privacy.words)}. The products together are charged "
        f"epsilon {total['epsilon']} at delta {total['delta']}; under zCDP, rho {total['rho']} "
        f"at delta {total['rho_delta']}. "
        "Costs below are of each product alone; errors are expected ones, from public "
        f"quantities. Config {release.sha256}."
    )
    if plan.gate is not None:
        text += f" The checks of the input have {plan.gate.expected_error.summary()}."
    for warning in warnings(release, plan):
        text += f" **{escaped(warning)}**"
    show(client, dataset, "plan", "table", json.dumps(rows), text)


@notice
def name_schedule(client: SyncPrefectClient, release: Release) -> None:
    """Name and tag the run that looks for the periods of a series that are due."""
    run, series = watched_run(), release.config.series
    if run is not None and series is not None:
        name = f"{release.config.dataset}, {series.name}, periods due"
        tags = sorted({*run.tags, release.config.dataset, series.name})
        client.update_flow_run(run.id, name=name, tags=tags)


SERIES_WAITING = "statpress.series.waiting"
"""Event of a period that is due, and whose source is not there."""


@notice
def show_series(
    client: SyncPrefectClient, home: Home, release: Release, due: Due | None = None
) -> None:
    """Show what became of the periods of a series; if one waits, emit an event for a notice.

    Args:
        client: Of the server.
        home: Where the ledger lies.
        release: Of the series.
        due: Why no further period is released; None if one failed.
    """
    from prefect.events import emit_event

    dataset, calendar = release.config.dataset, calendar_of(home, release)
    with open_ledger(home) as ledger:
        account = ledger.state().accounts.get(dataset)
    if due is not None and due.waits:
        emit_event(
            event=SERIES_WAITING,
            resource={
                "prefect.resource.id": f"statpress.series.{key_of(f'{dataset}/{calendar.name}')}",
                "prefect.resource.name": calendar.name,
            },
            payload={"dataset": dataset, "series": calendar.name, "words": due.words},
        )
    show(
        client,
        dataset,
        f"series-{key_of(calendar.name)}",
        "markdown",
        series_text(calendar, account),
    )


def series_text(calendar: Calendar, account: Account | None) -> str:
    """The periods of a series in Markdown: how far each has come, what it was charged, the next.

    Then what its account has left for the next one, and how long that lasts.
    """
    rows = [
        f"| {period} | {found.stage} | {canonical(found.spent['epsilon'])} | "
        f"{canonical(found.spent['delta'])} |"
        for period, found in calendar.due.items()
    ]
    head = [f"# Series {escaped(calendar.name)}", "", "| period | is | epsilon | delta |"]
    last = f"Nothing else is due before {calendar.day}, when {calendar.following} is."
    if account is not None:
        following = str(calendar.first_open)
        left = f"For {following} is left: {account.remaining_for(following)}."
        last = " ".join(filter(None, (left, left_in_words(account), last)))
    return "\n".join([*head, "|---|---|---|---|", *rows, "", last])


SERIES_RUNNING_OUT = "statpress.series.running-out"
"""Event of a charge of a period that leaves enough for fewer than three more like it."""

_SOON = 3


@notice
def show_budget(client: SyncPrefectClient, home: Home, dataset: str) -> None:
    """Show what the ledger still grants a dataset; if that is little, emit an event.

    Of a charge that names a period also if the budget does not last for three more periods like it.
    """
    from prefect.events import emit_event

    with open_ledger(home) as ledger:
        account = ledger.account(dataset)
    left, last = account.remaining_share, account.last_of_a_period
    following = account.next_period
    if last is not None and following and account.lasts(last.loss, following, _SOON) < _SOON:
        emit_event(
            event=SERIES_RUNNING_OUT,
            resource={
                "prefect.resource.id": f"statpress.dataset.{key_of(dataset)}",
                "prefect.resource.name": dataset,
            },
            payload={"dataset": dataset, "words": left_in_words(account)},
        )
    if left < _LOW:
        emit_event(
            event=BUDGET_LOW,
            resource={
                "prefect.resource.id": f"statpress.dataset.{key_of(dataset)}",
                "prefect.resource.name": dataset,
                "statpress.percent-left": _percent(left),
                "statpress.remaining": str(account.remaining),
            },
            payload={
                "dataset": dataset,
                "policy": account.policy,
                "limit": account.limit.texts(),
                "remaining": account.remaining.texts(),
                "percent_left": _percent(left),
            },
        )
    show(client, dataset, "budget", "markdown", budget_text(account, left))


@notice
def show_release(client: SyncPrefectClient, outcome: Outcome) -> None:
    """Show a published bundle with its seal, and the gates that it shows were passed."""
    _show_bundle(client, outcome)
    statement = json.loads((outcome.bundle / STATEMENT).read_text(encoding="utf-8"))
    rows = [
        {"gate": gate, "checks": checks, "outcome": "passed"}
        for gate, checks in (
            (
                "input",
                f"{_size(statement)}; nulls and undeclared values as the config allows; no "
                "structural zeros",
            ),
            ("table", "counts add up to the declared size; every cell lies in the domain"),
            ("release", "files as planned; every value, as written, lies in the domain"),
        )
    ]
    text = f"Passed by {escaped(outcome.bundle.name)}: that a bundle exists shows it."
    show(client, outcome.dataset, "gates", "table", json.dumps(rows), text)


def _show_bundle(client: SyncPrefectClient, outcome: Outcome) -> None:
    text = (
        f"Seal {outcome.seal}; ledger entry {outcome.ledger_entry}; run {outcome.run_id}. "
        f"Charged epsilon {outcome.epsilon} at delta {outcome.delta}. "
        "'statpress verify' checks the bundle anywhere."
    )
    if not outcome.publishable:
        text = f"**Not publishable**: drawn from a known seed. {text}"
    place = outcome.bundle.absolute()
    link = f"[{escaped(str(place))}](<{place.as_uri()}>)"
    show(client, outcome.dataset, "bundle", "markdown", link, text)


@dataclass
class DrawingProgress:
    """Shows how much of the drawing is done once that takes long; a callback of mechanisms.

    How many records or cells a mechanism draws is public.

    Attributes:
        context: Of the run; its listener is told first.
        dataset: Whose release it is.
        total: So many records and noisy cells will be drawn.
        done: So many were drawn.
        artifact: The id of the progress bar on the server, once it is there.
        clock: Seconds from any point in time.
        show: Makes the progress bar, or moves it; by default on the server.
    """

    context: RunContext
    dataset: str
    total: int
    done: int = 0
    artifact: Any = None
    clock: Callable[[], float] = time.monotonic
    show: Callable[[RunContext, DrawingProgress], None] | None = None
    _last: float | None = None

    @classmethod
    def of(cls, context: RunContext, release: Release, plan: Plan) -> DrawingProgress:
        """The progress of a planned release."""
        total = sum(product.draws for product in plan.products)
        return cls(context, release.config.dataset, total)

    def __call__(self, records: int) -> None:
        """So many more are drawn."""
        self.context.listener.advance(records)
        self.done += records
        now = self.clock()
        if self._last is None:
            self._last = now
        finished = self.done >= self.total and self.artifact is not None
        if finished or now - self._last >= self.context.pace.progress:
            self._last = now
            (self.show or _show_progress)(self.context, self)


@notice
def _show_progress(client: SyncPrefectClient, progress: DrawingProgress) -> None:
    """Make the progress bar, or move it."""
    from prefect.client.schemas.actions import ArtifactUpdate

    percent = min(100.0, round(100.0 * progress.done / max(1, progress.total), 1))
    if progress.artifact is not None:
        client.update_artifact(progress.artifact, ArtifactUpdate(data=percent))
        return
    text = f"Drawing {progress.total:,} records and noisy cells"
    made = show(client, progress.dataset, "progress", "progress", percent, text)
    progress.artifact = made


def plan_row(product: PlannedProduct[Any]) -> dict[str, str]:
    """A product's row of the plan."""
    return {
        "product": product.request.name,
        "kind": product.kind.name,
        "mechanism": str(product.mechanism.describe()["mechanism"]),
        "share": canonical(product.request.share),
        "epsilon": canonical(product.epsilon),
        "delta": canonical(product.delta),
        "rho": canonical(product.rho),
        "expected error": product.expected_error.summary(),
        "verdict": verdict(product).words,
    }


def budget_text(account: Account, left: Decimal) -> str:
    """An account in Markdown."""
    full = int(left * _BAR)
    lines = [
        f"# Budget of {escaped(account.dataset)}",
        "",
        f"{'█' * full}{'░' * (_BAR - full)} **{_percent(left)} % left** (policy {account.policy})",
        "",
        "| measure | limit | spent | of it reserved | remaining |",
        "|---|---|---|---|---|",
    ]
    spent, reserved = account.spent_by_one().texts(), account.reserved.texts()
    remaining = account.remaining.texts()
    for measure, limit in account.limit.texts().items():
        cells = (measure, limit, spent[measure], reserved[measure], remaining[measure])
        lines.append(f"| {' | '.join(escaped(cell) for cell in cells)} |")
    if account.has_design:
        left_for = account.next_period or "a period"
        lines += ["", f"{escaped(design_in_words(account))} Left is for {left_for}."]
    return "\n".join(lines)


def _percent(share: Decimal) -> str:
    """A share in percent with one decimal, rounded down."""
    return str((share * 100).quantize(Decimal("0.1"), rounding=ROUND_DOWN))


def _size(statement: Mapping[str, Any]) -> str:
    """What the input gate wanted of the size, by a bundle's privacy statement."""
    size = statement.get("size", Size.DECLARED)
    text = how_many(statement["n_units"], statement["n_records"], size)
    return f"{text}, as declared" if size == Size.DECLARED else text


WAITING = "statpress.release.waiting"
"""Event of a bundle that is prepared, and waits for its approval."""


@notice
def show_waiting(client: SyncPrefectClient, title: str, outcome: Outcome, home: Home) -> None:
    """Say that a bundle is prepared and waits: an artifact, and an event for a notice."""
    from prefect.events import emit_event

    emit_event(
        event=WAITING,
        resource={
            "prefect.resource.id": f"statpress.dataset.{key_of(outcome.dataset)}",
            "prefect.resource.name": outcome.dataset,
        },
        payload={
            "dataset": outcome.dataset,
            "title": title,
            "run_id": outcome.run_id,
            "seal": outcome.seal,
            "folder": str(outcome.bundle.absolute()),
            "home": str(home.root),
        },
    )
    text = f"""# Waiting for approval: {escaped(title)}

Run {outcome.run_id} is charged epsilon {outcome.epsilon} at delta {outcome.delta}, and published
nothing yet. Read the bundle in {escaped(str(outcome.bundle.absolute()))}, then decide, as the user
and with the home of this run (`STATPRESS_HOME={escaped(str(home.root))}`):

    statpress approve {outcome.run_id} --key FILE
    statpress reject {outcome.run_id} --key FILE --reason "…"

`statpress approve FOLDER --key FILE` decides about a copy of the bundle; `--by NAME` in place of
`--key FILE` where the ledger allows unsigned decisions. Once it is approved,
`statpress publish {outcome.run_id}` or the deployment *publish* publishes it.
`statpress review` lists all that waits."""
    show(client, outcome.dataset, "review", "markdown", text, f"Seal {outcome.seal}.")


@notice
def show_rejection(client: SyncPrefectClient, dataset: str, run_id: str) -> None:
    """Say that a bundle was rejected by the form on its run's page."""
    text = f"Run {run_id} was rejected. It publishes nothing, and its budget stays spent."
    show(client, dataset, "review", "markdown", text)


@notice
def name_publication(client: SyncPrefectClient, dataset: str, run_id: str) -> None:
    """Name the run that publishes after the dataset and the run that prepared the bundle."""
    run = watched_run()
    if run is not None:
        client.update_flow_run(run.id, name=f"{dataset}, publish {run_id[:_OF_THE_RUN]}")


@notice
def show_approval(client: SyncPrefectClient, outcome: Outcome) -> None:
    """Say that a bundle was approved, and is published."""
    text = f"Run {outcome.run_id} is approved, and published as {escaped(outcome.bundle.name)}."
    show(client, outcome.dataset, "review", "markdown", text)


UNSENT = "statpress.head.unsent"
"""Event of a head of the ledger that did not go where it is kept."""


@notice
def show_unsent(client: SyncPrefectClient, home: Home, reason: str) -> None:
    """Say that the head of a home's ledger was not sent: an event for a notice."""
    from prefect.events import emit_event

    emit_event(
        event=UNSENT,
        resource={
            "prefect.resource.id": "statpress.ledger",
            "prefect.resource.name": "ledger",
        },
        payload={"home": str(home.root), "reason": reason},
    )
