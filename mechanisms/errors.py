"""Every error statpress raises on purpose, grouped by who can mend it.

A message is a channel to the public: it may hold what the config, the command
line or the ledger says, and never a value, a count or a text from the source.
Each kind has its own exit code (``python -m flows.reference`` puts them into
``flows/README.md``, and a test compares the two).
"""

from __future__ import annotations


class StatpressError(Exception):
    """Base of all errors with a message fit for the public zone.

    Args:
        what: What is wrong, one sentence.
        where: Place: file, line and column, field, dataset or path.
        next_step: What the reader can do about it.
    """

    exit_code = 70
    next_step = "Look up the incident in the curator log, then report it."

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.next_step = next_step or type(self).next_step
        super().__init__(what)

    @property
    def kind(self) -> str:
        """The class name without ``Error``, the stable name of this kind."""
        return type(self).__name__.removesuffix("Error")

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what} {self.next_step}".strip()

    def __reduce__(self) -> tuple[object, ...]:
        # An orchestrator may pickle an exception; keep the keyword fields.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(
    kind: type[StatpressError], args: tuple[object, ...], state: dict[str, object]
) -> StatpressError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InternalError(StatpressError):
    """Something unforeseen; its detail is in the curator log alone."""

    exit_code = 70


# --- the author of the config ------------------------------------------------


class ConfigError(StatpressError):
    """A value in the config is not usable."""

    exit_code = 10
    next_step = "Mend this field and run 'statpress validate'."


class ConfigNotFoundError(ConfigError):
    """The config file is missing or cannot be read."""

    exit_code = 11
    next_step = "Check the path of the config."


class YamlError(ConfigError):
    """The file is not YAML, or uses a part of YAML that a config may not."""

    exit_code = 12
    next_step = "Mend the YAML at this place."


class UnknownKeyError(ConfigError):
    """A key that the config does not have."""

    exit_code = 13
    next_step = "Remove the key or correct its spelling."


class DuplicateColumnError(ConfigError):
    """A column, or a key of the YAML, is given twice."""

    exit_code = 14
    next_step = "Name it once."


class EdgesError(ConfigError):
    """Edges, bins or widths that do not tile the range."""

    exit_code = 15
    next_step = "Give strictly increasing edges, or bins that divide the range."


class BudgetValueError(ConfigError):
    """An epsilon, delta or share that is no valid amount."""

    exit_code = 16
    next_step = "Give epsilon > 0, 0 <= delta < 1, and shares that sum to 1."


class RecordsError(ConfigError):
    """A number of records, or a pseudocount, that is not positive."""

    exit_code = 17
    next_step = "Give a number in that range."


class DomainTooLargeError(ConfigError):
    """The product of the column sizes passes 2**63 - 1."""

    exit_code = 18
    next_step = "Drop a column or use fewer cells in the largest."


# --- the steward of the budget -----------------------------------------------


class BudgetError(StatpressError):
    """Base of what the budget forbids."""

    exit_code = 20


class InsufficientBudgetError(BudgetError):
    """The ledger's remaining budget does not cover the charge."""

    exit_code = 21
    next_step = "Lower the release's budget; 'statpress ledger show' prints what remains."

    def __init__(
        self, what: str, *, remaining: object = None, requested: object = None, **k: str
    ) -> None:
        super().__init__(what, **k)
        self.remaining = remaining
        self.requested = requested


class InfeasibleBudgetError(BudgetError):
    """No parameter of the mechanism meets the budget."""

    exit_code = 22
    next_step = "Raise the budget, or let statpress choose pseudocount or records."


class UnregisteredDatasetError(BudgetError):
    """The ledger has no account for the dataset."""

    exit_code = 23
    next_step = "Register it with 'statpress ledger register'."


class AlreadyRegisteredError(BudgetError):
    """The ledger already has an account of this name."""

    exit_code = 24
    next_step = "Use the account, or choose another name."


class PolicyMismatchError(BudgetError):
    """Unit, adjacency or size differ from what the dataset was registered with."""

    exit_code = 25
    next_step = "Make the config agree with 'statpress ledger show'."


# --- the keeper of the ledger --------------------------------------------------


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
    """An amount that is no finite, non-negative decimal."""

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
    next_step = "Mend the permissions of the ledger and of its folder or role."


class SigningKeyError(LedgerError):
    """A key file is missing, not readable, or no Ed25519 key."""

    exit_code = 38
    next_step = "Check the path; 'openssl genpkey -algorithm ed25519 -out FILE' makes a key."


# --- the keeper of the data ------------------------------------------------------


class SourceError(StatpressError):
    """Base of what is wrong with the source."""

    exit_code = 40


class SourceNotFoundError(SourceError):
    """No file matches the source's path."""

    exit_code = 41
    next_step = "Check source.path; it is taken from the folder of the config."


class SourceUnreadableError(SourceError):
    """The engine cannot read the source."""

    exit_code = 42
    next_step = "Check that the file is whole and of the declared format."


class ColumnNotFoundError(SourceError):
    """The source lacks a column that the domain declares."""

    exit_code = 43
    next_step = "Correct the name in the domain, or the source."


class ColumnTypeError(SourceError):
    """A column's type cannot carry the declared discretisation."""

    exit_code = 44
    next_step = "Correct the column's type in the domain, or the source."


class EmptySourceError(SourceError):
    """The source has no records."""

    exit_code = 45
    next_step = "Check that the right file was delivered."


class QualityGateError(SourceError):
    """A quality check on private data stopped the run before any charge."""

    exit_code = 46
    next_step = "Read the curator log of this run."


# --- whoever runs the press -------------------------------------------------------


class BundleError(StatpressError):
    """Base of what is wrong with the output."""

    exit_code = 50


class OutputNotWritableError(BundleError):
    """The publishing directory cannot be written."""

    exit_code = 51
    next_step = "Choose another publish.directory, or mend its permissions or free space."


class BundleExistsError(BundleError):
    """A bundle of that name is already there."""

    exit_code = 52
    next_step = "Choose another publish.name; bundles are never overwritten."


class BundleVerificationError(BundleError):
    """A bundle differs from its manifest."""

    exit_code = 53
    next_step = "Do not use this bundle; fetch it again from the publisher."


class ReleaseGateError(BundleError):
    """The drawn release does not agree with its own plan; nothing was published."""

    exit_code = 54
    next_step = "The budget stays spent; report this with the incident id."


class RefinementError(BundleError):
    """A bundle's tables cannot be refined in the way that was asked."""

    exit_code = 55
    next_step = "Name other products with --products, or leave out --consistent or --integers."


class ApprovalError(BundleError):
    """A release is not approved, or not by whom the ledger lets approve."""

    exit_code = 56
    next_step = "'statpress review' lists what waits for a decision."


class RereleaseError(BundleError):
    """A bundle cannot be released anew in the way that was asked."""

    exit_code = 57
    next_step = "Release a changed config with 'statpress rerelease --revise', or anew with 'run'."


class DependencyError(StatpressError):
    """An optional dependency is not installed."""

    exit_code = 60


class OrchestratorError(StatpressError):
    """The orchestrator could not run the flow."""

    exit_code = 61
    next_step = "Check PREFECT_API_URL and the server, or use --no-orchestrator."


class DeploymentError(StatpressError):
    """The work pools or deployments could not be put on a Prefect server."""

    exit_code = 63
    next_step = "Check PREFECT_API_URL and the server, then run 'statpress deploy' again."


class ConfirmationError(StatpressError):
    """A step that costs budget was not confirmed."""

    exit_code = 62
    next_step = "Answer yes, or give --yes in a script."


def exit_codes() -> dict[str, int]:
    """Names of all concrete kinds and their exit codes, ascending by code."""

    def below(kind: type[StatpressError]) -> list[type[StatpressError]]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in below(child))]

    kinds = {kind for kind in below(StatpressError) if kind is not StatpressError}
    named = {kind.__name__: kind.exit_code for kind in kinds}
    return dict(sorted(named.items(), key=lambda item: (item[1], item[0])))
