"""Every error that statpress raises on purpose, grouped by who can fix it.

Each class is one kind of failure with an exit code of its own, and ends with the next step. A
message may hold what the config says, and never anything from the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar


class StatpressError(Exception):
    """Base of all errors, whose messages are fit for the public zone.

    Args:
        what: What is wrong, one sentence.
        where: Place: file, line and column, field, dataset or path.
        next_step: What the reader can do about it.

    Attributes:
        also: Further errors found at the same time; this one is raised for all of them.
    """

    also: tuple[StatpressError, ...] = ()
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
        return "\n".join((f"{place}{self.what} {self.next_step}".strip(), *map(str, self.also)))

    @classmethod
    def exit_codes(cls) -> dict[str, int]:
        """Exit codes of all errors of this kind by class name, ascending by code."""
        kinds, left = [], [cls]
        while left:
            children = left.pop().__subclasses__()
            kinds += children
            left += children
        codes = {kind.__name__: kind.exit_code for kind in kinds}
        return dict(sorted(codes.items(), key=lambda item: (item[1], item[0])))


E = TypeVar("E", bound=StatpressError)


def together(errors: Sequence[E]) -> E:
    """The first of several errors, with the others in its attribute ``also``."""
    first, *others = errors
    rest: list[StatpressError] = []
    for other in others:
        rest += [other, *other.also]
        other.also = ()
    first.also = (*first.also, *rest)
    first.args = (str(first),)
    return first


# Internal: report it with the incident id.


class InternalError(StatpressError):
    """Something unforeseen; its detail is only in the curator log."""


# Config: its author can fix it.


class ConfigError(StatpressError):
    """A value in the config is not usable."""

    exit_code = 10
    next_step = "Fix this field and run 'statpress validate'."


class ConfigNotFoundError(ConfigError):
    """The config file is missing or cannot be read."""

    exit_code = 11
    next_step = "Check the path of the config."


class YamlError(ConfigError):
    """The file is not YAML, or uses a part of YAML that a config may not."""

    exit_code = 12
    next_step = "Fix the YAML at this place."


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
    """An epsilon, delta or share that is not a valid amount."""

    exit_code = 16
    next_step = "Give epsilon > 0, 0 <= delta < 1, and shares that sum to 1."


class RecordsError(ConfigError):
    """A number of records, or a pseudocount, that is not positive."""

    exit_code = 17
    next_step = "Give a number in that range."


class MostlyNoiseError(ConfigError):
    """A product that would be mostly noise, which the config does not accept."""

    exit_code = 19
    next_step = (
        "Raise its budget or share, or give it fewer columns or cells; or write "
        "'accept: mostly_noise' with the product. Nothing was charged."
    )


class MostlyIndependentError(ConfigError):
    """Records that would lose typical relations of columns, which the config does not accept."""

    exit_code = 27
    next_step = (
        "Raise its budget or share, give it fewer columns or cells, or name the 'pairs' that "
        "matter; or write 'accept: mostly_independent' with the product. Nothing was charged."
    )


class PeriodError(ConfigError):
    """A period of a series that is not released now, by its calendar or by the ledger."""

    exit_code = 28
    next_step = "'statpress plan CONFIG' says which period is next. Nothing was charged."


class DomainTooLargeError(ConfigError):
    """More cells than a joint table, or the tables to measure, may have."""

    exit_code = 18
    next_step = "Leave a column out, use fewer cells in the largest, or choose another mechanism."


class DescriptionError(ConfigError):
    """A file that should describe columns does not, or is a data file."""

    exit_code = 64
    next_step = (
        "Give a datapackage.json, a Table Schema, CSVW metadata, a DDI Codebook, or a CSV with the "
        "columns name and type."
    )


class MemoryLimitError(ConfigError):
    """A plan that may need more memory than the config declares."""

    exit_code = 69
    next_step = "Raise resources.memory. Nothing was charged."


# Audit: whoever looks after the mechanisms can fix it.


class AuditError(StatpressError):
    """An audit on made-up data found more than a mechanism claims to give away."""

    exit_code = 72
    next_step = "Release nothing with it, and report it as SECURITY.md asks."


# Budget: its steward can fix it.


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
    next_step = (
        "Register it once, with the budget of its whole life: 'statpress plan CONFIG' prints the "
        "command."
    )


class AlreadyRegisteredError(BudgetError):
    """The ledger already has an account of this name."""

    exit_code = 24
    next_step = "Use the account; 'statpress ledger show' prints its terms and what remains."


class RefusalLimitError(BudgetError):
    """Gates stopped as many runs of the dataset as may be without a look into them."""

    exit_code = 26
    next_step = "Look into the refusals, then reopen the dataset with 'statpress ledger amend'."


class PolicyMismatchError(BudgetError):
    """Unit, adjacency or size differ from what the dataset was registered with."""

    exit_code = 25
    next_step = "Make the config agree with 'statpress ledger show'."


# Ledger: its keeper can fix it.


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


class ExposedLedgerError(LedgerError):
    """Every user of the machine can write to the ledger, or to the home that guards it."""

    exit_code = 39
    next_step = "Take the right away with 'chmod o-w', and run 'statpress ledger verify'."


# Installation and orchestration: whoever runs the press can fix it.


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


class WorkerError(StatpressError):
    """A process that draws products ended, or cannot do its part."""

    exit_code = 68
    next_step = "Run again with other workers, or without: --workers 1."


class OutOfMemoryError(StatpressError):
    """A step needed more memory, or more room to spill, than it may use or the machine has."""

    exit_code = 76
    next_step = (
        "Raise resources.memory, lower resources.threads, or free memory and space in the home's"
        " work folder; 'statpress plan' says which step may need most."
    )


class CheckupError(StatpressError):
    """Something in the installation needs attention."""

    exit_code = 73
    next_step = "'statpress doctor', as the user and with the home of the worker, says what to do."


class UnwrittenResultError(StatpressError):
    """A command has done its work, but standard output does not take its result."""

    exit_code = 71
    next_step = "Do not repeat a release for this: 'statpress ledger show' says what was charged."


# Bundle: whoever publishes or reads it can fix it.


class BundleError(StatpressError):
    """Base of what is wrong with the output."""

    exit_code = 50


class OutputNotWritableError(BundleError):
    """The publishing directory cannot be written."""

    exit_code = 51
    next_step = "Choose another publish.directory, or fix its permissions or free space."


class BundleExistsError(BundleError):
    """A bundle of that name is already there."""

    exit_code = 52
    next_step = "Choose another publish.name; bundles are never overwritten."


class BundleVerificationError(BundleError):
    """A bundle differs from its manifest."""

    exit_code = 53
    next_step = "Do not use this bundle; fetch it again from the publisher."


class RehearsalError(BundleVerificationError):
    """A rehearsal, made of made-up data, is given where a release belongs."""

    exit_code = 75
    next_step = "Press a release with 'statpress run'; of a rehearsal nothing can be published."


class ReleaseGateError(BundleError):
    """The drawn release does not agree with its own plan; nothing was published."""

    exit_code = 54
    next_step = "The budget stays spent; report this with the incident id."


class RefinementError(BundleError):
    """A bundle's tables cannot be refined as asked."""

    exit_code = 55
    next_step = "Name other products with --products, or leave out --consistent or --integers."


class ApprovalError(BundleError):
    """A release is not approved, or not by whom the ledger lets approve."""

    exit_code = 56
    next_step = "'statpress review' lists what waits for a decision."


class RereleaseError(BundleError):
    """A bundle cannot be released again as asked."""

    exit_code = 57
    next_step = "Release a changed config with 'statpress rerelease --revise', or anew with 'run'."


class QueryError(BundleError):
    """A question to a bundle that it cannot answer."""

    exit_code = 58
    next_step = "Ask for columns and values that the bundle's codebook lists."


class NotMeasuredError(QueryError):
    """A question about columns of which a release measured no table together."""

    exit_code = 59
    next_step = "Ask about columns that were measured together; data/PRODUCT_pairs lists them."


class SignatureError(BundleError):
    """A bundle is not signed by any of the keys that were given."""

    exit_code = 65
    next_step = "Ask its publisher, by another way than the bundle came, which key is theirs."


class BundleFetchError(BundleError):
    """A bundle on a web server cannot be fetched, so nothing is known of it."""

    exit_code = 66
    next_step = "Try again, or download the bundle and verify the folder."


class UploadError(BundleError):
    """A target did not take a published bundle; the release stands, and its budget is spent."""

    exit_code = 67
    next_step = "Put the target in order, then run 'statpress upload BUNDLE'."


# Source: the keeper of the data can fix it.


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
    next_step = "Check that the file is complete and of the declared format."


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


class NoisyGateError(QualityGateError):
    """A quality check with noise, which the budget paid for, stopped the run."""

    exit_code = 74


class SourceUnavailableError(SourceError):
    """The server of the source cannot be reached, or its connection broke."""

    exit_code = 47
    next_step = "Nothing was charged: see that the server runs and can be reached, then run again."


class SourceAccessError(SourceError):
    """There are no credentials for the source, or they lack a right."""

    exit_code = 48
    next_step = "Check source.credentials, and what the role may do."


class SourceChangedError(SourceError):
    """The source was changed while it was read."""

    exit_code = 49
    next_step = "Nothing was charged: run again when nobody writes to it."
