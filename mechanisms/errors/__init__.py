"""Every error statpress raises on purpose, grouped by who can fix it.

A message is a channel to the public: it may hold what the config, the command
line or the ledger says, and never a value, a count or a text from the source.
Each kind has its own exit code (``python -m flows.reference`` puts them into
``flows/README.md``, and a test compares the two).
"""

from __future__ import annotations

from mechanisms.errors.base import (
    InternalError,
    StatpressError,
    together,
)
from mechanisms.errors.budget import (
    AlreadyRegisteredError,
    BudgetError,
    InfeasibleBudgetError,
    InsufficientBudgetError,
    PolicyMismatchError,
    RefusalLimitError,
    UnregisteredDatasetError,
)
from mechanisms.errors.config import (
    BudgetValueError,
    ConfigError,
    ConfigNotFoundError,
    DescriptionError,
    DomainTooLargeError,
    DuplicateColumnError,
    EdgesError,
    MemoryLimitError,
    MostlyNoiseError,
    RecordsError,
    UnknownKeyError,
    YamlError,
)
from mechanisms.errors.ledger import (
    AmountError,
    LedgerError,
    LedgerFullError,
    LedgerIntegrityError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerSchemaError,
    LedgerUnavailableError,
    SigningKeyError,
)
from mechanisms.errors.operation import (
    ConfirmationError,
    DependencyError,
    DeploymentError,
    OrchestratorError,
    UnwrittenResultError,
    WorkerError,
)
from mechanisms.errors.output import (
    ApprovalError,
    BundleError,
    BundleExistsError,
    BundleFetchError,
    BundleVerificationError,
    NotMeasuredError,
    OutputNotWritableError,
    QueryError,
    RefinementError,
    ReleaseGateError,
    RereleaseError,
    SignatureError,
    UploadError,
)
from mechanisms.errors.source import (
    ColumnNotFoundError,
    ColumnTypeError,
    EmptySourceError,
    QualityGateError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
)

__all__ = [
    "AlreadyRegisteredError",
    "AmountError",
    "ApprovalError",
    "BudgetError",
    "BudgetValueError",
    "BundleError",
    "BundleExistsError",
    "BundleFetchError",
    "BundleVerificationError",
    "ColumnNotFoundError",
    "ColumnTypeError",
    "ConfigError",
    "ConfigNotFoundError",
    "ConfirmationError",
    "DependencyError",
    "DeploymentError",
    "DescriptionError",
    "DomainTooLargeError",
    "DuplicateColumnError",
    "EdgesError",
    "EmptySourceError",
    "InfeasibleBudgetError",
    "InsufficientBudgetError",
    "InternalError",
    "LedgerError",
    "LedgerFullError",
    "LedgerIntegrityError",
    "LedgerLockedError",
    "LedgerReadOnlyError",
    "LedgerSchemaError",
    "LedgerUnavailableError",
    "MemoryLimitError",
    "MostlyNoiseError",
    "NotMeasuredError",
    "OrchestratorError",
    "OutputNotWritableError",
    "PolicyMismatchError",
    "QualityGateError",
    "QueryError",
    "RecordsError",
    "RefinementError",
    "RefusalLimitError",
    "ReleaseGateError",
    "RereleaseError",
    "SignatureError",
    "SigningKeyError",
    "SourceAccessError",
    "SourceChangedError",
    "SourceError",
    "SourceNotFoundError",
    "SourceUnavailableError",
    "SourceUnreadableError",
    "StatpressError",
    "UnknownKeyError",
    "UnregisteredDatasetError",
    "UnwrittenResultError",
    "UploadError",
    "WorkerError",
    "YamlError",
    "exit_codes",
    "together",
]


def exit_codes() -> dict[str, int]:
    """Names of all concrete kinds and their exit codes, ascending by code."""

    def below(kind: type[StatpressError]) -> list[type[StatpressError]]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in below(child))]

    kinds = {kind for kind in below(StatpressError) if kind is not StatpressError}
    named = {kind.__name__: kind.exit_code for kind in kinds}
    return dict(sorted(named.items(), key=lambda item: (item[1], item[0])))
