"""Errors for the keeper of the ledger."""

from __future__ import annotations

from mechanisms.errors.base import StatpressError


class LedgerError(StatpressError):
    """Base of faults of the ledger itself."""

    exit_code = 30


class LedgerIntegrityError(LedgerError):
    """The chain, the sums or the schema of the ledger do not hold."""

    exit_code = 31
    next_step = "Stop releasing and compare with a backup of the ledger."

    def __init__(self, what: str, *, sequence: int | None = None, **k: str) -> None:
        super().__init__(what, **k)
        self.sequence = sequence


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be opened, read or written just now."""

    exit_code = 32
    next_step = "Check the path, its permissions and the free space, then try again."


class AmountError(LedgerError):
    """An amount that is not a finite, non-negative decimal."""

    exit_code = 33
    next_step = "Give a finite decimal such as 0.5 or 1e-8."


class LedgerSchemaError(LedgerUnavailableError):
    """The ledger was made by an older or a newer version than this one."""

    exit_code = 34


class LedgerLockedError(LedgerUnavailableError):
    """Another process has kept the ledger locked for too long."""

    exit_code = 35
    next_step = "Find the process that holds the ledger, then try again."


class LedgerFullError(LedgerUnavailableError):
    """There is no space left for the ledger."""

    exit_code = 36
    next_step = "Make room where the ledger lies, then try again."


class LedgerReadOnlyError(LedgerUnavailableError):
    """The ledger can be read and not written."""

    exit_code = 37
    next_step = "Fix the permissions of the ledger and of its folder or role."


class SigningKeyError(LedgerError):
    """A key file is missing, not readable, or not an Ed25519 key."""

    exit_code = 38
    next_step = "Check the path; 'openssl genpkey -algorithm ed25519 -out FILE' makes a key."
