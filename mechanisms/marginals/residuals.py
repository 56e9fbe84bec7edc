"""What the private steps released, combined by residuals; and answers with intervals from them.

All of it is public. The residual of a table on a group t of columns is the table with all other
axes summed out and every axis of t centred. Residuals of different groups are orthogonal, and
together they are the table: with K the product of the sizes of columns,

    x_Q = sum over t within Q of R_t / K(Q without t).

A table measured on c with independent noise of variance s^2 in every cell gives, for every t
within c, an unbiased R_t whose noise is that of independent cells of variance s^2 K(c without t),
centred; the noises of different t are uncorrelated. So the best combination of all tables takes
each R_t by inverse variances, and for a linear query u of x_Q

    Var = sum over t of v_t |C_t u_t|^2 / K(Q without t)^2,

where u_t sums u over the columns outside t, C_t centres every axis and 1/v_t is the sum of
1/(s_c^2 K(c without t)) over the tables c that hold t. For one cell |C_t u_t|^2 is the product
of 1 - 1/k over t. The empty residual is the number of records: known, or estimated likewise.

Source: Xiao, He, Zhang and Kifer 2023, arXiv 2305.08175, who choose what to measure by it.

**Answers** come from the measurements and never from the records. Their noise is a sum of discrete
normal variables with known variances, so the intervals are exact
up to the grid where the amounts of the steps did not depend on noise; where scores chose the
pairs, they hold given that choice. Intervals for a population of which the records are a sample are
those of statpress.mechanisms.marginals.population: they hold with the stated probability or more.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, NotMeasuredError
from statpress.mechanisms.marginals.target_tables import Floats, Group
from statpress.mechanisms.sampling.randomness import scale_for

if TYPE_CHECKING:
    from statpress.mechanisms.marginals.population import Sample
    from statpress.mechanisms.marginals.prior import Prior

GRID = 2**20
"""Grid steps to a count."""
MOST_RECORDS = 2**40
"""Records whose counts, with noise, stay within 64 bits on the grid."""
NOT_TOGETHER = "No measured table holds these columns together."
"""What is said where there is no answer."""


def scale_of(sensitivity_squared: int, amount: Fraction) -> Fraction:
    """Scale in grid steps of noise that spends at most an amount of mu^2."""
    return scale_for(sensitivity_squared * GRID**2 / amount)


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A table as it was drawn; public.

    Attributes:
        group: Positions of its columns.
        scale: Of the discrete Gaussian noise, in grid steps.
        values: int64 of the shape of the columns' sizes: grid steps.
    """

    group: Group
    scale: Fraction
    values: NDArray[np.int64]

    @property
    def counts(self) -> Floats:
        """Noisy counts, in records."""
        return self.values / GRID

    @property
    def variance(self) -> float:
        """Variance of the noise of a count, in squared records."""
        return float(self.scale / GRID) ** 2


@dataclass(frozen=True, eq=False)
class NoisyScores:
    """Distances of pairs from public tables as they were drawn; public.

    Attributes:
        pairs: Positions of their columns.
        scale: Of the discrete Gaussian noise, in grid steps.
        values: int64[P]: grid steps.
    """

    pairs: tuple[Group, ...]
    scale: Fraction
    values: NDArray[np.int64]

    @property
    def distances(self) -> Floats:
        """Noisy L1 distances float64[P], in records."""
        return self.values / GRID

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in records."""
        return float(self.scale / GRID)


@dataclass(frozen=True, eq=False)
class NoisySum:
    """A noisy sum over the records of a number that each has by its code in a column; public.

    Attributes:
        column: Position of the column.
        weights: float64[k]: the number of each code.
        value: The noisy sum; unbiased.
        variance: Of its noise, without the sampling of records.
    """

    column: int
    weights: Floats
    value: float
    variance: float


@dataclass(frozen=True, eq=False)
class Residuals:
    """The combined residuals of all measured groups and their subgroups.

    Attributes:
        sizes: Number of codes of every column.
        values: By group the residual, of the shape of its columns.
        variances: By group the variance v_t before centring; 0 of what is known exactly.
    """

    sizes: tuple[int, ...]
    values: Mapping[Group, Floats]
    variances: Mapping[Group, float]

    def holds(self, group: Group) -> bool:
        """Whether these columns were measured together, or their table is known."""
        return group in self.values

    def table(self, group: Group) -> Floats:
        """The estimate of a marginal, in records; unbiased, so cells may be negative."""
        total = np.zeros([self.sizes[column] for column in group])
        for part in subgroups(group):
            self._check(part)
            total += self._spread(part, group) / self._cells_without(group, part)
        return total

    def table_variance(self, group: Group) -> float:
        """Variance of one cell of ``table``, in squared records; the same for all cells."""
        variance = 0.0
        for part in subgroups(group):
            self._check(part)
            lost = math.prod(1 - 1 / self.sizes[column] for column in part)
            variance += self.variances[part] * lost / self._cells_without(group, part) ** 2
        return variance

    def weights_by_part(self, group: Group, weights: Floats) -> dict[Group, tuple[Floats, int]]:
        """What the sum of weights times the cells of ``table`` takes of every residual.

        Per residual its weights, and by what they are to be divided.
        """
        found = {}
        for part in subgroups(group):
            self._check(part)
            others = tuple(i for i, column in enumerate(group) if column not in part)
            found[part] = centred(weights.sum(axis=others)), self._cells_without(group, part)
        return found

    def query_variance(self, group: Group, weights: Floats) -> float:
        """Variance of the sum of weights times the cells of ``table``."""
        variance = 0.0
        for part, (rest, cells) in self.weights_by_part(group, weights).items():
            variance += self.variances[part] * float((rest**2).sum()) / cells**2
        return variance

    @property
    def unit_records(self) -> int:
        """Most records of a unit."""
        return 1

    @property
    def sampled_by(self) -> str:
        """How sampling variances are made where they are not those of single records."""
        return ""

    def products(self, group: Group, rows: Floats) -> Floats:
        """Sums float64[m, m] over the units of the products of two of m totals.

        A unit's total is the sum over its records of the weights float64[m, ..] of their cells,
        here of its one record.
        """
        return products_over(self.table(group), rows)

    def present(self, n_records: int | None) -> float:
        """The number of present records, within its range; of that an end may be private."""
        most = math.inf if n_records is None else float(n_records)
        return min(max(float(self.values[()]), 1.0), most)

    def _check(self, part: Group) -> None:
        if part not in self.values:
            raise NotMeasuredError(NOT_TOGETHER)

    def _cells_without(self, group: Group, part: Group) -> int:
        return math.prod(self.sizes[column] for column in group if column not in part)

    def _spread(self, part: Group, group: Group) -> Floats:
        shape = [self.sizes[column] if column in part else 1 for column in group]
        return self.values[part].reshape(shape)


def combine(
    sizes: Sequence[int],
    tables: Sequence[NoisyTable],
    *,
    n_present: int | None,
    known: Mapping[Group, NDArray[np.int64]] | None = None,
) -> Residuals:
    """Residuals of all groups that are measured or known, and of their subgroups."""
    sums: dict[Group, Floats] = {}
    weights: dict[Group, float] = {}
    for table in tables:
        for part in subgroups(table.group):
            residual, cells = _residual(table.counts, table.group, part)
            weight = 1 / (table.variance * cells)
            sums[part] = sums.get(part, 0) + weight * residual
            weights[part] = weights.get(part, 0.0) + weight
    values = {part: total / weights[part] for part, total in sums.items()}
    variances = {part: 1 / weight for part, weight in weights.items()}
    for group, exact in (known or {}).items():
        for part in subgroups(group):
            values[part], variances[part] = _residual(exact.astype(np.float64), group, part)[0], 0.0
    if n_present is not None:
        values[()], variances[()] = np.array(float(n_present)), 0.0
    return Residuals(tuple(sizes), values, variances)


def subgroups(group: Group) -> list[Group]:
    """All subsets of a group, the empty one first."""
    lengths = range(len(group) + 1)
    return [part for length in lengths for part in itertools.combinations(group, length)]


def products_over(table: Floats, rows: Floats) -> Floats:
    """Sums float64[m, m] over the cells of a table of the products of two of m rows."""
    flat = rows.reshape(len(rows), -1)
    return np.asarray(flat * table.ravel() @ flat.T)


def centred(table: Floats) -> Floats:
    """The table with its mean along every axis taken off, one axis after the other."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _residual(table: Floats, group: Group, part: Group) -> tuple[Floats, int]:
    """The residual on a part of a table's group, and how many cells each entry sums."""
    others = tuple(i for i, column in enumerate(group) if column not in part)
    cells = math.prod(table.shape[i] for i in others)
    return centred(table.sum(axis=others)), cells


KnownTotals = Mapping[Group, NDArray[np.int64]]


class Placing(Protocol):
    """What gives places to records, by public tables of another product."""

    def whole(self, domain: Domain) -> Iterator[NoisyTable]:
        """Tables of single columns of a domain, to fit the records to before they have places."""

    def codes(self, domain: Domain, codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """int64[n]: the code of each record's place, given its codes in the columns of a domain."""


@dataclass(frozen=True, eq=False)
class NoisyMarginals:
    """Noisy tables and scores as they were drawn.

    Attributes:
        domain: The declared columns.
        n_records: Public number of records, absent ones included; None where it is private.
        one_way: Tables of single columns.
        scores: Distances of pairs from independence, if pairs were scored.
        tables: Tables of several columns.
        known: Public exact tables of one or two columns.
        beside: What other products of the release measured of the same columns. Records are
            fitted to it too; what is published of the tables does not depend on it.
        prior: What an earlier release says of the columns. Scores are distances from its pairs,
            and records are fitted with its help; no estimate depends on it.
        placing: What gives the records places, by what another product of the release measured.
    """

    domain: Domain
    n_records: int | None
    one_way: tuple[NoisyTable, ...]
    scores: NoisyScores | None
    tables: tuple[NoisyTable, ...]
    known: KnownTotals = field(default_factory=dict)
    beside: tuple[NoisyTable | NoisySum, ...] = ()
    prior: Prior | None = None
    placing: Placing | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of every column."""
        return tuple(column.size for column in self.domain.columns)

    def residuals(self) -> Residuals:
        """All tables combined, those of other products too."""
        beside = [table for table in self.beside if isinstance(table, NoisyTable)]
        return combine(
            self.sizes,
            [*self.one_way, *self.tables, *beside],
            n_present=self.n_present,
            known=self.known,
        )

    @property
    def n_present(self) -> int | None:
        """The number of present records where it is public; with absent ones it never is."""
        return None if self.domain.absent else self.n_records

    def public_generator(self) -> np.random.Generator:
        """A generator that depends on the release only, for its post-processing."""
        digest = hashlib.sha256(repr((self.sizes, self.n_records)).encode())
        for table in (*self.one_way, *self.tables):
            digest.update(repr((table.group, table.scale)).encode())
            digest.update(table.values.astype("<i8").tobytes())
        if self.scores is not None:
            digest.update(repr((self.scores.pairs, self.scores.scale)).encode())
            digest.update(self.scores.values.astype("<i8").tobytes())
        for group, exact in sorted(self.known.items()):
            digest.update(repr(group).encode())
            digest.update(exact.astype("<i8").tobytes())
        for each in self.beside:
            if isinstance(each, NoisyTable):
                digest.update(repr((each.group, each.scale)).encode())
                digest.update(each.values.astype("<i8").tobytes())
            else:
                digest.update(repr((each.column, each.value, each.variance)).encode())
                digest.update(each.weights.astype("<f8").tobytes())
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest(), "little")))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An unbiased estimate in records; it may be negative.

    Attributes:
        value: The estimate.
        standard_error: Of its noise, and of sampling if asked for, which it bounds for units of
            several records.
        lower: Lower end of the interval. That of a population of counts is not negative.
        upper: Upper end.
        confidence: Of the interval.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    confidence: float


def query(
    residuals: Residuals,
    columns: Sequence[int],
    weights: ArrayLike,
    *,
    confidence: float = 0.95,
    sample: Sample | None = None,
) -> Answer:
    """The sum of weights times the cells of a marginal.

    Args:
        residuals: ``NoisyMarginals.residuals()``.
        columns: Positions of the marginal's columns, in any order.
        weights: float64 of the shape of their sizes: 1 for the cells to add up.
        confidence: Of the interval, between 0 and 1.
        sample: The units, if they are a random sample of a population that the interval is to be
            for: for the expected sum over as many units.

    Raises:
        NotMeasuredError: No measured table holds these columns together.
        ConfigError: A column occurs twice or does not exist, the weights do not fit, or the
            confidence is not between 0 and 1.
    """
    from scipy.special import ndtri

    group, ordered = _ordered(residuals, columns, weights)
    if not 0 < confidence < 1:
        raise ConfigError("A confidence lies between 0 and 1.", where="confidence")
    value = float((residuals.table(group) * ordered).sum())
    variance = residuals.query_variance(group, ordered)
    if sample is None:
        reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance)
        lower, upper = value - reach, value + reach
    else:
        lower, upper = sample.limits(value, math.sqrt(variance), ordered, confidence)
        variance += sample.largest_variance(value, ordered)
    return Answer(
        value=value,
        standard_error=math.sqrt(variance),
        lower=lower,
        upper=upper,
        confidence=confidence,
    )


def table_with_errors(residuals: Residuals, group: Group) -> tuple[Floats, float]:
    """A marginal's unbiased estimates, in records, and the standard error of each cell."""
    return residuals.table(group), math.sqrt(residuals.table_variance(group))


def _ordered(
    residuals: Residuals, columns: Sequence[int], weights: ArrayLike
) -> tuple[Group, Floats]:
    """The group ascending, and the weights with their axes in that order."""
    given = np.asarray(weights, dtype=np.float64)
    if len(set(columns)) < len(columns) or not all(
        0 <= column < len(residuals.sizes) for column in columns
    ):
        raise ConfigError("Name existing columns, each once.", where="columns")
    if given.shape != tuple(residuals.sizes[column] for column in columns):
        raise ConfigError("There is one weight for each cell of the columns.", where="weights")
    if not np.isfinite(given).all():
        raise ConfigError("A weight is not a finite number.", where="weights")
    order = sorted(range(len(columns)), key=lambda i: columns[i])
    return tuple(columns[i] for i in order), given.transpose(order)
