"""The flow that verifies the ledger on a schedule: ``flows.ledger_verification.verify``."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from prefect.runtime import flow_run

from flows.sealed_flow import sealed_flow
from mechanisms.errors import LedgerError, StatpressError
from tasks.home import Home
from tasks.ledger_check import verify_ledger
from tasks.private_zone import CuratorLog, guarded, silence_core_dumps
from tasks.signing import read_public_key
from tasks.steps import Conduct, conducted, step


@sealed_flow("statpress-verify-ledger")
def verify(public_key: str | None = None) -> None:
    """Verify the ledger that the worker's environment names, as 'statpress ledger verify' does.

    The orchestrator learns whether it holds; what was found goes to the curator log.

    Args:
        public_key: Path on the worker of a trusted key in PEM form; with one, every
            checkpoint must be signed by it.
    """
    silence_core_dumps()
    home = Home.default()
    log = CuratorLog(home.folder("curator"), UUID(flow_run.id).hex)
    with conducted(Conduct(log, orchestrated=True)):
        guarded(check, log)(home, log, public_key)


@step("verify ledger")
def check(home: Home, log: CuratorLog, public_key: str | None) -> None:
    """Recompute chain, sums and charges; write what was found to the curator log.

    Raises:
        LedgerError: It does not hold or cannot be read; the message is always the same.
    """
    try:
        trusted = [read_public_key(Path(public_key))] if public_key else []
        found = verify_ledger(home, trusted=trusted)
        log.write(f"The ledger holds: {found.entries} entries, head {found.head}.")
        return
    except StatpressError as error:
        log.write(f"{error.kind}: {error}")
    raise LedgerError(
        "The ledger could not be verified.",
        next_step=f"The curator finds why in the curator log {log.run_id}.log.",
    )
