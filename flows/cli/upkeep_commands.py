"""Commands for whoever keeps an installation: parse, call, return the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statpress.flows.cli.options import HomeFolder, Json, Result, home_of


def doctor(*, home: HomeFolder = None, json: Json = False) -> Result:
    """Check home, ledger, clock, disk and what waits; ends with 73 if something is wrong."""
    from statpress.flows import facts as reports
    from statpress.mechanisms.errors import CheckupError
    from statpress.tasks.orchestration.server_checkup import examine_server
    from statpress.tasks.upkeep.checkup import examine, is_wrong

    findings = [*examine(home_of(home)), *examine_server()]

    def report() -> Iterator[Any]:
        yield from reports.checkup_report(findings)

    return Result(
        json=json,
        facts=lambda: reports.checkup_facts(findings),
        report=report,
        exit_code=CheckupError.exit_code if is_wrong(findings) else 0,
    )
