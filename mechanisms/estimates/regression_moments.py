"""Least squares of a response on several predictors, numbers and categories, from joint sums.

A column of numbers is u in [-1/2, 1/2], by its declared bounds. One of m categories is the vector
s = w (d - 1/m), d the m indicators of which one is 1, w = ``CORNER``; any two of its values are
w sqrt(2) apart, which is 1 but for 5e-5. Released with independent Gaussian noise of one scale are
the sums over all records of

    every u and s;   3/2 u_j u_k, 3/2 u_j s, 3/2 s s' for any two columns;   2 (u_j^2 - 1/4).

Products of the indicators of one column follow from the indicators. Replace-one neighbours. Where
some records do not count, since a value is missing, all of this is 0 for those, and the number of
the others is released as well, times a weight that costs nothing.

**Sensitivity** (mechanisms/README.md, Theorem 5.7). The largest distance of two records is between
corners, u_j = +-1/2, and the sum of a few fractions for each number of numeric and of categorical
columns in which they differ; ``squared_sensitivity`` takes the largest. Of K columns of numbers it
is the largest b + 9/16 b (K - b) over whole b <= K.

Sums are exact: u is rounded to a grid of 2^-22, so that products are integers. The noise is that of
``StatisticNoise``, whose two steps allow for rounding sums to its grid.

Coefficients have the intervals or sets of statpress.mechanisms.estimates.linear_regression. They
take residuals to have one variance, whatever the predictors are, and say so (``Inference``).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates.estimand import Argument, Estimand
from statpress.mechanisms.estimates.estimate import (
    Estimate,
    ExpectedInterval,
    Inference,
    RawEstimates,
    finite,
    number,
)
from statpress.mechanisms.estimates.fieller import Floats
from statpress.mechanisms.estimates.linear_regression import Coefficient, RegressionMoments
from statpress.mechanisms.estimates.moments import MomentsEstimate
from statpress.mechanisms.estimates.pair_moments import worst_of_quotient
from statpress.mechanisms.estimates.statistics import NamedStatistic, Scale, Terms
from statpress.mechanisms.mechanism import BALLE_WANG, DONG_ROTH_SU, PROOF, Citation, Target
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    StatisticNoise,
    of_noise,
)

CORNER = Fraction(70, 99)
"""Weight of indicators: 2 w^2 = 9800/9801, just below 1."""

PRODUCTS = Fraction(3, 2)
"""Weight of products. Of coefficients of columns with means near the middle of their bounds the
errors are about least, 12 % below those by weight 1 for seven columns of a survey."""

SQUARES = 2
"""Weight of squares, the largest whole one by which they cost nothing."""

MOST_COLUMNS = 40
"""Columns of numbers and indicators, at most: their moments' covariances are kept as a table."""

_GRID = 1 << 22  # steps of u
_BITS, _AT_A_TIME = 40, 1 << 16
_MOST_RECORDS = 1 << 28  # so that sums of parts of them are exact in 64 bits


@dataclass(frozen=True)
class Layout:
    """The columns of a regression, the response first.

    Attributes:
        sizes: Of each column its number of categories, or 1 for a column of numbers.
        of_some: Whether some records may not count.
    """

    sizes: tuple[int, ...]
    of_some: bool = False

    @functools.cached_property
    def places(self) -> tuple[range, ...]:
        """Where each column's numbers stand in a record's vector; 0 is that of the constant."""
        ends = list(itertools.accumulate(self.sizes, initial=1))
        return tuple(range(start, end) for start, end in itertools.pairwise(ends))

    @property
    def length(self) -> int:
        """Of a record's vector (1, u or indicators of each column)."""
        return 1 + sum(self.sizes)

    @functools.cached_property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """Which products of two places are released: of two columns, squares, and by the constant.

        By the constant itself, the number of records, where that is not public.
        """
        column = [0, *(j for j, size in enumerate(self.sizes, 1) for _ in range(size))]
        return tuple(
            (a, b)
            for a, b in itertools.combinations_with_replacement(range(self.length), 2)
            if column[a] != column[b] or (a and self.sizes[column[a] - 1] == 1)
            or (a == b == 0 and self.of_some)
        )  # fmt: skip

    @functools.cached_property
    def squared_sensitivity(self) -> Fraction:
        """The largest squared distance of two records."""
        return squared_sensitivity(self.sizes)

    @functools.cached_property
    def count_weight(self) -> Fraction:
        """Of the number of records that count: the largest of 40 bits that costs nothing.

        The record that is farthest from one that does not count is a corner too.
        """
        lengths = [CORNER**2 * (1 - Fraction(1, m)) if m > 1 else Fraction(1, 4)
                   for m in self.sizes]  # fmt: skip
        pairs = sum((p * q for p, q in itertools.combinations(lengths, 2)), Fraction(0))
        room = self.squared_sensitivity - sum(lengths) - PRODUCTS**2 * pairs
        return Fraction(math.isqrt(math.floor(room * 2 ** (2 * _BITS))), 2**_BITS)

    @functools.cached_property
    def _weights(self) -> Floats:
        """float64[r]: the weight of each entry."""
        count = float(self.count_weight) if self.of_some else 1.0
        first = {True: count, False: 1.0}
        return np.array(
            [
                first[a == b] if a == 0 else float(SQUARES if a == b else PRODUCTS)
                for a, b in self.entries
            ]
        )

    @functools.cached_property
    def _centred(self) -> Floats:
        """float64[q, q]: from (1, u, d) to (1, u, s)."""
        matrix = np.eye(self.length)
        for places in self.places:
            if len(places) > 1:
                matrix[places, places] = float(CORNER)
                matrix[places, 0] = -float(CORNER) / len(places)
        return matrix

    @functools.cached_property
    def _without_common(self) -> Floats:
        """float64[q, q]: takes off the mean of a column's indicators, which is noise only."""
        matrix = np.eye(self.length)
        for places in self.places:
            if len(places) > 1:
                matrix[np.ix_(places, places)] -= 1 / len(places)
        return matrix

    def released(self, sums: Floats) -> Floats:
        """What is released, float64[r], of exact sums of products, float64[q, q]."""
        centred = self._centred @ sums @ self._centred.T
        rows, columns = np.array(self.entries).T
        squares = (rows == columns) & (rows > 0)
        values = centred[rows, columns] - np.where(squares, sums[0, 0] / 4, 0.0)
        return np.asarray(self._weights * values)

    def sums(self, released: Floats, n_records: float) -> Floats:
        """Sums of products float64[q, q, ..] from what was released, float64[r, ..].

        ``n_records`` is that of all, where all count. Linear in both together.
        """
        values = released / self._weights.reshape(-1, *[1] * (released.ndim - 1))
        found = np.zeros((self.length, self.length, *released.shape[1:]))
        rows, columns = np.array(self.entries).T
        found[rows, columns] = found[columns, rows] = values
        if not self.of_some:
            found[0, 0] = n_records
        for places in self.places:
            if len(places) == 1:
                found[places[0], places[0]] += found[0, 0] / 4
        matrix = np.linalg.inv(self._centred) @ self._without_common
        found = np.einsum("ai,ij...,bj->ab...", matrix, found, matrix, optimize=True)
        for places in self.places:
            if len(places) > 1:
                found[np.ix_(places, places)] = 0
                found[places, places] = found[places, 0]
        return np.asarray(found)


def squared_sensitivity(sizes: Sequence[int]) -> Fraction:
    """The largest squared distance of two records of columns of these sizes, 1 for numbers.

    Of corners (Theorem 5.7). Columns are counted by the square p of the length of their values and
    by the product x of the values of the two records, p where they are equal.
    """
    square = CORNER**2
    kinds = [(Fraction(1, 4), -Fraction(1, 4), sizes.count(1))]
    kinds += [
        (square * (1 - Fraction(1, m)), -square / m, alike)
        for m, alike in Counter(m for m in sizes if m > 1).items()
    ]
    largest = Fraction(0)
    for moved in itertools.product(*(range(alike + 1) for *_, alike in kinds)):
        columns = []  # p, x and how many
        for (p, x, alike), k in zip(kinds, moved, strict=True):
            columns += [(p, x, k), (p, p, alike - k)]
        distance = sum((2 * (p - x) * k for p, x, k in columns), Fraction(0))
        for i, (p, x, k) in enumerate(columns):
            same = (p * p - x * x) * k * (k - 1)
            others = sum(2 * (p * q - x * y) * k * h for q, y, h in columns[:i])
            distance += PRODUCTS**2 * (same + others)
        largest = max(largest, distance)
    return largest


@dataclass(frozen=True)
class RegressionSums:
    """The release at fixed parameters; all of them are public."""

    layout: Layout  # of the columns
    noise: StatisticNoise  # on all sums

    @classmethod
    def calibrate(cls, mu: Fraction, layout: Layout) -> RegressionSums:
        """The least noise that makes all sums together mu-GDP."""
        sensitivity, dimension = _moves(layout)
        noise = StatisticNoise.calibrate(mu**2, sensitivity=sensitivity, dimension=dimension)
        return cls(layout, noise)

    @classmethod
    def at(cls, scale: Fraction, layout: Layout) -> RegressionSums:
        """The release with noise of a given scale, in grid steps."""
        return cls(layout, StatisticNoise(*_moves(layout), scale))

    @property
    def noise_in_jumps(self) -> float:
        """Least noise on a linear figure of the sums, in moves of it by one record: 1/mu."""
        return 1 / math.sqrt(self.noise.mu_squared)

    def loss(self) -> GaussianLoss:
        """The privacy loss; takes no data."""
        return GaussianLoss(Fraction(0), self.noise.mu_squared)

    def moments(
        self, sums: Floats, n_records: int, of_unit: int, regressors: Floats
    ) -> RegressionMoments:
        """Moments of ``regressors @ (1, u, d)`` from sums of products, noisy or expected.

        Args:
            sums: float64[q, q] of the products of (1, u, d), as ``Layout.sums`` gives them.
            n_records: All records, also those that do not count.
            of_unit: How many records of a unit count one each.
            regressors: float64[p + 1, q], the response last.
        """
        count = max(float(sums[0, 0]), 1.0) if self.layout.of_some else float(n_records)
        each = self.noise.sigma * np.eye(len(self.layout.entries))
        terms = np.tensordot(regressors, self.layout.sums(each, 0.0), 1)
        terms = np.einsum("air,bi->abr", terms, regressors) / count
        return RegressionMoments(
            regressors @ sums @ regressors.T / count,
            np.tensordot(terms, terms, axes=([2], [2])),
            count / of_unit,
        )


def _moves(layout: Layout) -> tuple[Fraction, int]:
    """The sensitivity of all sums, rounded up, and their number."""
    root = math.isqrt(math.ceil(layout.squared_sensitivity * 2 ** (2 * _BITS))) + 1
    return Fraction(root, 2**_BITS), len(layout.entries)


def exact_sums(
    estimand: Estimand, table: ContingencyTable, *, at_a_time: int = _AT_A_TIME
) -> Floats:
    """Sums of the products of (1, u, d) over the records that count, float64[q, q]; private.

    Exact in integers, with u on its grid, and rounded once.
    """
    layout = layout_of(estimand)
    steps = [1, *(_GRID if m == 1 else 1 for m in layout.sizes for _ in range(m))]
    places = list(itertools.combinations_with_replacement(range(layout.length), 2))
    totals = dict.fromkeys(places, 0)
    for vectors, counts in _vectors(estimand, table, at_a_time):
        whole = np.rint(vectors * np.array(steps)[:, None]).astype(np.int64)
        for a, b in places:
            high, low = np.divmod(whole[a] * whole[b], _GRID)
            totals[a, b] += int(counts @ high) * _GRID + int(counts @ low)
    sums = np.zeros((layout.length, layout.length))
    for (a, b), total in totals.items():
        sums[a, b] = sums[b, a] = total / (steps[a] * steps[b] * table.domain.parts)
    return sums


def _vectors(
    estimand: Estimand, table: ContingencyTable, at_a_time: int = _AT_A_TIME
) -> Iterator[tuple[Floats, Codes]]:
    """(1, u, d) of each cell, float64[q, k], with its count, int64[k]; so many cells at a time.

    All is 0 for records that do not count.
    """
    sizes, columns = layout_of(estimand).sizes, _columns(estimand)
    for start in range(0, len(table.cells), at_a_time):
        part = slice(start, start + at_a_time)
        cells = table.cells[part]
        rows = [np.ones(len(cells))]
        for size, arguments in zip(sizes, columns, strict=True):
            values = [argument.scaled(table.domain, cells) for argument in arguments]
            rows += [values[0] - 0.5] if size == 1 else [1.0 - np.sum(values, axis=0), *values]
        yield np.array(rows) * estimand.keeps(table.domain, cells), table.counts[part]


def layout_of(estimand: Estimand) -> Layout:
    """The columns of a regression."""
    sizes = (
        1 if len(each) == 1 and each[0].chosen is None else len(each) + 1
        for each in _columns(estimand)
    )
    return Layout(tuple(sizes), estimand.of_some)


def _columns(estimand: Estimand) -> list[list[Argument]]:
    """The arguments by column: one, or the indicators of all categories but the first."""
    grouped = itertools.groupby(estimand.arguments, key=lambda argument: argument.name)
    return [list(arguments) for _, arguments in grouped]


def _origins(estimand: Estimand) -> tuple[float, ...]:
    """Of each predictor of numbers its lower bound in ranges: a coefficient is by its own 0."""
    return tuple(
        each.lower / (each.upper - each.lower)
        for each in estimand.arguments[1:]
        if each.chosen is None
    )


def _regressors(layout: Layout, origins: Sequence[float]) -> Floats:
    """float64[p + 1, q] from (1, u, d) to a constant, the predictors, and the response in [0, 1].

    A predictor of numbers is taken in ranges from its own 0; of categories the first is left out.
    """
    every, left = np.eye(layout.length), iter(origins)
    rows = [every[0]]
    for places in layout.places[1:]:
        if len(places) == 1:
            rows.append(every[places[0]] + (next(left) + 0.5) * every[0])
        else:
            rows += [every[place] for place in places[1:]]
    (response,) = layout.places[0]
    return np.array([*rows, every[response] + 0.5 * every[0]])


def _terms(estimand: Estimand) -> Terms:
    """What is stated: the intercept and each coefficient, in the columns' own units."""
    response, *predictors = estimand.arguments
    quantity = estimand.quantity()
    height = response.upper - response.lower
    quantities, scales = [f"intercept of the {quantity}"], [Scale(response.lower, height)]
    for each in predictors:
        quantities.append(f"coefficient of {each.words or each.name} in the {quantity}")
        scales.append(Scale(0.0, height / (each.upper - each.lower)))
    return Terms(tuple(quantities), tuple(scales), estimand.knobs.confidence)


@dataclass(frozen=True, kw_only=True)
class RegressionEstimate(MomentsEstimate):
    """The release at fixed parameters; all of them are public.

    Attributes:
        moments: The noise on the sums, and of which columns they are.
        origins: Of each predictor of numbers its lower bound, in ranges.
    """

    name: ClassVar[str] = "regression_moments"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_WANG.at("Theorem 8"),
        DONG_ROTH_SU,
        PROOF.at("Lemma 5.1, Theorems 5.7 and 8.1"),
    )

    moments: RegressionSums
    origins: tuple[float, ...]

    @staticmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Regressions."""
        return statistic.several

    @classmethod
    def calibrated(cls, estimand: Estimand, target: Target) -> dict[str, Any]:
        """The least noise that meets the target."""
        if target.n_records > _MOST_RECORDS:
            raise RecordsError("A regression on several predictors takes 2^28 records at most.")
        layout = layout_of(estimand)
        if layout.length > MOST_COLUMNS:
            raise ConfigError(
                f"The regression has {layout.length - 1} columns of numbers and categories "
                f"together; at most {MOST_COLUMNS - 1} are served.",
                where="columns",
                next_step="Leave predictors out, or declare wider categories.",
            )
        return {
            "terms": _terms(estimand),
            "moments": RegressionSums.calibrate(target.largest_mu() / target.unit_records, layout),
            "origins": _origins(estimand),
        }

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Add the noise to the sums."""
        assert self.estimand is not None
        exact = self.moments.layout.released(exact_sums(self.estimand, table))
        noisy = self.moments.noise.release(exact, rng)
        return RawEstimates({"sums": tuple(noisy.tolist())}, table.n_records)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by all sums."""
        exact = [self.release(table, NoNoise()).numbers["sums"] for table in (one, other)]
        ratio = of_noise(exact, self.moments.noise.sigma)
        return lambda release: ratio(release.numbers["sums"])

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The intercept and the coefficients with their intervals or sets."""
        sums = self.moments.layout.sums(np.array(raw.numbers["sums"]), raw.n_records)
        return tuple(
            Estimate(
                quantity=quantity,
                value=scale.value(each.value),
                lower=scale.value(each.set.lower),
                upper=scale.value(each.set.upper),
                confidence=self.terms.confidence,
                standard_error=(
                    None if each.standard_error is None else scale.factor * each.standard_error
                ),
                shape=each.set.shape,
                inference=self.inference,
            )
            for quantity, scale, each in zip(
                self.terms.quantities,
                self.terms.scales,
                self._coefficients(sums, raw.n_records),
                strict=True,
            )
        )

    @staticmethod
    def exact_coefficients(estimand: Estimand, table: ContingencyTable) -> Floats:
        """The coefficients of the records that count, of columns in [0, 1]; private. NaN: none."""
        layout = layout_of(estimand)
        sums = np.zeros((layout.length, layout.length))
        for vectors, counts in _vectors(estimand, table):
            sums += (vectors * (counts / table.counts.sum())) @ vectors.T
        regressors = _regressors(layout, _origins(estimand))
        return RegressionMoments(regressors @ sums @ regressors.T, np.zeros(()), None).estimate

    def _coefficients(self, sums: Floats, n_records: int) -> tuple[Coefficient, ...]:
        regressors = _regressors(self.moments.layout, self.origins)
        moments = self.moments.moments(sums, n_records, self.of_unit, regressors)
        return moments.coefficients(self.terms.confidence)

    def _even(self, n_records: int) -> tuple[Coefficient, ...]:
        """Those of records spread evenly, with columns that have nothing to do with each other."""
        layout = self.moments.layout
        mean, square = np.zeros(layout.length), np.zeros(layout.length)
        mean[0] = 1.0
        for places in layout.places:
            mean[places] = 0.0 if len(places) == 1 else 1 / len(places)
        sums = np.outer(mean, mean)
        for places in layout.places:
            square = np.diag(np.full(len(places), 1 / 12 if len(places) == 1 else 1 / len(places)))
            sums[np.ix_(places, places)] = square
        return self._coefficients(n_records * sums, n_records)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The widths for records spread evenly, of columns that are independent."""
        even = self._even(n_records)
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=tuple(
                finite(scale.factor * (each.set.upper - each.set.lower))
                for scale, each in zip(self.terms.scales, even, strict=True)
            ),
            noise_sd=tuple(
                None if each.noise is None else scale.factor * each.noise
                for scale, each in zip(self.terms.scales, even, strict=True)
            ),
        )

    def expected_width(self, n_records: int, *, guaranteed: bool) -> float:
        """The width of the last interval for records spread evenly."""
        *_, last = self._even(n_records)
        return last.set.upper - last.set.lower

    @property
    def has_guarantee(self) -> bool:
        """Whether there is a guaranteed interval: there is none."""
        return False

    @property
    def worst_coverage(self) -> float:
        """Coverage of the intervals for populations whose rare values decide."""
        noise = self.moments.noise_in_jumps / self.of_unit
        return worst_of_quotient(noise, self.terms.confidence)

    @property
    def inference(self) -> Inference:
        """How the coverage is known: by what is taken of the residuals, which is not checked."""
        return "one variance"

    def remarks(self) -> Iterator[tuple[str, str]]:
        """As of all moments, and what is taken of the residuals."""
        yield (
            "the intervals take",
            "residuals to have one variance, whatever the predictors are",
        )
        yield from super().remarks()

    @property
    def objection(self) -> str:
        """With one predictor of numbers, ``pair_moments`` asks less of the residuals."""
        if self.moments.layout == Layout((1, 1)):
            return "It takes residuals to have one variance, and 'pair_moments' does not."
        return ""

    def parameters(self) -> dict[str, str | int]:
        """The noise, what it is on, and what is made of that."""
        layout = self.moments.layout
        return {
            "scale": str(self.moments.noise.scale),
            "categories": " ".join(map(str, layout.sizes)),
            "of_some": int(layout.of_some),
            **{f"origin_{i}": repr(origin) for i, origin in enumerate(self.origins, 1)},
            **self.described(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        sizes = tuple(map(int, str(description["categories"]).split()))
        layout = Layout(sizes, description["of_some"] == 1)
        numbers = sizes[1:].count(1)
        return cls(
            terms=Terms.from_description(description),
            moments=RegressionSums.at(number(description, "scale"), layout),
            origins=tuple(float(str(description[f"origin_{i + 1}"])) for i in range(numbers)),
            **cls.read(description),
        )
