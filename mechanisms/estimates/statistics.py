"""The statistics of estimates: what each says of itself, by name.

A *bounded* statistic is one of records in [0, 1] whose move under a replacement is known at every
size. Each has **sensitivity c/m on m records**: if one of the m records is replaced, the statistic
moves by at most c/m (in Euclidean length). Columns are scaled to [0, 1] by declared bounds
first. With r the mean of the other m - 1 records, a and b the old and new value:

* mean: (a - b)/m, so c = 1. A proportion is the mean of an indicator, a count or a sum n times
  a mean.
* variance (with m - 1): the variance of the others times (m - 2)/(m - 1) plus (a - r)^2/m, so
  it moves by |(a - r)^2 - (b - r)^2|/m, and c = 1 since both squares are in [0, 1].
* covariance (with m - 1): likewise by |(a - r)(a' - r') - (b - r)(b' - r')|/m. For r, r' in
  [0, 1] such products lie between -max(r(1-r'), (1-r)r') and max(rr', (1-r)(1-r')), whose
  distance is one of r, r', 1-r, 1-r': c = 1.

A user-defined statistic is any object of this protocol. What it declares is believed, so
``largest_move`` searches for neighbours that belie it; run it before the first release. It may
also declare ``unbiased = True``: its mean over all subsets of a size is its value on all records,
as for means, and for variances and covariances with m - 1.

Of a regression the first column is the response and the second the predictor. For a response
ly + Ry y and a predictor lx + Rx x, with b the slope of y on x, the line is at the predictor 0
where x = -lx/Rx: the intercept is ly + Ry (E y - b (E x + lx/Rx)).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates import moment_designs
from statpress.mechanisms.estimates.fieller import Floats
from statpress.mechanisms.estimates.moment_designs import (
    PAIR,
    RATIO,
    SLOPE,
    SOME,
    Derived,
    Means,
    MomentDesign,
)

Weights = NDArray[np.int64]
_BLOCK = 1 << 16


class Statistic(Protocol):
    """A function of weighted records with a declared sensitivity."""

    @property
    def columns(self) -> int:
        """How many columns it takes."""

    @property
    def dimension(self) -> int:
        """How many numbers it gives."""

    @property
    def constant(self) -> Fraction:
        """The c of its sensitivity c/m on any m >= 2 records, see ``evaluated``."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which each number lies; what does not is clipped."""

    def evaluate(self, weights: Weights, columns: Floats) -> Floats:
        """The statistic of several weightings of the same cells.

        Args:
            weights: int64[B, k], records per cell; all rows have the same sum m >= 2.
            columns: float64[k, columns], values in [0, 1] of each cell.

        Returns:
            float64[B, dimension].
        """


@dataclass(frozen=True)
class Mean:
    """The mean of one column."""

    columns: int = 1
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (0.0, 1.0)
    unbiased: bool = True

    def evaluate(self, weights: Weights, columns: Floats) -> Floats:
        return np.asarray(_sums(weights, columns[:, 0]) / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Covariance:
    """The covariance of two columns, with m - 1."""

    columns: int = 2
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (-1.0, 1.0)
    unbiased: bool = True

    def evaluate(self, weights: Weights, columns: Floats) -> Floats:
        x, y = columns[:, 0] - 0.5, columns[:, 1] - 0.5
        m = weights.sum(axis=1)
        sums = _sums(weights, x, y, x * y)
        product = sums[:, 2] - sums[:, 0] * sums[:, 1] / m
        return np.asarray(product / (m - 1), np.float64)[:, None]


@dataclass(frozen=True)
class Variance:
    """The variance of one column, with m - 1."""

    columns: int = 1
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (0.0, 1.0)
    unbiased: bool = True

    def evaluate(self, weights: Weights, columns: Floats) -> Floats:
        return Covariance().evaluate(weights, np.repeat(columns[:, :1], 2, axis=1))


def is_unbiased(statistic: Statistic) -> bool:
    """Whether it declares that its mean over all subsets of a size is its value on all records."""
    return getattr(statistic, "unbiased", False) is True


def _sums(weights: Weights, *columns: Floats) -> Floats:
    """Weighted sums float64[B, c] of c columns, by blocks of cells that stay in the cache.

    BLAS would share few long rows among threads that wait for one another.
    """
    sums = np.zeros((len(weights), len(columns)))
    step = 1 + _BLOCK // max(len(weights), 1)
    for start in range(0, weights.shape[1], step):
        part = slice(start, start + step)
        values = np.stack([column[part] for column in columns])
        sums += np.einsum("bk,ck->bc", weights[:, part].astype(np.float64), values)
    return sums


def evaluated(statistic: Statistic, weights: Weights, columns: Floats) -> Floats:
    """The statistic, clipped to its bounds; what is not a number becomes the lower one.

    So does what fails, each row by itself: no value of private records can stop a release.
    Clipping cannot enlarge a move; the lower bound in place of a value could, so it is of the
    statistic completed in this way that the declared sensitivity must hold. The statistic cannot
    write to what it is given, which the next evaluation is given too.
    """
    low, high = statistic.bounds
    given = weights.view(), columns.view()
    for array in given:
        array.flags.writeable = False
    try:
        values = np.asarray(statistic.evaluate(*given), np.float64)
    except Exception:
        values = np.concatenate([_of_row(statistic, row[None, :], given[1]) for row in given[0]])
    if values.shape != (len(weights), statistic.dimension):
        raise ConfigError("The statistic does not give an array of its declared dimension.")
    return np.clip(np.where(np.isfinite(values), values, low), low, high)


def _of_row(statistic: Statistic, row: Weights, columns: Floats) -> Floats:
    """The statistic of one row of weights; NaN if it fails."""
    try:
        return np.asarray(statistic.evaluate(row, columns), np.float64)
    except Exception:
        return np.full((1, statistic.dimension), np.nan)


class Span(Protocol):
    """The declared range of a column, in its own units."""

    @property
    def lower(self) -> float:
        """What is scaled to 0."""

    @property
    def upper(self) -> float:
        """What is scaled to 1."""


Spans = Sequence[Span]
"""The ranges of a statistic's columns in their order, then of the group if it has one."""


@dataclass(frozen=True)
class Scale:
    """From a figure of columns in [0, 1] to the units of the declaration."""

    shift: float = 0.0
    factor: float = 1.0

    def value(self, scaled: float) -> float:
        """The figure in its own units."""
        return self.shift + self.factor * scaled


@dataclass(frozen=True)
class Terms:
    """What is stated of a mechanism's estimates, apart from its noise."""

    quantities: tuple[str, ...]  # what is estimated, in words
    scales: tuple[Scale, ...]  # of each from figures of columns in [0, 1] to its own units
    confidence: float  # level of the intervals

    def describe(self) -> dict[str, str | int]:
        """The terms as part of a mechanism's description."""
        terms: dict[str, str | int] = {"confidence": repr(self.confidence)}
        for i, (quantity, scale) in enumerate(zip(self.quantities, self.scales, strict=True), 1):
            terms |= {
                f"quantity_{i}": quantity,
                f"shift_{i}": repr(scale.shift),
                f"factor_{i}": repr(scale.factor),
            }
        return terms

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Read back what ``describe`` wrote."""
        quantities: list[str] = []
        scales: list[Scale] = []
        while (quantity := description.get(f"quantity_{len(scales) + 1}")) is not None:
            i = len(scales) + 1
            shift, factor = (float(str(description[f"{name}_{i}"])) for name in ("shift", "factor"))
            quantities.append(str(quantity))
            scales.append(Scale(shift, factor))
        return cls(tuple(quantities), tuple(scales), float(str(description["confidence"])))


def _zero(spans: Spans) -> float:
    return 0.0


@dataclass(frozen=True, kw_only=True)
class MomentFormula:
    """One or more functions of the means of x, y, x^2, x y and y^2, columns in [0, 1].

    Of a statistic of two columns y is the first and x the second: a response comes before its
    predictor, a numerator before its denominator, and a group last.

    Attributes:
        functions: From the number of records and the origin to the functions, one an estimate.
        design: What is released for them; of one column if only x is used.
        origin: From the columns' ranges to the -x at which the functions take the predictor as 0
            in its own units.
        of_some: Whether x is 1 for a record that counts, y then its value, and both are 0 for the
            others.
        amounts: Whether the columns are amounts: scaled from 0, and refused if they can be below.
        is_variance: Whether it is the variance of x, for which there are guaranteed limits.
    """

    functions: Callable[[int, float], tuple[Derived, ...]]
    design: MomentDesign = PAIR
    origin: Callable[[Spans], float] = _zero
    of_some: bool = False
    amounts: bool = False
    is_variance: bool = False


def formula(
    function: Derived,
    *,
    design: MomentDesign = PAIR,
    of_some: bool = False,
    amounts: bool = False,
) -> MomentFormula:
    """One function, whatever the number of records."""
    return MomentFormula(
        functions=lambda n_records, origin: (function,),
        design=design,
        of_some=of_some,
        amounts=amounts,
    )


def unbiased(
    function: Derived, *, design: MomentDesign = PAIR, is_variance: bool = False
) -> MomentFormula:
    """One function with n - 1 in place of n."""

    def functions(n_records: int, origin: float) -> tuple[Derived, ...]:
        more = n_records / (n_records - 1)
        return (dataclasses.replace(function, numerator=lambda m: more * function.numerator(m)),)

    return MomentFormula(functions=functions, design=design, is_variance=is_variance)


MEAN_OF_SOME = formula(dataclasses.replace(RATIO, bounds=(0.0, 1.0)), design=SOME, of_some=True)
"""The sum of the values of records that count, over their number."""


Knob = Literal["values", "q", "group", "where", "categories"]


@dataclass(frozen=True, kw_only=True)
class NamedStatistic:
    """A statistic that a config can name, and what mechanisms can ask of it.

    A mechanism serves it for what it is: one with ``bounded`` is served by the mechanisms for any
    statistic of known sensitivity, one with ``moments`` by ``pair_moments``, a quantile by
    ``noisy_quantile``. Everything is public and follows from the declaration.

    Attributes:
        name: As a config names it.
        columns: How many columns it takes, not counting that of a group.
        needs: Knobs of the config that it must be given.
        allows: Knobs that it may be given.
        is_total: Whether records that do not count are 0 in it; otherwise they are left out.
        leaves_out_missing: Whether records without a value are left out; otherwise a column
            that can lack values is refused.
        bounded: The statistic of columns in [0, 1] with its sensitivity, known at every size.
        even_variance: Variance of ``bounded``, times n, for n records spread evenly over [0, 1],
            or half of them counting; None to have it simulated.
        moments: How it follows from the joint moments of two columns.
        quantile_share: For a quantile without ``q``: the share of records below it.
        several: Whether further columns may follow, each a predictor, of numbers or categories.
        scales: From the ranges and the number of records to one scale for each number, from its
            value for columns in [0, 1] to its own units; by default it has none.
        words: From the quantity in words to the words for each number.
    """

    name: str
    columns: int = 1
    needs: tuple[Knob, ...] = ()
    allows: tuple[Knob, ...] = ()
    is_total: bool = False
    leaves_out_missing: bool = False
    bounded: Statistic | None = None
    even_variance: float | None = None
    moments: MomentFormula | None = None
    quantile_share: Fraction | None = None
    several: bool = False
    scales: Callable[[Spans, int], tuple[Scale, ...]] | None = None
    words: Callable[[str], tuple[str, ...]] | None = None

    @property
    def is_share(self) -> bool:
        """Whether every record counts as 0 or 1."""
        return "values" in self.needs

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean of one column, or n times one."""
        return isinstance(self.bounded, Mean)

    @property
    def is_quantile(self) -> bool:
        """Whether it is a quantile of one column."""
        return self.quantile_share is not None or "q" in self.needs

    def own_units(self, spans: Spans, n_records: int) -> tuple[Scale, ...]:
        """From each number, for columns in [0, 1], to its own units."""
        if self.scales is not None:
            return self.scales(spans, n_records)
        return (Scale(),) * (1 if self.bounded is None else self.bounded.dimension)

    def quantities(self, quantity: str) -> tuple[str, ...]:
        """Each number in words, from the words for the statistic of its columns."""
        if self.words is not None:
            return self.words(quantity)
        if self.bounded is None or self.bounded.dimension == 1:
            return (quantity,)
        return tuple(f"{quantity}, number {i}" for i in range(1, self.bounded.dimension + 1))


def mean_scale(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    """The scale of a mean, in the units of its column."""
    (span,) = spans
    return (Scale(span.lower, span.upper - span.lower),)


def total_scale(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    """The scale of n times a mean, in the units of its column."""
    (span,) = spans
    return (Scale(n_records * span.lower, n_records * (span.upper - span.lower)),)


def product_scale(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    """The scale of a variance or a covariance, in the units of its columns multiplied."""
    first, second = spans[0], spans[-1]
    return (Scale(0.0, (first.upper - first.lower) * (second.upper - second.lower)),)


MEAN = NamedStatistic(
    name="mean",
    allows=("where",),
    leaves_out_missing=True,
    bounded=Mean(),
    even_variance=1 / 12,
    moments=MEAN_OF_SOME,
    scales=mean_scale,
)


PROPORTION = NamedStatistic(
    name="proportion",
    needs=("values",),
    allows=("where",),
    bounded=Mean(),
    even_variance=1 / 4,
    moments=MEAN_OF_SOME,
    scales=mean_scale,
)


SUM = NamedStatistic(
    name="sum",
    allows=("where",),
    is_total=True,
    bounded=Mean(),
    even_variance=1 / 12,
    scales=total_scale,
)


COUNT = NamedStatistic(
    name="count",
    needs=("values",),
    allows=("where",),
    is_total=True,
    bounded=Mean(),
    even_variance=1 / 4,
    scales=total_scale,
)


MEDIAN = NamedStatistic(
    name="median",
    leaves_out_missing=True,
    quantile_share=Fraction(1, 2),
)


QUANTILE = NamedStatistic(
    name="quantile",
    needs=("q",),
    leaves_out_missing=True,
)


VARIANCE = NamedStatistic(
    name="variance",
    bounded=Variance(),
    even_variance=1 / 80 - 1 / 144,
    moments=unbiased(moment_designs.VARIANCE, design=moment_designs.ONE, is_variance=True),
    scales=product_scale,
)


COVARIANCE = NamedStatistic(
    name="covariance",
    columns=2,
    bounded=Covariance(),
    even_variance=1 / 144,
    moments=unbiased(moment_designs.COVARIANCE),
    scales=product_scale,
)


CORRELATION = NamedStatistic(
    name="correlation",
    columns=2,
    moments=formula(moment_designs.CORRELATION),
)


RATIO_OF_SUMS = NamedStatistic(
    name="ratio",
    columns=2,
    moments=formula(moment_designs.RATIO, design=moment_designs.RATIO_DESIGN, amounts=True),
    scales=lambda spans, n_records: (Scale(0.0, spans[0].upper / spans[1].upper),),
)


def intercept(origin: float) -> Derived:
    """Intercept of the regression of y on x, at x = -origin.

    With x' = x + origin it is E y - (E x') Cov/Var = (E y E x'^2 - E x' E x'y) / Var.
    """

    def numerator(m: Means) -> Floats:
        square = m[2] + 2 * origin * m[0] + origin**2
        return np.asarray(m[1] * square - (m[0] + origin) * (m[3] + origin * m[1]))

    return Derived(numerator, SLOPE.denominators)


def _intercept_and_slope(n_records: int, origin: float) -> tuple[Derived, ...]:
    return intercept(origin), SLOPE


def _origin(spans: Spans) -> float:
    predictor = spans[1]
    return predictor.lower / (predictor.upper - predictor.lower)


def _scales(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    response, predictor = spans
    one, two = response.upper - response.lower, predictor.upper - predictor.lower
    return Scale(response.lower, one), Scale(0.0, one / two)


def _words(quantity: str) -> tuple[str, ...]:
    return f"intercept of the {quantity}", f"slope of the {quantity}"


REGRESSION = NamedStatistic(
    name="regression",
    columns=2,
    allows=("categories",),
    leaves_out_missing=True,
    several=True,
    moments=MomentFormula(functions=_intercept_and_slope, origin=_origin),
    scales=_scales,
    words=_words,
)


DIFFERENCE = NamedStatistic(
    name="difference",
    needs=("group",),
    moments=formula(moment_designs.GROUP_DIFFERENCE, design=moment_designs.GROUP),
    scales=lambda spans, n_records: (Scale(0.0, spans[0].upper - spans[0].lower),),
)


_BY_NAME: dict[str, NamedStatistic] = {}
STATISTICS: Mapping[str, NamedStatistic] = MappingProxyType(_BY_NAME)
"""Statistics by name, in the order in which a config's schema lists them."""


def register(statistic: NamedStatistic) -> None:
    """Add a statistic; one from outside the package before ``configs`` is imported."""
    if statistic.name in _BY_NAME:
        raise ValueError(f"there is a statistic '{statistic.name}' already")
    _BY_NAME[statistic.name] = statistic


def named(name: str) -> NamedStatistic:
    """The statistic of this name, or a ConfigError."""
    if name not in STATISTICS:
        known = ", ".join(STATISTICS)
        raise ConfigError(f"There is no statistic '{name}'; there are {known}.", where="statistic")
    return STATISTICS[name]


for _statistic in (
    COUNT,
    PROPORTION,
    MEAN,
    SUM,
    VARIANCE,
    COVARIANCE,
    CORRELATION,
    MEDIAN,
    QUANTILE,
    DIFFERENCE,
    RATIO_OF_SUMS,
    REGRESSION,
):
    register(_statistic)
