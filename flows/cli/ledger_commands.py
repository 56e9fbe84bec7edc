"""Commands on the accounts of a ledger, and on the ledger as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App, Parameter

from statpress.flows.cli.options import HomeFolder, Json, Result, home_of, private_key
from statpress.flows.cli.review_commands import approvers
from statpress.flows.facts import review_text
from statpress.flows.terminal import table
from statpress.tasks.ledger.accounts import Account
from statpress.tasks.ledger.entries import canonical
from statpress.tasks.pages.numbers import how_many
from statpress.tasks.release.runs import (
    design_in_words,
    left_in_words,
    looks_in_words,
    sources_in_words,
    unfinished_in_words,
)

if TYPE_CHECKING:
    from statpress.mechanisms.accounting.composition import Reading


def verify(
    *,
    head: str | None = None,
    public_key: list[Path] | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Recompute the chain, every sum and every charge from its mechanisms' descriptions.

    The database checks itself as well, and the chain must hold the last head that this home saw.

    Args:
        head: A hash kept elsewhere; a chain that holds it was not cut or rewritten up to there.
        public_key: PEM file of a trusted key; every checkpoint must be signed by one.
    """
    from statpress.tasks.ledger.entries import read_public_key
    from statpress.tasks.release.ledger_check import DATABASE_NOT_CHECKED, verify_ledger

    trusted = [read_public_key(path) for path in public_key or []]
    found = verify_ledger(home_of(home), head=head, trusted=trusted)
    facts = {
        "verified": True,
        "entries": found.entries,
        "head": found.head,
        "held_head": head,
        "checkpoints": list(found.checkpoints),
        "signers": sorted(found.signers),
        "database_checked": found.database_checked,
    }

    def report() -> Iterator[str]:
        yield f"{found.entries} entries, chain and sums hold. Head {found.head}"
        if found.checkpoints:
            by = "trusted keys" if trusted else "keys not compared: give --public-key"
            last = found.checkpoints[-1]
            yield f"{len(found.checkpoints)} checkpoints, last entry {last} ({by})."
        if not found.database_checked:
            yield DATABASE_NOT_CHECKED

    return Result(json=json, facts=lambda: facts, report=report)


def export(file: Path, *, home: HomeFolder = None, json: Json = False) -> Result:
    """Write all entries as JSON Lines, ending with the head to keep elsewhere.

    Args:
        file: The file; an export that this ledger continues is replaced, no other.
    """
    from statpress.tasks.ledger.export import write_export
    from statpress.tasks.ledger.home_ledger import open_ledger

    with open_ledger(home_of(home)) as ledger:
        found = write_export(ledger, file)
    facts = {"file": str(file), "entries": found.entries, "head": found.head}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: f"{file}: {found.entries} entries. Head {found.head}",
    )


def export_head(*, to: str | None = None, home: HomeFolder = None, json: Json = False) -> Result:
    """Send the number of entries and the head of the chain to where they are kept elsewhere.

    What is kept there must be a head that this ledger continues; it is replaced.

    Args:
        to: A file, s3://bucket/key, or block:TYPE/NAME of a notification block on the Prefect
            server; by default STATPRESS_HEAD_TO.
    """
    from statpress.tasks.release.ledger_check import verify_ledger
    from statpress.tasks.uploads.heads import destination, send_head

    place, where = destination(to), home_of(home)
    verify_ledger(where)
    sent = send_head(where, place)
    facts = {"to": sent.where, "entries": sent.entries, "head": sent.head}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: f"{sent.where}: {sent.entries} entries. Head {sent.head}",
    )


def import_ledger(
    file: Path, *, head: str | None = None, home: HomeFolder = None, json: Json = False
) -> Result:
    """Write an export into an empty ledger, if every entry holds.

    Without the newest head, runs that the export leaves charged may have drawn since: they are
    noted as drawn, and what they were charged stays spent.

    Args:
        file: As 'ledger export' wrote it.
        head: The newest head that was kept elsewhere, which the export must end with.
    """
    from statpress.tasks.ledger.export import restore
    from statpress.tasks.ledger.home_ledger import open_ledger

    place = home_of(home)
    place.folder("")
    with open_ledger(place, create=True) as ledger:
        number, state = restore(ledger, file, head)
    entries = state.next_sequence - 1
    noted = entries - number
    facts = {"file": str(file), "entries": entries, "head": state.head, "noted_as_drawn": noted}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: (
            f"{number} entries from {file}. Head {state.head}",
            *[f"{noted} charges that it leaves open were noted as drawn: no --head."] * (noted > 0),
        ),
    )


def checkpoint(*, key: Path, home: HomeFolder = None, json: Json = False) -> Result:
    """Sign the head of the chain; the signature becomes an entry.

    Args:
        key: PEM file of a private Ed25519 key, for its owner only.
    """
    from statpress.tasks.ledger.home_ledger import open_ledger

    private = private_key(key)
    with open_ledger(home_of(home)) as ledger:
        entry = ledger.checkpoint(private)
    facts = {
        "sequence": entry.sequence,
        "signed_head": entry.previous,
        "head": entry.hash,
        "public_key": entry.body["public_key"],
        "signature": entry.body["signature"],
    }
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: (
            f"Entry {entry.sequence} signs the head {entry.previous}.",
            f"Keep elsewhere: head {entry.hash}",
        ),
    )


def void(
    run_id: str,
    *,
    reason: str,
    key: Path | None = None,
    elsewhere: bool = False,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Give back the charge of a run that never began to draw.

    Args:
        run_id: The run, as 'ledger charge-history' lists it.
        reason: Stays in the ledger.
        key: PEM file of an approver's private key, for a charge that another home made.
        elsewhere: Answer for a charge that another home made, where there are no approvers.
    """
    from statpress.flows import facts as reports
    from statpress.mechanisms.errors import LedgerError
    from statpress.tasks.ledger.home_ledger import open_ledger

    signer = private_key(key) if key else None
    with open_ledger(home_of(home)) as ledger:
        charge = ledger.state().charges.get(run_id)
        if charge is None:
            raise LedgerError(
                "The ledger has no charge of this run.",
                where=f"run {run_id!r}",
                next_step="'statpress ledger charge-history' lists the runs.",
            )
        dataset = charge.entry.body["dataset"]
        entry = ledger.void(
            run_id=run_id, dataset=dataset, reason=reason, key=signer, elsewhere=elsewhere
        )
        account = ledger.account(dataset)
    return Result(
        json=json,
        facts=lambda: {"entry": entry.hash, **reports.account_facts(account)},
        report=lambda: f"Run {run_id} is void; {dataset} has left: {account.remaining}.",
    )


def note(
    bundle: Path, *, place: Path | None = None, home: HomeFolder = None, json: Json = False
) -> Result:
    """Note a whole bundle as published, where its run ended before it could.

    Args:
        bundle: The bundle's folder.
        place: For a bundle that waits for its approval: where it is to be published.
    """
    from statpress.tasks.release.review import note_bundle

    entry = note_bundle(home_of(home), bundle, place)
    noted = Path(entry.body["bundle"])
    flaw = _page_flaw(noted) if place is None else ""
    facts = {"entry": entry.hash, "sequence": entry.sequence, "bundle": str(noted)}
    facts |= {"page": flaw} if flaw else {}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: f"Entry {entry.sequence} notes {noted}. {flaw}".rstrip(),
    )


def _page_flaw(bundle: Path) -> str:
    """Make the page anew outside of a run; why it could not be, empty if it was."""
    from statpress.mechanisms.errors import StatpressError
    from statpress.tasks.release.series_periods import NOT_REFRESHED, folder_of_series
    from statpress.tasks.report.series_page import write_series

    folder = folder_of_series(bundle)
    try:
        if folder is not None:
            write_series(folder)
    except Exception as error:
        what = error.what if isinstance(error, StatpressError) else f"{type(error).__name__}."
        return NOT_REFRESHED.format(what)
    return ""


def upgrade(*, home: HomeFolder = None, json: Json = False) -> Result:
    """Bring the ledger of an older version to the present form; its entries stay as they are."""
    from statpress.tasks.ledger.ledger import Ledger
    from statpress.tasks.ledger.ledger_table import SCHEMA

    form, present = Ledger.upgrade(home_of(home).ledger), SCHEMA.forms[-1]
    text = f"The ledger is of the present form, {present!r}; there is nothing to upgrade."
    if form != present:
        text = f"The ledger was of the form {form!r} and is now of the form {present!r}."
    return Result(json=json, facts=lambda: {"from": form, "to": present}, report=lambda: text)


Policy = Literal["basic", "zcdp"]
Size = int | Literal["from_source"]
Sources = list[str] | None


def register(
    dataset: str,
    *,
    n_records: Size | None = None,
    policy: Policy = "basic",
    epsilon: str | None = None,
    delta: str | None = None,
    rho: str | None = None,
    adjacency: Literal["replace_one", "add_remove"] = "replace_one",
    unit: Literal["record", "household"] = "record",
    unit_column: str | None = None,
    max_records: int | None = None,
    n_units: Size | None = None,
    max_refusals: int | None = None,
    max_looks: int | None = None,
    noisy_gates: bool = False,
    design: str | None = None,
    source: Sources = None,
    also_in: Sources = None,
    reason: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Open a dataset's account with the budget of its whole life.

    Args:
        dataset: Name of the account, as configs give it.
        n_records: Public number of records, where the unit is the record; 'from_source' if
            releases may be of any number, which each of them counts and publishes.
        policy: 'basic' limits epsilon and delta; 'zcdp' rho, and the delta with which it may fail.
        epsilon: Limit of the sum of all charges, under 'basic'.
        delta: Limit of the sum of all charges.
        rho: Limit of the sum of all charges, under 'zcdp'.
        adjacency: Neighbouring relation; under add_remove the size is private, and not given.
        unit: Privacy unit, unless a column names it.
        unit_column: Column that names every record's unit; needs max_records and n_units.
        max_records: Records of a unit that are used, as in the configs.
        n_units: Public number of units, or 'from_source'.
        max_refusals: Runs that gates may stop before 'ledger amend --reopen'; by default 20.
        max_looks: How often runs may look at the data before that; by default 60.
        noisy_gates: Refuse configs without 'gate: {noise: true}', whose checks are exact.
        design: Of a panel, in which periods a person takes part at most: 'any 8 months',
            '8 consecutive months', '8 within 16 months' of the calendar, 'one month', or years,
            quarters or weeks. The limits are then of one person's loss; by default all charges
            add up.
        source: What the dataset is: a path or pattern of files, a URL, 'postgres:schema.table' or
            'spark:table'. May be given again. Other sources are refused before they are opened.
        also_in: An account that is about some of it too. May be given again.
        reason: Why there are two; every bundle states it.
    """
    from statpress.flows import facts as reports
    from statpress.mechanisms.domain.domain import Adjacency, Privacy, Unit
    from statpress.mechanisms.domain.domain import Size as Origin
    from statpress.mechanisms.errors import ConfigError
    from statpress.tasks.ledger.home_ledger import register_dataset
    from statpress.tasks.release.runs import design_in_words

    neighbours = Adjacency(adjacency)
    given, other = (n_records, n_units) if unit_column is None else (n_units, n_records)
    private = neighbours is Adjacency.ADD_REMOVE
    if (
        other is not None
        or (given is None) != private
        or (unit_column is None) != (max_records is None)
    ):
        raise ConfigError(
            "The privacy unit is not stated in full.",
            where="ledger register",
            next_step="Give either --n-records, or --unit-column, --max-records and --n-units; no "
            "size with '--adjacency add_remove'.",
        )
    size = Origin.FROM_SOURCE if isinstance(given, str) else Origin.DECLARED
    size, number = Origin.ROUGH if private else size, given if isinstance(given, int) else 1
    if unit_column is None or max_records is None:
        frame = Privacy(adjacency=neighbours, unit=Unit(unit), n_records=number, size=size)
    else:
        frame = Privacy.of_units(
            adjacency=neighbours,
            column=unit_column,
            max_records=max_records,
            n_units=number,
            size=size,
        )
    limits = _limits(policy, epsilon, delta, rho)
    limits |= {"max_refusals": max_refusals, "max_looks": max_looks, "noisy_gates": noisy_gates}
    limits |= {"design": design}
    limits |= {"sources": _names(source), "also_in": also_in or (), "reason": reason}
    account = register_dataset(home_of(home), dataset, frame, policy=policy, **limits)
    return Result(
        json=json,
        facts=lambda: {
            "entry": account.registration.hash,
            **reports.account_facts(account),
        },
        report=lambda: (
            f"Registered {dataset} under {policy}: {account.limit}.",
            *[design_in_words(account)] * account.has_design,
        ),
    )


def amend(
    dataset: str,
    *,
    policy: Policy | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    rho: str | None = None,
    design: str | None = None,
    apart: bool = False,
    source: Sources = None,
    also_in: Sources = None,
    reopen: bool = False,
    key: Path | None = None,
    reason: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Put another limit, policy or design in force, name the sources, or let runs look again.

    Old and new limits stay in the chain, and so do the runs that gates stopped.

    Args:
        dataset: Name of the account.
        policy: The new policy; by default the one in force.
        epsilon: The new limit; what is not given stays as it is.
        delta: The new limit.
        rho: The new limit, under 'zcdp'.
        design: The new design, as for 'register', or 'lifetime' for none. A person may take part
            in as many periods as the earlier design and this one say together.
        apart: Nobody takes part under both: whoever took part in a period that was charged goes on
            by the earlier design, and everybody else goes by the new one.
        source: What the dataset is, as for 'register'; all patterns anew.
        also_in: An account that is about some of it too.
        reopen: Count anew how often runs looked at the data and gates stopped them; as many as
            the limits close the dataset.
        key: PEM file of an approver's private key, where there are approvers.
        reason: Needed to raise a limit, to change policy, design or sources, and to reopen without
            a key.
    """
    from statpress.flows import facts as reports
    from statpress.mechanisms.errors import ConfigError
    from statpress.tasks.ledger.home_ledger import open_ledger
    from statpress.tasks.release.runs import design_in_words

    if sum(map(bool, (any((policy, epsilon, delta, rho, design)), source, reopen))) > 1:
        raise ConfigError(
            "Limits, sources and reopening are amended one at a time.",
            where="ledger amend",
            next_step="Give --reopen, --source or limits, each with its --reason or --key.",
        )
    if apart and design is None:
        raise ConfigError(
            "--apart says who takes part under a new design, and no design is given.",
            where="ledger amend",
            next_step="Give --design too, or leave --apart out.",
        )
    why: dict[str, Any] = {"reason": reason, "key": private_key(key) if key else None}
    with open_ledger(home_of(home)) as ledger:
        was = ledger.account(dataset)
        if reopen:
            entry = ledger.reopen(dataset=dataset, **why)
        elif source:
            names = _names(source)
            entry = ledger.bind(dataset=dataset, sources=names, also_in=also_in or (), **why)
        else:
            given = _limits(policy or was.policy, epsilon, delta, rho)
            given |= {"policy": policy, "design": design, "apart": apart}
            entry = ledger.amend(dataset=dataset, **why, **given)
        account = ledger.account(dataset)

    def report() -> str:
        if reopen:
            return (
                f"{dataset} is reopened after {was.open_looks} looks and {was.open_refusals}"
                f" refusals; from here {account.max_looks} and {account.max_refusals} are left."
            )
        if source:
            return f"{dataset} is about {', '.join(account.sources)}."
        before, now = (
            f"{each.policy} with {each.limit}" + f", design '{each.design}'" * (design is not None)
            for each in (was, account)
        )
        said = f"\n{design_in_words(account)}" * (design is not None and account.has_design)
        return f"{dataset}: {before}\n  now {now}{said}"

    return Result(
        json=json,
        facts=lambda: {"entry": entry.hash, **reports.account_facts(account)},
        report=report,
    )


def _names(sources: list[str] | None) -> list[str]:
    """Sources as accounts name them; paths are taken from the present folder."""
    from statpress.tasks.ledger.account_rules import named

    return [named(each) for each in sources or ()]


_WORDS = {"rho_delta": "delta"}


def show_ledger(
    dataset: str | None = None,
    *,
    delta: str | None = None,
    period: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Print what each dataset has spent, reserved and left, and what that amounts to.

    Args:
        dataset: One account; by default all.
        delta: Of the (epsilon, delta) reading; by default the registered one, or 1e-8.
        period: For which an account with a design says what is left; by default the one after the
            last that was charged.
    """
    from statpress.flows import facts as reports
    from statpress.flows.cli import ledger_commands
    from statpress.tasks.ledger.entries import check_field
    from statpress.tasks.ledger.home_ledger import open_ledger
    from statpress.tasks.release.ledger_check import read_account

    at = _delta(delta)
    if period is not None:
        check_field("period", period)
    with open_ledger(home_of(home)) as ledger:
        accounts = [ledger.account(dataset)] if dataset else list(ledger.state().accounts.values())
    readings = [read_account(account, at) for account in accounts]
    pairs = list(zip(accounts, readings, strict=True))

    def report() -> Iterator[Any]:
        if not pairs:
            yield "No accounts."
        for pair in pairs:
            yield from ledger_commands.account_report(*pair, period)

    return Result(
        json=json,
        facts=lambda: {"accounts": [reports.account_facts(*pair, period) for pair in pairs]},
        report=report,
    )


def charge_history(
    dataset: str | None = None, *, home: HomeFolder = None, json: Json = False
) -> Result:
    """Print every charge: when, for which run, how much, and what became of it.

    Args:
        dataset: One account; by default all.
    """
    from statpress.flows import facts as reports
    from statpress.flows.cli import ledger_commands
    from statpress.tasks.ledger.home_ledger import open_ledger

    with open_ledger(home_of(home)) as ledger:
        accounts = [ledger.account(dataset)] if dataset else list(ledger.state().accounts.values())
    charges = [reports.charge_facts(c) for a in accounts for c in a.charges.values()]
    charges.sort(key=lambda charge: charge["sequence"])
    return Result(
        json=json,
        facts=lambda: {"charges": charges},
        report=lambda: ledger_commands.history_report(charges),
    )


def account_report(account: Account, reading: Reading, period: str | None = None) -> Iterator[Any]:
    """The account as an odometer, with a bar per limited measure.

    What remains is for a period, by default the next one.
    """
    reserved, period = account.reserved, period or account.next_period
    remaining, whole = account.remaining_for(period), account.spent_by_one()
    rows, bars = [], []
    for measure, limit in account.limit.amounts.items():
        spent, kept, left = account.spent[measure], reserved[measure], remaining[measure]
        by_one = [whole[measure]] if account.has_design else []
        amounts = [canonical(amount) for amount in (limit, spent - kept, kept, *by_one, left)]
        rows.append([_WORDS.get(measure, measure), *amounts])
        bars.append(_share_bar(f"{_WORDS.get(measure, measure):<8}", left, limit))
    columns = ["", "limit", "spent", "reserved", "remaining"]
    if account.has_design:
        columns[2:] = ["spent", "reserved", "on one person", f"left for {period or 'a period'}"]
    yield table(f"{account.dataset}: policy {account.policy}", columns, rows)
    yield from bars
    if account.has_design:
        yield design_in_words(account)
    if lasting := left_in_words(account):
        yield lasting
    was = account.registration.body
    size = "of any size"
    if "n_records" in was:
        size = how_many(was["n_records"] // was["unit_records"], was["n_records"])
    yield (
        f"Registered {was['created'][:10]}: {size}, {was['adjacency']}, "
        f"unit {was['unit']}{_of_several(was['unit_records'])}."
    )
    yield sources_in_words(account)
    counts = Counter(str(charge.status) for charge in account.charges.values())
    runs = ", ".join(f"{n} {status}" for status, n in counts.items()) or "none"
    yield f"Charges: {runs}."
    yield from unfinished_in_words(account)
    if account.last_look or account.refusals:
        yield looks_in_words(account)
    if account.refusals:
        last = account.refusals[-1].body
        when = f"the last at {last['created']}: {last['run_id']}"
        yield f"  {len(account.refusals)} stopped in all, {when}."
    if account.amendments:
        last = account.amendments[-1].body
        yield f"Amended {len(account.amendments)} times, last at {last['created']}."
    if account.reviewed:
        yield review_text(account)
    delta = canonical(reading.delta)
    whose = "One person, at most" if account.has_design else "All charges together"
    yield f"{whose}: epsilon {_rounded_spend(reading.adaptive)} at delta {delta}."
    if reading.fixed < reading.adaptive:
        yield (
            "  If no config depended on an earlier release: "
            f"epsilon {_rounded_spend(reading.fixed)} at delta {delta}."
        )
    yield ""


_BAR = 40


def _share_bar(label: str, part: Decimal, whole: Decimal) -> Any:
    """A bar as long as what is left of the whole, with its percentage rounded down."""
    from rich.text import Text

    share = min(Decimal(1), max(Decimal(0), part / whole)) if whole else Decimal(0)
    full = int(share * _BAR)
    colour = "green" if share > Decimal("0.25") else "yellow" if share else "red"
    text = Text(label)
    text.append("█" * full, style=colour)
    text.append("░" * (_BAR - full), style="dim")
    text.append(f" {int(share * 100):3d} % left")
    return text


def _of_several(unit_records: int) -> str:
    return f" of {unit_records:,} records each" if unit_records > 1 else ""


def history_report(charges: list[dict[str, Any]]) -> str:
    """All charges for a person, two lines each."""
    lines = []
    for charge in charges:
        mark = "" if charge["publishable"] else " NOT PUBLISHABLE"
        lines += [
            f"{charge['sequence']:>6}  {charge['created']}  {charge['dataset']}  "
            + (f"{charge['period']}  " if "period" in charge else "")
            + f"{charge['status']}{mark}  run {charge['run_id']}",
            f"        epsilon {charge['epsilon']}, delta {charge['delta']}; rho {charge['rho']}, "
            f"delta {charge['rho_delta']}{'; ' + charge['bundle'] if charge['bundle'] else ''}",
        ]
    return "\n".join(lines or ["No charges."])


def _rounded_spend(epsilon: float) -> str:
    """Five digits, rounded up."""
    return f"{Context(prec=5, rounding=ROUND_CEILING).create_decimal(Decimal(epsilon)):f}"


def _limits(policy: str, epsilon: str | None, delta: str | None, rho: str | None) -> dict[str, Any]:
    """The limits that were given, by the names the ledger has for them."""
    named = {"epsilon": epsilon, "rho": rho, "delta" if policy == "basic" else "rho_delta": delta}
    return {name: value for name, value in named.items() if value is not None}


def _delta(text: str | None) -> Decimal | None:
    """A delta in (0, 1), if one was given."""
    from statpress.mechanisms.errors import AmountError
    from statpress.tasks.ledger.entries import exact

    if text is None:
        return None
    delta = exact(text, where="--delta")
    if not 0 < delta < 1:
        raise AmountError("A reading needs a delta between 0 and 1.", where="--delta")
    return delta


ledger_app = App(name="ledger", default_parameter=Parameter(negative=""))  # for their page
for command in (
    *(register, amend, charge_history, approvers),
    *(verify, export, export_head, checkpoint),
    *(void, note, upgrade),
):
    ledger_app.command(command)
ledger_app.command(show_ledger, name="show")
ledger_app.command(import_ledger, name="import")
