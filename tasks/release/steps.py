"""The steps of a release, each a few lines of load, call, save.

Beside them stand the two blocks that they run in: one notes in the ledger that a gate stopped the
run because of what the data hold, the other adds the charge to what an unforeseen error, or a
worker that ended, says.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from statpress.configs.loading import PlannedOrder, Release, load_order
from statpress.configs.order import Order
from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.contingency_table import Counted
from statpress.mechanisms.errors import (
    ApprovalError,
    ColumnNotFoundError,
    InternalError,
    LedgerError,
    NoisyGateError,
    OutOfMemoryError,
    OutputNotWritableError,
    PolicyMismatchError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    StatpressError,
    WorkerError,
)
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.ledger.account_rules import check_source, of_path
from statpress.tasks.ledger.accounts import Status, drawn_before
from statpress.tasks.ledger.chain import check_run
from statpress.tasks.ledger.entries import Body, Entry, Loss, canonical
from statpress.tasks.ledger.home_ledger import open_ledger, remember, standing_charges
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import check_open, check_terms
from statpress.tasks.private_zone.folders import at_work, claims
from statpress.tasks.private_zone.run_context import RunContext, step
from statpress.tasks.private_zone.workers import Workers
from statpress.tasks.products.product_kind import private_input
from statpress.tasks.release import build as bundle
from statpress.tasks.release import quality_gates as quality
from statpress.tasks.release.build import Released, lifetime
from statpress.tasks.release.drawing import FOLDER, draw_by, introduce, save_counted
from statpress.tasks.release.entropy import generator, key_of_choice
from statpress.tasks.release.foreseen import check_memory, check_verdicts, plan_for_account
from statpress.tasks.release.ledger_check import recomputed, terms_of
from statpress.tasks.release.runs import (
    Outcome,
    Run,
    beginning,
    done_before,
    looks_in_words,
    outcome_of,
    publish_folder,
    writing,
)
from statpress.tasks.release.series_periods import point_latest
from statpress.tasks.source.aggregates import first_of, size_of, source_of, units_of
from statpress.tasks.source.engine import reader_named
from statpress.tasks.source.scanning import Scan, counted_of, kept_profile, scan_of

_OF_READING = ("source", "privacy", "structural_zeros", "tables", "rules")
_OF_PLACE = ("path", "version", "endpoint", "region", "credentials", "table", "master", "remote")


@contextmanager
def saying_charged(context: RunContext, charge: Entry | None) -> Iterator[None]:
    """Add the charge, if there is one, to an error that cannot know of it.

    Nothing is published yet inside.
    """
    try:
        yield
    except (
        InternalError, WorkerError, SourceError, OutOfMemoryError, OutputNotWritableError
    ) as error:  # fmt: skip
        given_back = _is_given_back(context, error)
        if charge is not None and not given_back and not _CHARGED.search(error.what):
            step = _UNCHARGED.sub("", error.next_step).strip()
            error.next_step = step[:1].upper() + step[1:]
            error.what = _UNCHARGED.sub("", error.what).strip() + (
                f" The run was charged epsilon {charge.body['epsilon']}, delta"
                f" {charge.body['delta']}, which stays spent; nothing was published."
            )
        raise


def _is_given_back(context: RunContext, error: StatpressError) -> bool:
    """Whether a run that is charged already is not to be: the source stopped it before it drew.

    What passes by itself is not among this: the same flow run goes on with its charge.
    """
    return (
        context.draw is None and isinstance(error, SourceError) and not isinstance(error, _PASSING)
    )


@contextmanager
def giving_back(context: RunContext, release: Release) -> Iterator[None]:
    """Void the charge of a run that the source stops before it draws.

    Noisy gates are charged before the source is opened. One that cannot be read as declared, or is
    of another size, costs a look and no budget, as with exact gates.
    """
    try:
        yield
    except SourceError as error:
        if not _is_given_back(context, error):
            raise
        with _ledger(context) as ledger:
            charge = ledger.state().charges.get(context.run_id)
            if charge is not None and charge.status is Status.RESERVED:
                ledger.void(
                    run_id=context.run_id,
                    dataset=release.config.dataset,
                    reason="The source stopped the run before anything was drawn.",
                )
                what = _UNCHARGED.sub("", error.what).strip()
                error.what = f"{what} The run's charge was given back: nothing was drawn."
        raise


_CHARGED = re.compile(r"\brun was charged\b")
_UNCHARGED = re.compile(r"Nothing was charged[.:] ?")
"""What errors say that mostly come before the charge."""


_PASSING = (SourceUnavailableError, SourceAccessError, SourceChangedError)
"""Faults after which the same run may go on."""
_OF_NO_RECORD = (SourceNotFoundError, ColumnNotFoundError, *_PASSING)
"""Faults of a path, a column's name, a server, a right, or of who writes meanwhile: they say
nothing of records."""


@contextmanager
def noting_refusals(context: RunContext, release: Release) -> Iterator[None]:
    """Write an entry if what the source holds stops the run inside.

    That noisy gates stopped it is inside the guarantee, and no refusal. Every other fault of a
    source counts but those of names and servers: also that it is empty, that a column is of another
    type or that something in it cannot be read depends on the records. Too little memory is no
    fault of a source; the look that the run took goes on to count.
    """
    dataset, stop = release.config.dataset, None
    with _ledger(context) as ledger:
        check_open(ledger.account_terms(dataset))
    try:
        yield
    except SourceError as error:
        if isinstance(error, _OF_NO_RECORD):
            raise
        stop = error
    if stop is None:
        return
    if isinstance(stop, NoisyGateError):
        _settle(context, dataset, passed=False)
        raise stop
    with _ledger(context) as ledger:
        entry = ledger.refuse(run_id=context.run_id, dataset=dataset, config_sha256=release.sha256)
        account = ledger.account_terms(dataset)
    context.notify(
        f"That the run was stopped is entry {entry.sequence} of the ledger."
        f" {looks_in_words(account)}"
    )
    context.deliver_notices()
    raise stop


def _ledger(context: RunContext) -> Ledger:
    """The ledger, from where this run has read it already."""
    return open_ledger(context.home, known=context.ledger_positions)


def _settle(context: RunContext, dataset: str, *, passed: bool) -> None:
    """Record that a look ended inside its guarantee; where that fails, it goes on to count."""
    try:
        with _ledger(context) as ledger:
            ledger.settle(run_id=context.run_id, dataset=dataset, passed=passed)
    except LedgerError as error:
        if type(error) is not LedgerError:  # not refused: damaged, or out of reach
            raise
        context.notify(f"The look of this run goes on to count: {error.what}")


@step("read config")
def read_config(order: Order | PlannedOrder) -> Release:
    """Read and check the config, unless that is done; nothing else is opened."""
    return order.release if isinstance(order, PlannedOrder) else load_order(order)


@step("count size")
def take_size(context: RunContext, release: Release) -> Release:
    """The release with the size that its source has.

    The unit is that of the account, so that a config cannot ask for another number. The count is
    exact whatever the gates are, so it is a look, which counts and is written before the source is
    opened; of exact gates it is the run's. A run that is charged keeps the size of its charge.

    Raises:
        PolicyMismatchError: The account is bound to a size, or wants noisy gates.
    """
    dataset = release.config.dataset
    with _ledger(context) as ledger:
        state = ledger.state()
    charged = state.charges.get(context.run_id)
    if charged is not None:
        body = charged.entry.body
        return release.sized(body["n_records"] // body["unit_records"])
    account = state.account_of(dataset)
    check_terms(account, terms_of(release.sized(1).privacy))
    bound = account.registration.body.get("n_records")
    if bound is not None or account.noisy_gates:
        why = "is for one size" if bound else "wants noisy gates, and a count is exact"
        raise PolicyMismatchError(
            f"The config takes the size from the source, and the account {why}.",
            where=f"dataset {dataset!r}",
            next_step="Declare the size in the config, or register an account with "
            "'--n-records from_source'.",
        )
    for name in source_names(release):
        check_source(state, dataset, name)
    with noting_refusals(context, release), claims() as claim:
        _begin_to_look(context, release, exact=True)
        context.looked = release.config.gate is None
        work = claim(context.home.folder("work") / context.run_id)
        units = units_of(release)
        return release.sized(size_of(source_of(release), release.domain, scratch=work, units=units))


@step("plan")
def fix_plan(
    context: RunContext, order: Order | PlannedOrder, release: Release, *, seeded: bool = False
) -> Plan:
    """Fix every mechanism's parameters without data, unless that is done, and read its priors."""
    if isinstance(order, PlannedOrder) and order.release is release:
        plan = order.plan
    else:
        plan = release.plan()
    check_memory(release, plan)
    planned = plan_for_account(context.home, release, plan)
    if not any(product.mechanism.needs == "columns" for product in planned.products):
        return planned
    from statpress.tasks.release.priors import with_priors

    return with_priors(context.home, release, planned, seeded=seeded)


@step("check budget")
def check_budget(
    context: RunContext, release: Release, plan: Plan, seeded: bool
) -> tuple[bool, Outcome | None]:
    """Replay the ledger, and refuse what it would refuse later.

    Returns:
        Whether the release is reviewed; and of a run that is done already what it left behind,
        so that nothing of it is done again.
    """
    home, run_id = context.home, context.run_id
    with open_ledger(home) as ledger:
        state = ledger.state()
        account = state.accounts.get(release.config.dataset)
        for text in check_verdicts(release, plan, standing_charges(account)):
            context.notify(text)
        body = charge_fields(release, plan, run_id, seeded) | {"created": "-"}
        check_covered(body)
        remember(ledger, state)
        context.ledger_positions = ledger.positions
        drew = ledger.memory is not None and ledger.memory.drew(run_id)
    charged = state.charges.get(run_id)
    done = None if charged is None else done_before(home, charged)
    if charged is not None and done is not None:
        context.notify(
            f"This run is done already: {done.status}, {done.bundle}. Nothing was looked at,"
            " charged or drawn again."
        )
        return charged.reviewed, done
    for text in beginning(account, charged, functools.partial(at_work, home)):
        context.notify(text)
    check_run(state, body)
    for name in source_names(release):
        check_source(state, body["dataset"], name)
    if drew:
        raise drawn_before(run_id)
    reviewed = charged.reviewed if charged else state.accounts[body["dataset"]].reviewed
    if release.config.publish.review and not reviewed:
        raise ApprovalError(
            "The config requires a review, and the dataset has nobody to approve its releases.",
            where=f"dataset {body['dataset']!r}",
            next_step="Name them with 'statpress ledger approvers'.",
        )
    return reviewed, None


def check_covered(body: Body) -> None:
    """Raise unless a charge about to be made covers what its descriptions say it spends.

    So a flaw that ``verify_ledger`` would report ever after is refused before it is written.
    """
    flaw = ""
    try:
        spent = recomputed(body)
        if not Loss.of(body).covers(spent):
            flaw = f"The mechanisms spend {spent}, which is more than the charge."
    except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        flaw = f"The charge's mechanisms cannot be recomputed ({type(error).__name__})."
    if flaw:
        raise LedgerError(flaw, where=f"run {body['run_id']!r}", next_step="Report this.")


def source_names(release: Release) -> tuple[str, ...]:
    """What accounts call a config's sources (see ``account_rules``), households' first."""
    from statpress.tasks.ledger.account_rules import of_path, of_table

    names = []
    for declared in getattr(release.config.source, "both", (release.config.source,)):
        path, table = (getattr(declared, name, None) for name in ("path", "table"))
        if path is None:
            names.append(of_table(declared.engine, table or ""))
        else:
            names.append(of_path(path, str(release.folder)))
    return tuple(names)


def form_of(release: Release) -> str:
    """A hash of how a config reads records: all of it but where they lie and what becomes of them.

    Whether a source can be read in a form is an exact answer, so that each form counts once.
    """
    said = release.config.model_dump(mode="json", include=set(_OF_READING))
    if release.config.tables is None:
        del said["tables"], said["rules"]
        said["source"] = _without_place(said["source"])
    else:
        del said["source"]
        for table in said["tables"].values():
            table["source"] = _without_place(table["source"])
    said["domain"] = {column.name: repr(column) for column in release.domain.columns}
    for column in release.domain.columns:
        if isinstance(column, Ranges) and column.special:
            said["domain"][column.name] += repr(column.special)
    text = json.dumps(said, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_place(source: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name not in _OF_PLACE}


@step("record look")
def record_look(context: RunContext, release: Release) -> None:
    """Write into the ledger that the run is about to open the source, which no later act undoes.

    That a named file is not there, late perhaps, is no look.
    """
    if not context.looked:
        _begin_to_look(context, release, charged=True)


def _begin_to_look(
    context: RunContext, release: Release, *, charged: bool = False, exact: bool = False
) -> None:
    """Write the look, and refuse files that are not the account's.

    The look of noisy gates is written once they are charged.
    """
    source, dataset = source_of(release), release.config.dataset
    reader_named(source.engine).check_place(source)
    noisy = release.config.gate is not None and not exact
    with _ledger(context) as ledger:
        if charged or not noisy:
            ledger.look(
                run=context.run_id,
                dataset=dataset,
                config_sha256=release.sha256,
                gates="noisy" if noisy else "exact",
                source=source_names(release)[0],
                form=form_of(release) if noisy else "",
            )
            context.looked = True
        patterns = [each for each in release.config.source.files if glob.has_magic(each)]
        if not patterns:
            return  # they were checked with the budget
        state = ledger.state()
    for each in patterns:
        for path in glob.iglob(str(release.located(each)), recursive=True):
            check_source(state, dataset, of_path(path))


@step("check input")
def check_input(run: Run, release: Release, plan: Plan, charge: Entry | None) -> Scan:
    """Input gate: a profile of the source against its declarations.

    Where every record is a unit, the scan that makes it counts the tables too, or writes the
    codes of wide products, beside which tables have a scan of their own. Where the gate is noisy,
    the run is charged already, and its noise is the first that it draws, once the source could be
    read. In an account that wants noisy gates it begins to draw before, so that each look is
    charged.
    """
    if charge is not None:
        with _ledger(run.context) as ledger:
            always_charged = ledger.account_terms(release.config.dataset).noisy_gates
        if always_charged:
            _begin_to_draw(run.context, charge)
    source, domain = run.snapshot.of(source_of(release)), release.domain
    scan = scan_of(source, release, plan, run.work)
    if plan.gate is None or charge is None:
        locate = functools.partial(first_of, source, domain, scratch=run.work)
        quality.check_source(run.inspector, release, scan.profile, locate)
        return scan
    quality.check_size(run.inspector, release, scan.profile)
    draw = _begin_to_draw(run.context, charge)
    key = key_of_choice(insecure_seed=run.insecure_seed)
    profile = kept_profile(source, release, scan, folder=run.work, key=key)
    noise = generator(draw, plan.gate.name, insecure_seed=run.insecure_seed)
    quality.check_noisily(run.inspector, release, profile, plan.gate.mechanism, noise)
    return scan


def _begin_to_draw(context: RunContext, charge: Entry) -> Entry:
    """The ledger's entry that the run begins to draw, written once and for all."""
    if context.draw is None:
        with _ledger(context) as ledger:
            context.draw = ledger.draw(run_id=context.run_id, dataset=charge.body["dataset"])
    draw: Entry = context.draw
    return draw


@step("count once")
def count_once(run: Run, release: Release, plan: Plan, scan: Scan) -> Counted:
    """Tables of cells, and wide products' codes; the last sight of the source.

    The tables are those of the scan, or of the records that are kept of each unit. All that was
    read of the source, here and for its profile, is of one state of it.
    """
    key = key_of_choice(insecure_seed=run.insecure_seed)
    source = run.snapshot.of(source_of(release))
    counted = counted_of(source, release, plan, scan, folder=run.work, key=key)
    run.snapshot.settle()
    return counted


@step("check counts")
def check_counts(run: Run, release: Release, plan: Plan, counted: Counted) -> None:
    """Table gate; with noisy gates nothing of the look is left outside the guarantee."""
    for table in counted.joint:
        quality.check_table(run.inspector, release, table)
    if counted.coded is not None:
        quality.check_coded(run.inspector, release, counted.coded)
    if plan.gate is not None:
        _settle(run.context, release.config.dataset, passed=True)


@step("rehearse")
def rehearse(run: Run, release: Release, plan: Plan, workers: Workers | None = None) -> None:
    """Write and read back every declared value, before a charge depends on it.

    Workers, if there are any, are given the plan.
    """
    with writing(run, charged=False):
        if workers is not None:
            introduce(run, plan, workers)
        bundle.rehearse(run, release, plan)


@step("hand over counts")
def hand_over_counts(run: Run, counted: Counted) -> None:
    """Write what was counted for the workers, in the run's private folder."""
    with writing(run, charged=False):
        save_counted(run.work / FOLDER, counted)


@step("charge ledger")
def charge_ledger(run: Run, release: Release, plan: Plan) -> tuple[Entry, dict[str, Any]]:
    """Commit the charge; from here on the budget is spent, whatever happens.

    Returns:
        The charge, and what the dataset has spent with it.
    """
    seeded = run.insecure_seed is not None
    with _ledger(run.context) as ledger:
        charge = ledger.charge(**charge_fields(release, plan, run.run_id, seeded))
        known = ledger.charged(run_id=run.run_id, dataset=release.config.dataset)
        spent = lifetime(ledger.account_terms(release.config.dataset), charge)
    if known.reviewed != run.reviewed:
        raise ApprovalError(
            "Who approves the releases of this dataset changed while the run was at work.",
            where=f"run {run.run_id!r}",
            next_step="Nothing was drawn: start the same flow run again, or give the charge back"
            " with 'statpress ledger void'.",
        )
    return charge, spent


def charge_fields(release: Release, plan: Plan, run_id: str, seeded: bool) -> dict[str, Any]:
    """The fields of the charge entry; of a series with the period that the data are of."""
    privacy = plan.privacy
    return {
        "dataset": release.config.dataset,
        "run_id": run_id,
        **{measure: canonical(amount) for measure, amount in plan.amounts.items()},
        "mechanisms": plan.describe(),
        "config_sha256": release.sha256,
        **terms_of(privacy),
        "n_records": privacy.n_records,
        "insecure_seed": seeded,
        "version": version("statpress"),
        **({} if release.period is None else {"period": release.period_text}),
    }


@step("draw records")
def draw_records(
    run: Run, plan: Plan, counted: Counted, charge: Entry, workers: Workers | None = None
) -> dict[str, Any]:
    """Record that drawing begins, once and for all; then run the mechanisms, here or elsewhere.

    What they return is public.
    """
    draw = _begin_to_draw(run.context, charge)
    with writing(run):
        if workers is not None:
            return draw_by(workers, run, plan, draw)
        return {
            product.name: product.mechanism.release(
                private_input(product, counted),
                generator(draw, product.name, insecure_seed=run.insecure_seed),
                run.advance,
            )
            for product in plan.products
        }


@step("post-process")
def postprocess(run: Run, plan: Plan, drawn: dict[str, Any]) -> Released:
    """Debias, project, deconvolve: free, from what was released alone."""
    with writing(run):
        return bundle.derive(plan, drawn)


@step("write bundle")
def write_products(
    run: Run,
    release: Release,
    plan: Plan,
    charge: Entry,
    spent: Mapping[str, Any],
    products: Released,
) -> None:
    """Write the bundle next to its final place."""
    with writing(run):
        bundle.write_bundle(run, release, plan, charge, spent, products)


@step("check release")
def check_products(run: Run, release: Release, plan: Plan, products: Released) -> None:
    """Release gate, on the files as they were written."""
    profiles, rows = bundle.profile_bundle(run, release, plan, products.derived)
    quality.check_release(run.inspector, profiles, rows)


@step("publish")
def publish_bundle(run: Run, release: Release, charge: Entry) -> Outcome:
    """Seal the bundle, move it into place, note it in the ledger."""
    with writing(run):
        seal = bundle.seal_bundle(run, release, charge)
        place = publish_folder(run.building, run.target, run.run_id)
    try:
        with _ledger(run.context) as ledger:
            ledger.publish(
                run_id=run.run_id,
                dataset=release.config.dataset,
                bundle=str(place),
                manifest_sha256=seal,
            )
    except StatpressError as error:
        error.what += f" The bundle is whole at {place}, charged, and not noted in the ledger."
        error.next_step = f"Then run 'statpress ledger note {place}'."
        raise
    point_latest(place)
    return outcome_of(charge, Status.PUBLISHED, place, seal)


@step("prepare")
def prepare_bundle(run: Run, release: Release, charge: Entry) -> Outcome:
    """Seal the bundle, put it where it waits for its approval, note that in the ledger."""
    with writing(run):
        seal = bundle.seal_bundle(run, release, charge)
        place = run.keep_folder()
    try:
        with _ledger(run.context) as ledger:
            ledger.prepare(
                run_id=run.run_id,
                dataset=release.config.dataset,
                bundle=str(run.target),
                manifest_sha256=seal,
            )
    except StatpressError as error:
        error.what += f" The bundle is whole at {place}, charged, and not noted as prepared."
        error.next_step = f"Then run 'statpress ledger note {place} --place {run.target}'."
        raise
    return outcome_of(charge, Status.PREPARED, place, seal)
