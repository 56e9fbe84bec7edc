"""Commands for whoever keeps an installation: parse, call, return the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from statpress.flows.cli.options import HomeFolder, Json, Result, home_of

if TYPE_CHECKING:
    from statpress.tasks.upkeep.backup import Restored
    from statpress.tasks.upkeep.checkup import Finding


def doctor(*, home: HomeFolder = None, json: Json = False) -> Result:
    """Check home, ledger, clock, disk and what waits; ends with 73 if something is wrong."""
    from statpress.mechanisms.errors import CheckupError
    from statpress.tasks.orchestration.server import examine_server
    from statpress.tasks.upkeep.checkup import examine, needing_attention

    findings = [*examine(home_of(home)), *examine_server()]

    def report() -> Iterator[Any]:
        yield from checkup_report(findings)

    return Result(
        json=json,
        facts=lambda: checkup_facts(findings),
        report=report,
        exit_code=CheckupError.exit_code if needing_attention(findings) else 0,
    )


def metrics(*, output: Path | None = None, home: HomeFolder = None, json: Json = False) -> Result:
    """Print the budgets left, what waits and the last upkeep as metrics for Prometheus.

    Args:
        output: Write them to this file instead, for node_exporter's textfile collector; it sees
            the old metrics or the new ones, never a part.
    """
    from statpress.tasks.upkeep.checkup import metrics as measured

    text = measured(home_of(home))
    if output is not None:
        write_metrics(output, text)
    said = text.rstrip("\n") if output is None else f"Wrote {output}."
    written = {} if output is None else {"file": str(output)}
    return Result(json=json, facts=lambda: {"metrics": text, **written}, report=lambda: said)


def backup(file: Path, *, home: HomeFolder = None, json: Json = False) -> Result:
    """Back up the ledger, the marks of what drew and the prepared bundles; nothing of a source.

    Releases may be at work meanwhile. Logs and reports for the curator are left out.

    Args:
        file: The backup, readable by its owner only; it must not be there yet.
    """
    from statpress.tasks.upkeep.backup import back_up

    done = back_up(home_of(home), file)
    return Result(
        json=json,
        facts=lambda: {"file": str(file), **asdict(done)},
        report=lambda: (
            f"{file}: {done.entries} entries, {len(done.prepared)} prepared bundles."
            f" Head {done.head}"
        ),
    )


def restore(
    file: Path, *, head: Path | None = None, home: HomeFolder = None, json: Json = False
) -> Result:
    """Restore a backup into a new home and an empty ledger, then verify it.

    Without the newest head, charges that published nothing count as drawn: none is given back.
    A ledger in a database that was not lost is kept, if it continues the backup.

    Args:
        file: As 'backup' wrote it.
        head: File of the newest head that was kept elsewhere, as 'ledger export-head' or
            'ledger export' wrote it; the ledger must end with it.
    """
    from statpress.tasks.upkeep.backup import restore as restored

    done = restored(home_of(home), file, head)
    return Result(json=json, facts=lambda: asdict(done), report=lambda: restored_report(done))


def tidy(
    *,
    days: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Remove what the home has kept too long: logs, reports, bundles that are over, folders.

    Never the ledger, what the home remembers of it, or a bundle that waits.

    Args:
        days: For how many days things are kept; by default STATPRESS_KEEP_DAYS.
    """
    from statpress.mechanisms.errors import ConfigError
    from statpress.tasks.upkeep.retention import KEEP_DAYS, kept_days
    from statpress.tasks.upkeep.retention import tidy as remove_overdue

    kept = days or kept_days()
    if kept is None:
        raise ConfigError(
            "It is not said for how many days things are kept.",
            where=f"--days or {KEEP_DAYS}",
            next_step="Give a number of days, such as --days 90.",
        )
    removed = [str(path) for path in remove_overdue(home_of(home), kept)]
    return Result(
        json=json,
        facts=lambda: {"days": kept, "removed": removed},
        report=lambda: [f"Removed {path}." for path in removed] or ["Nothing is overdue."],
    )


def checkup_facts(findings: Sequence[Finding]) -> dict[str, Any]:
    """What a checkup found, and whether nothing of it is wrong."""
    return {
        "healthy": all(each.verdict != "wrong" for each in findings),
        "findings": [asdict(each) for each in findings],
    }


def checkup_report(findings: Sequence[Finding]) -> Iterator[str]:
    """A line or two for each finding; what is wrong comes last, next to the prompt."""
    order = ("fine", "note", "wrong")
    for each in sorted(findings, key=lambda finding: order.index(finding.verdict)):
        yield f"{each.verdict:<6} {each.check}: {each.what}"
        if each.next_step and each.verdict != "fine":
            yield f"       {each.next_step}"


def restored_report(done: Restored) -> Iterator[str]:
    """What a restore left, and what follows from it."""
    yield f"{done.where}: {done.entries} entries, chain and sums hold. Head {done.head}"
    if done.counted_as_drawn:
        yield f"Counted as drawn, for want of a head: {', '.join(done.counted_as_drawn)}."
    if done.prepared:
        yield f"Prepared bundles: {', '.join(done.prepared)}."
    if done.missing:
        yield f"These wait, and the backup had no bundle of them: {', '.join(done.missing)}."


_READERS = 0o644


def write_metrics(place: Path, text: str) -> None:
    """Put metrics where a collector reads them, which sees the old ones or the new ones.

    Raises:
        OutputNotWritableError: The file cannot be written; the old one stays.
    """
    from statpress.mechanisms.errors import OutputNotWritableError
    from statpress.tasks.private_zone.folders import replacing

    failure = ""
    try:
        with replacing(place, mode=_READERS) as file:
            file.write(text)
    except OSError as error:
        failure = error.strerror or type(error).__name__
    if failure:
        raise OutputNotWritableError(
            f"The metrics cannot be written ({failure}).",
            where=str(place),
            next_step="Give a file in a folder that this user may write to.",
        )
