"""What mechanisms for counts of cells offer, and the kinds of product that they serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.mechanism import (
    MOST_NOISE,
    ExpectedError,
    Kind,
    Mechanism,
    Needs,
    NoiseFigure,
    Target,
    Variant,
)
from statpress.mechanisms.postprocessing.covariance import Covariance, DebiasedTable
from statpress.mechanisms.sampling.randomness import Progress, Randomness
from statpress.mechanisms.tables import bands
from statpress.mechanisms.tables.bands import BandKnobs
from statpress.mechanisms.tables.expected import (
    ExpectedCounts,
    ExpectedRecords,
    pair_total_variation,
)


class RawTable(Protocol):
    """What a private step gives back: integers by cell, public from then on."""

    @property
    def domain(self) -> Domain:
        """The release's domain."""

    @property
    def cells(self) -> Codes:
        """int64[K], ascending: the listed cells."""

    @property
    def counts(self) -> Codes:
        """int64[K]: drawn or noisy counts."""

    def figures(self) -> Mapping[str, Codes]:
        """The columns int64[K] of ``Mechanism.raw``, of which ``raw`` are the counts."""


PAIRS: Literal["pair_total_variation"] = "pair_total_variation"
"""What decides between mechanisms for microdata."""

Criterion = Literal["total_variation", "kolmogorov_smirnov", "cell_sd"]
RecordsCriterion = Literal[
    "pair_total_variation", "total_variation", "kolmogorov_smirnov", "cell_sd"
]


@dataclass(frozen=True, kw_only=True)
class AutoKnobs:
    """What a config may say of a table where it leaves the mechanism open.

    Attributes:
        minimise: The expected error that decides: ``total_variation`` of the projected
            counts, ``kolmogorov_smirnov`` for ordered cells, or ``cell_sd``, the
            standard deviation of an average cell's estimate.
    """

    minimise: Criterion = "total_variation"


@dataclass(frozen=True, kw_only=True)
class AutoRecordsKnobs:
    """What a config may say of microdata where it leaves the mechanism open.

    Attributes:
        minimise: As for a table, or ``pair_total_variation``, that of the records' tables of
            two columns, on average (mechanisms.tables.expected).
    """

    minimise: RecordsCriterion = PAIRS


class CountsKind(Kind):
    """Microdata or tables: what their mechanisms give are counts of cells.

    A mechanism with ``named_only`` is compared only where a product names it: others cannot do
    what it is for.
    """

    left_open: type = AutoKnobs
    may_omit = True
    criteria: Mapping[str, str] = MappingProxyType(
        {
            "cell_sd": "sd of a cell, average",
            "total_variation": "total variation, projected",
            "kolmogorov_smirnov": "KS distance",
        }
    )
    compared: Mapping[str, str] = MappingProxyType(
        {
            "cell_sd_average": "expected sd of a cell, average",
            "projected_total_variation": "expected total variation, projected",
            "kolmogorov_smirnov": "expected KS distance",
        }
    )

    def __init__(self, name: str) -> None:
        self.name = name

    def criterion(self, knobs: Any) -> str:
        minimise: str = getattr(knobs, "minimise", self.left_open().minimise)
        return minimise

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        for mechanism in serving:
            if not getattr(mechanism, "named_only", False):
                yield mechanism.name, mechanism, mechanism.knobs()
            elif isinstance(knobs, mechanism.knobs):  # of a product that names it
                yield mechanism.name, mechanism, knobs

    def draws(self, mechanism: Any, n_cells: int) -> int:
        return int(mechanism.drawn_records or mechanism.rows(n_cells=n_cells))

    def objection(self, mechanism: Any, target: Target) -> str:
        if mechanism.unbiased:
            return ""
        return "Its estimates are biased, by an amount that depends on the data."

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """The table's own error; none of what is drawn by its distance to the data.

        How far that is off depends on the data, which no reference shape stands for.
        """
        del target
        name = "projected_total_variation"
        if not (mechanism.unbiased or error.uniform_share):
            return None
        return NoiseFigure(self.compared[name], min(getattr(error, name), 1.0))

    def largest_noise(self, error: Any) -> float | None:
        # Of marginals only an average is known; where it is that small, epsilon is above 10.
        sd: float | None = getattr(error, "cell_sd_most", None)
        return sd

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        yield from error.rows()
        if not mechanism.unbiased:
            yield "bias of the estimates", "depends on the data, and comes on top"


class MicrodataKind(CountsKind):
    """Records, of which tables will be made."""

    left_open: type = AutoRecordsKnobs
    criteria = MappingProxyType({PAIRS: "total variation of pairs", **CountsKind.criteria})
    compared = MappingProxyType(
        {PAIRS: "expected total variation of pairs of columns", **CountsKind.compared}
    )

    def check(self, knobs: Any, target: Target) -> None:
        del knobs
        columns = target.domain.columns if target.domain else ()
        for column in columns:
            if column.size == 1 and len(columns) > 1:
                raise ConfigError(
                    f"The column '{column.name}' has only one cell, and so nothing to release.",
                    where=column.name,
                    next_step="Leave it out; readers can add it.",
                )

    def objection(self, mechanism: Any, target: Target) -> str:
        records = mechanism.drawn_records
        reason = super().objection(mechanism, target)
        if reason or records is None or records >= target.n_records:
            return reason
        return f"It publishes fewer records than there are: {records:,}, not {target.n_records:,}."

    def expected_error(self, mechanism: Any, target: Target) -> ExpectedError:
        error = super().expected_error(mechanism, target)
        if not isinstance(error, ExpectedCounts):  # the mechanism states pairs itself
            return error
        pairs = pair_total_variation(mechanism, error.uniform_share, target)
        return ExpectedRecords(**vars(error), pair_total_variation=pairs)

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        yield from super().error_rows(mechanism, error)
        if placed_by := getattr(mechanism, "placed_by", None):
            told = f"by the tables of '{placed_by.product}', at no further cost; copies have none"
            yield f"{placed_by.column.name} of a record", told

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """The error of the records' tables of two columns, as microdata are read.

        Simulated anew only where the mechanism is named and adds noise: then, as no table errs
        by more than the one that it is a margin of, only if that errs by too much.
        """
        pairs = getattr(error, PAIRS, None)
        if pairs is None:
            own = super().noise_figure(mechanism, error, target)
            columns = len(target.domain.columns) if target.domain else len(target.shape)
            if own is None or not mechanism.unbiased:
                return own
            if mechanism.drawn_records or (own.value > MOST_NOISE and columns > 2):
                pairs = pair_total_variation(mechanism, error.uniform_share, target)
            if pairs is None:
                return own
        return NoiseFigure(self.compared[PAIRS], min(pairs, 1.0))


class TableKind(CountsKind):
    """Counts of cells, with confidence bands if they are asked for."""

    further = BandKnobs

    def check_knobs(self, knobs: Any) -> None:
        if getattr(knobs, "copies", None) is not None:
            raise ConfigError(
                "Copies are of records, and a table has none.",
                where="copies",
                next_step="Leave out 'copies', or publish 'kind: microdata'.",
            )

    def check_further(self, further: BandKnobs, domain: Domain, nulls: bool) -> None:
        further.check_columns(domain.columns, nulls)
        if further.bands and domain.absent:
            raise ConfigError(
                "Bands are for units of one record: several of a unit are no independent draws.",
                where="bands",
                next_step="Leave out 'bands'.",
            )

    def check_served(self, further: BandKnobs, mechanism: Any, target: Target) -> None:
        if further.bands and target.adjacency is not Adjacency.REPLACE_ONE:
            raise ConfigError(
                "Bands are limits for a public number of records, which is private here.",
                where="bands",
                next_step="Leave out 'bands'.",
            )
        if further.bands:
            bands.check_served(further, mechanism, target)

    def with_further(self, error: Any, further: BandKnobs, mechanism: Any, target: Target) -> Any:
        return bands.expected(error, further, mechanism, target) if further.bands else error


MICRODATA = MicrodataKind("microdata")
TABLE = TableKind("table")


class TableMechanism(Mechanism, Protocol):
    """A mechanism for tables of counts and microdata: a subclass, a frozen dataclass.

    The fields of a subclass are its parameters. ``unbiased`` says that the estimates of
    ``postprocess`` are right on average, whatever the data (one whose are not has a covariance
    with an ``objection``, a sentence that refining gives as its reason); ``raw`` names the columns
    that its tables publish as they were drawn, and that ``postprocess`` needs no more than. It has
    confidence bands if it has a method ``band_law`` (mechanisms.tables.bands).
    """

    kinds: ClassVar[tuple[Kind, ...]] = (MICRODATA, TABLE)
    needs: ClassVar[Needs] = "joint"
    pure: ClassVar[bool] = False
    raw: ClassVar[tuple[str, ...]] = ("raw",)

    @property
    def unbiased(self) -> bool:
        """Whether the estimates are unbiased."""

    @property
    def drawn_records(self) -> int | None:
        """How many records are drawn; None if every cell gets a noisy count."""
        return None

    def rows(self, *, n_cells: int) -> int:
        """Most cells that a release can list: all of them, or those that were drawn."""
        return n_cells if self.drawn_records is None else min(self.drawn_records, n_cells)

    def release(
        self,
        table: ContingencyTable,
        rng: Randomness,
        progress: Progress | None = None,
    ) -> RawTable:
        """The private step."""
        ...

    def postprocess(self, release: Any, *, n_records: int) -> DebiasedTable:
        """Estimates from a release; costs no budget."""
        ...

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """How the errors of the estimates vary together; stated from the parameters alone."""
        ...

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Expected error from public quantities only."""
        ...

    def describe(self) -> dict[str, str | int]:
        """The parameters that are given, whole numbers as such and all others as text."""
        parameters: Any = self
        described: dict[str, str | int] = {"mechanism": self.name}
        for field in fields(parameters):
            value = getattr(self, field.name)
            if value is not None:
                text = f"{value:f}" if isinstance(value, Decimal) else str(value)
                described[field.name] = value if isinstance(value, int) else text
        return described

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """The mechanism of a description, each parameter read as its field's type says.

        Raises:
            KeyError: A parameter that cannot be None is missing.
        """
        described: Any = cls
        values = {}
        for field in fields(described):
            kind, _, optional = str(field.type).partition(" | ")
            if field.name in description or not optional:
                read = _READERS.get(kind, str)
                values[field.name] = read(str(description[field.name]))
        mechanism: Self = described(**values)
        return mechanism


_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "Fraction": Fraction,
    "Decimal": Decimal,
    "Adjacency": Adjacency,
}


class DrawnRecords(TableMechanism, Protocol):
    """A mechanism that draws a number of records, given by a field ``records``."""

    records: int

    @property
    def drawn_records(self) -> int:
        """How many records are drawn."""
        return self.records
