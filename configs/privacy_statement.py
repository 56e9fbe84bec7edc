"""The form of ``privacy.json``, version 1: what a bundle states of its guarantee.

Later versions of statpress only add to it; a change of another kind is a new version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from statpress.mechanisms.domain.domain import Adjacency, Size

FORMAT = "statpress-privacy/1"
"""The version of the form."""

Amount = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
        description="An exact decimal, as text.",
    ),
]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=0)]


class Part(BaseModel):
    """A part of the statement; more may be added to it."""

    model_config = ConfigDict(extra="allow", frozen=True)


class LedgerEntry(Part):
    """The ledger's entry that charged the release."""

    sequence: int = Field(ge=1)
    hash: str = Field(pattern="^[0-9a-f]{64}$")


class CurvePoint(Part):
    """Proven bounds on delta at one epsilon: the smallest for which (epsilon, delta)-DP holds."""

    epsilon: Number
    delta_lower: Share
    delta_upper: Share


class TradeOff(Part):
    """What every attack misses at least that accuses wrongly at most this often."""

    false_positive_rate: Share = Field(
        description="How often the attack may decide for a candidate that is the wrong one."
    )
    false_negative_rate_at_least: Share = Field(
        description="Proven lower bound on how often it then misses the right one; rounded down."
    )


class Lifetime(Part):
    """What all releases of the dataset have spent, right after this one was charged.

    Of an account with a design: what they may have cost one person who takes part in the period.
    """

    dataset: str = Field(description="The account in the ledger.")
    policy: Literal["basic", "zcdp"] = Field(
        description="basic limits the sums of epsilon and delta, zcdp those of rho and rho_delta."
    )
    design: str | None = Field(
        default=None,
        description="In which periods a person takes part at most, such as 'any 8'; absent where "
        "all charges add up.",
    )
    design_in_words: str | None = None
    period: str | None = Field(
        default=None,
        description="That the data are of; absent where the release names none, which counts for "
        "everybody.",
    )
    limit: dict[str, Amount] = Field(description="By measure of the policy.")
    spent_before: dict[str, Amount] = Field(description="Without this release, by measure.")
    spent: dict[str, Amount] = Field(description="With this release, by measure.")
    remaining: dict[str, Amount] = Field(description="Limit less spent.")
    also_in: list[str] = Field(
        default_factory=list, description="Accounts that are about some of the same sources."
    )
    reason: str | None = Field(default=None, description="Why there are several.")


class Cited(Part):
    """A work that proves the guarantee of a mechanism, or a place in one."""

    work: str = Field(description="Authors, year and title.")
    part: str = Field(default="", description="Theorem, algorithm or section.")
    doi: str = Field(default="", pattern=r"^(10\.[0-9]{4,9}/\S+)?$")
    arxiv: str = Field(default="", pattern=r"^([0-9]{4}\.[0-9]{4,5})?$")


class Cost(Part):
    """A privacy loss in every measure."""

    epsilon: Amount
    delta: Amount
    rho: Amount = Field(description="Of zero-concentrated differential privacy.")
    rho_delta: Amount | None = Field(
        default=None, description="But for which rho holds; absent where it holds for the whole."
    )
    epsilon_lower: Number
    epsilon_upper: Number
    curve: list[CurvePoint] = Field(min_length=1)
    attack_advantage: Share = Field(
        description="The most that the rate of true positives of an attack can be above its rate "
        "of false positives; rounded up."
    )
    trade_off: list[TradeOff] = Field(min_length=1)


class StatedProduct(Cost):
    """A product: its cost if it were released alone, and the parameters of its mechanism."""

    kind: str
    mechanism: str
    columns: list[str]
    n_records: int = Field(ge=1)
    n_cells: str = Field(pattern="^[0-9]+$", description="Of its domain; may be a large number.")
    unit_records: int = Field(ge=1)
    estimated_records: int | None = Field(default=None, ge=1, description="As of the release.")
    per: str | None = Field(
        default=None,
        description="Of an estimate or a function of units that may have several records: whether "
        "each record or each unit counts one. A unit's loss is then that of one record.",
    )
    expected_error: dict[str, Any] = Field(description="From public quantities only.")
    verdict: dict[str, Any]
    rho_rule: str | None = Field(
        default=None,
        description="Of draws whose rho holds but for rho_delta, which number is large with that "
        "probability: net_steps (of the loss) or moved_draws (to cells that differ). Earlier "
        "versions do not state it; theirs is moved_draws.",
    )
    chosen: str | None = Field(
        default=None, description="Why the mechanism, if the config left that open."
    )
    workload: list[dict[str, Any]] | None = Field(
        default=None,
        description="Of records by marginals: the tables of several columns that matter, by names "
        "of columns, with their weights, and whose columns they are; absent where all pairs count "
        "alike.",
    )


class StatedChecks(Part):
    """Noisy checks of the input: what they would cost alone, and their parameters."""

    mechanism: str
    epsilon: Amount
    delta: Amount
    rho: Amount
    n_records: int = Field(ge=1)
    unit_records: int = Field(ge=1)
    attack_advantage: Share
    expected_error: dict[str, Any] = Field(description="From public quantities only.")


class PrivacyStatement(Cost):
    """What the release of a bundle reveals at most, with what is needed to recompute it."""

    format: Literal["statpress-privacy/1"]
    publishable: bool = Field(description="False if the randomness came from a known seed.")
    ledger_entry: LedgerEntry
    adjacency: Adjacency = Field(
        description="Under replace_one neighbours have the same public size and differ in one unit;"
        " under add_remove one of them has a unit more."
    )
    unit: str = Field(
        description="'record', 'household' (with all its persons), or 'column NAME' of the "
        "column that names the unit."
    )
    unit_in_words: str
    n_units: int = Field(ge=1)
    unit_records: int = Field(ge=1, description="Records of one unit that are used, at most.")
    n_records: int = Field(ge=1)
    size: Size | None = Field(
        default=None,
        description="Where the size comes from; absent where the config declares it. The counted "
        "size of a source is public, and exact. A rough one is what the release was planned for.",
    )
    estimated_records: int | None = Field(
        default=None,
        ge=1,
        description="Under add_remove: the number of records, those that units lack included, from "
        "the noisy counts of all products.",
    )
    estimated_records_sd: float | None = Field(
        default=None, description="Standard deviation of the noise of that number."
    )
    source: str | None = Field(
        default=None, description="What kind of source the records were counted from."
    )
    composition: str
    meaning: str = Field(description="attack_advantage in words.")
    explanations: dict[str, str] = Field(description="What the figures of these names are.")
    citations: dict[str, list[Cited]] = Field(description="By mechanism.")
    not_covered: list[str] = Field(min_length=1, description="Sentences.")
    outside_the_guarantee: str = Field(description="The same as one text.")
    lifetime: Lifetime
    warnings: list[str]
    checks: StatedChecks | None = Field(
        default=None, description="Of the input, where they are noisy; absent where they are exact."
    )
    products: dict[str, StatedProduct]
