"""From noisy tables to the tables that the records should have.

Those of single columns are in mechanisms.marginals.column_shares.

**Pairs** are denoised together. The deviation of a pair's table from independence is taken as a
random matrix with covariance t C_a x C_b: the covariances C_j of columns are shared by all pairs of
a column and learnt from them (empirical Bayes), so a pair with much noise borrows from the others
which contrasts of its columns matter. The strength t of a pair is integrated over a grid, its score
included. No contrast is cut off, however weak: where the noise is small it is kept. Each cell is
then judged once more (mechanisms.marginals.pair_cells), and all pairs are drawn towards what they
say of each other (mechanisms.marginals.latent_classes).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from statpress.mechanisms.domain.columns import Column, Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.allocation import MEAN_ABSOLUTE, MOST_TRIPLE_CELLS
from statpress.mechanisms.marginals.column_shares import (
    column_shares,
    is_smoothed,
    kernel,
    one_ways,
    ordered_codes,
)
from statpress.mechanisms.marginals.fitting import FLOOR, fit_margins, fit_pair
from statpress.mechanisms.marginals.latent_classes import LatentClasses
from statpress.mechanisms.marginals.pair_cells import Predicted, refined
from statpress.mechanisms.marginals.prior import Prior, log_odds
from statpress.mechanisms.marginals.residuals import (
    NoisyMarginals,
    Residuals,
    centred,
    subgroups,
)
from statpress.mechanisms.marginals.target_tables import (
    Booleans,
    Box,
    Floats,
    Group,
    boxes_of,
    possible_cells,
)

_PART, _LENGTH, _TREND = 0.5, 1.5, 0.3  # of the prior of deviations


def _similarity(column: Column, rising: float) -> Floats:
    """Prior covariances float64[k, k] of the deviations of a column's cells.

    Neighbours of an ordered column are alike, and deviations rise or fall along it.
    """
    if not is_smoothed(column):
        return np.eye(column.size)
    trend = _trend(column)
    alike = _PART * kernel(column, _LENGTH) + rising * np.outer(trend, trend)
    return np.asarray((1 - _PART) * np.eye(column.size) + alike)


def _trend(column: Column) -> Floats:
    """Places float64[k] of an ordered column's cells, centred and scaled; 0 of those without."""
    codes = ordered_codes(column)
    places = np.arange(len(codes)) - (len(codes) - 1) / 2
    trend = np.zeros(column.size)
    trend[codes] = places / np.sqrt(np.mean(places**2))
    return trend


def trends_of(one: Column, other: Column) -> tuple[Floats, Floats] | None:
    """Sums that the table of a pair keeps when it is made non-negative.

    Of two ordered columns their covariance, of one and one without order the mean for every code;
    nothing of two without.
    """
    if not (is_smoothed(one) or is_smoothed(other)):
        return None
    sums = [_trend(c)[None] if is_smoothed(c) else np.eye(c.size) for c in (one, other)]
    return sums[0], sums[1]


_POINTS, _UPDATES = 16, 4
_AT_ONCE = 1 << 21  # cells of a table times strengths
_LEAST_EIGENVALUE = 1e-10  # of the largest; what is below is rounding
_MANY_CODES, _LEAST_OF_MANY = 128, 2e-3  # most contrasts of so many codes carry no signal
_LEAST_VARIANCE = 1e-3  # of that of the noise, of a cell given the others
_PRIOR_WEIGHT, _PRIOR_OF_A_CODE = 5.0, 1 / 8
"""Directions that the prior of a column's covariance counts as, at least and for each code: a few
pairs say little of the covariance of a thousand codes, and their noise would be learnt."""
_MODEL_ERROR = 0.25
_NEAR = np.linspace(0.0, 0.5, 9)
_STRONG = 2.0  # a logarithm: seven to one
_INTERACTION = 0.15
"""Standard deviation of the logarithm of a cell's share for what its pairs do not say, in copies.
With each column halved, the root mean square of log odds ratios of ratios in the 200 triples of
strongest pairs is .22 in ``happiness``, .46 in ``adult`` and .67 in ``cps91``; of those drawn it is
.78, 2.2 and .91, since single interactions are far larger than most."""


@dataclass(frozen=True)
class Score:
    """What is known of a pair's distance from independence, in records.

    Attributes:
        distance: The noisy score.
        bias: What the noise of the one-ways adds.
        sigma: Standard deviation of its noise.
    """

    distance: float
    bias: float
    sigma: float

    def gain(self, other: Score) -> float:
        """How much likelier the pair is near what this is a distance from than what ``other`` is.

        A logarithm. The distance is at most half of that between the two if it is near the one,
        and all of it if it is the other.
        """
        apart = math.sqrt(max(other.distance**2 - max(self.distance, 0.0) ** 2, 0.0))
        ratios = self.evidence(apart * _NEAR) - self.evidence(np.array([apart]))
        return float(np.log(np.exp(ratios).mean()))

    def evidence(self, distances: Floats) -> Floats:
        """Logarithms float64[P] of the likelihoods of true distances, in records."""
        expected = np.sqrt(distances**2 + self.bias**2)
        error = self.sigma**2 + (_MODEL_ERROR * expected) ** 2
        logs: Floats = -0.5 * (np.log(error) + (self.distance - expected) ** 2 / error)
        return logs


@dataclass(frozen=True, eq=False)
class Denoised:
    """What is known of a measured pair.

    Attributes:
        cells: Its cells as measured, and each as the others predict it.
        signal: Squares of the posterior means, over the posterior variances: about the signal
            over the noise.
        error: Sum of the posterior variances of all cells, in squared records.
    """

    cells: Predicted
    signal: float
    error: float


@dataclass(frozen=True, eq=False)
class _Posterior:
    mean: Floats
    variance: Floats
    strength: float
    kept: float
    evidence: float


@dataclass(frozen=True, eq=False)
class Basis:
    """The contrasts of a column's codes by how much pairs deviate along them.

    Attributes:
        vectors: float64[k, m], orthonormal.
        values: float64[m]: their variances.
        spread: Sum of the cells' standard deviations.
    """

    vectors: Floats
    values: Floats
    spread: float

    @classmethod
    def of(cls, covariance: Floats) -> Basis:
        values, vectors = np.linalg.eigh(covariance)
        least = _LEAST_EIGENVALUE if len(values) <= _MANY_CODES else _LEAST_OF_MANY
        kept = values > least * values[-1]
        deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return cls(vectors[:, kept], values[kept], float(deviations.sum()))

    @classmethod
    def among(cls, bases: Sequence[Basis], size: int) -> Basis:
        """The mean of some bases, for the first codes of their columns only."""
        covariance = np.mean([(b.vectors * b.values) @ b.vectors.T for b in bases], axis=0)
        centre = np.eye(size) - 1 / size
        return cls.of(_unit_trace(centre @ covariance[:size, :size] @ centre))


def _denoise(
    shares: Sequence[Floats],
    products: dict[Group, Floats],
    residuals: Mapping[Group, Floats],
    variances: Mapping[Group, float],
    scores: dict[Group, Score],
    columns: Sequence[Column],
    carried: Mapping[Group, tuple[Floats, Score | None]],
) -> tuple[list[Basis], dict[Group, Denoised], set[Group], float]:
    """Bases of all columns, and what the prior and the noise leave of all measured pairs.

    ``carried`` are earlier tables, with the distances from them: centres of the pairs that are
    likelier to deviate from these than from the ``products``. The last value is the logarithm of
    the odds that a pair is.
    """
    if len(columns) < 2:
        return [], {}, set(), 0.0
    deviations = {pair: residuals[pair] - centred(products[pair]) for pair in variances}
    bases = learnt_bases(shares, deviations, variances, scores, columns)
    gains = {}
    for pair in carried.keys() & variances.keys():
        table, score = carried[pair]
        of_pair = [bases[column] for column in pair]
        then, now = (
            _posterior(residuals[pair] - centred(centre), variances[pair], of_pair, known).evidence
            for centre, known in ((table, score), (products[pair], scores.get(pair)))
        )
        gains[pair] = then - now
    odds = log_odds(gains.values())
    nearer = {pair for pair, gain in gains.items() if gain + odds > 0}
    for pair in nearer:
        table, score = carried[pair]
        products[pair], deviations[pair] = table, residuals[pair] - centred(table)
        if score is not None:
            scores[pair] = score
    if nearer:
        bases = learnt_bases(shares, deviations, variances, scores, columns)
    posteriors = _all(deviations, variances, scores, bases)
    denoised: dict[Group, Denoised] = {
        (a, b): Denoised(
            predicted(
                products[a, b], deviations[a, b], variances[a, b], p.strength, bases[a], bases[b]
            ),
            float((p.mean**2).sum() / p.variance.sum()),
            float(p.variance.sum()),
        )
        for (a, b), p in posteriors.items()
    }
    return bases, denoised, nearer, odds


def learnt_bases(
    shares: Sequence[Floats],
    deviations: Mapping[Group, Floats],
    variances: Mapping[Group, float],
    scores: Mapping[Group, Score],
    columns: Sequence[Column],
    rising: float = _TREND,
) -> list[Basis]:
    """Bases of all columns, learnt from the deviations of measured pairs from independence.

    Args:
        shares: Of every column's cells.
        deviations: Residuals of measured pairs less those of independent columns, in records.
        variances: Of their noise, by cell.
        scores: Of all pairs that were scored.
        columns: As declared.
        rising: Variance of a trend along an ordered column, over that of its cells.
    """
    start = [
        _first_covariance(p, _similarity(c, rising)) for p, c in zip(shares, columns, strict=True)
    ]
    bases = [Basis.of(c) for c in start]
    for _ in range(_UPDATES if variances else 0):
        posteriors = _all(deviations, variances, scores, bases)
        bases = [Basis.of(c) for c in _updated(start, bases, posteriors, _alike(columns))]
    return bases


def _kind_of(one: Column, other: Column) -> tuple[object, ...] | None:
    """What tells kinds of pairs of persons' columns apart; None of others.

    How a column of households is related to one of persons differs by place too much, and one that
    all persons have alike to none.
    """
    if not (isinstance(one, Slot) and isinstance(other, Slot)):
        return None
    if min(one.of.size, other.of.size) < 2:
        return None
    apart = one.place != other.place and (one.place == 1, other.place == 1)
    return one.of.name, other.of.name, apart


@dataclass(frozen=True, eq=False)
class _Kind:
    """Pairs of persons' columns of one kind, in records and without who is not there.

    Attributes:
        pairs: Of every place, or of all places two by two.
        centre: Sum of the tables of independent persons, float64[k_a, k_b].
        left: What the noise leaves of the sum's deviation from it, in the bases.
        bases: Of its columns.
    """

    pairs: Sequence[Group]
    centre: Floats
    left: _Posterior
    bases: Sequence[Basis]


@dataclass(frozen=True, eq=False)
class AlikePlaces:
    """Pairs of persons' columns that are related in every place as in all together.

    The tables of one kind of pair are added up over the places and denoised, by the covariances
    that all pairs together teach; each pair is then the table of its own margins with the odds
    ratios of the sum.

    Attributes:
        kinds: With two pairs or more.
    """

    kinds: Sequence[_Kind] = ()

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        one_way: Sequence[Floats],
        products: Mapping[Group, Floats],
        residuals: Residuals,
        variances: Mapping[Group, float],
        scores: Mapping[Group, Score],
    ) -> AlikePlaces:
        """Those of a domain; none where no column is a place's."""
        listed: dict[tuple[object, ...], list[Group]] = {}
        for a, b in variances:
            kind = _kind_of(columns[a], columns[b])
            if kind is not None:
                listed.setdefault(kind, []).append((a, b))
        several = [pairs for pairs in listed.values() if len(pairs) > 1]
        if not several:
            return cls()
        every = {pair: residuals.values[pair] - centred(products[pair]) for pair in variances}
        learnt = learnt_bases(one_way, every, variances, scores, columns)
        kinds = []
        for pairs in several:
            block = _there(products[pairs[0]])
            centre = np.sum([products[pair][block] for pair in pairs], axis=0)
            deviation = np.sum([every[pair][block] for pair in pairs], axis=0)
            variance = sum(variances[pair] for pair in pairs)
            bases = [
                Basis.among([learnt[pair[axis]] for pair in pairs], size)
                for axis, size in enumerate(centre.shape)
            ]
            kinds.append(_Kind(pairs, centre, _posterior(deviation, variance, bases), bases))
        return cls(tuple(kinds))

    @property
    def pairs(self) -> list[Group]:
        """All of them."""
        return [pair for kind in self.kinds for pair in kind.pairs]

    def tables(
        self, products: Mapping[Group, Floats], rng: np.random.Generator | None = None
    ) -> dict[Group, Floats]:
        """Shares of all pairs; with a generator by sums drawn from what the noise leaves.

        Args:
            products: Of every pair the shares of independent persons, whose margins it has.
            rng: Public.
        """
        found: dict[Group, Floats] = {}
        for kind in self.kinds:
            contrasts = kind.left.mean
            if rng is not None:
                noise = rng.standard_normal(contrasts.shape)
                contrasts = contrasts + np.sqrt(kind.left.variance) * noise
            moved = along_axes(contrasts, [basis.vectors for basis in kind.bases])
            together = np.maximum(kind.centre + moved, FLOOR * kind.centre)
            possible = np.ones(together.shape, dtype=np.bool_)
            for pair in kind.pairs:
                own, block = products[pair].copy(), _there(products[pair])
                rows, columns = own[block].sum(axis=1), own[block].sum(axis=0)
                own[block] = fit_pair(together, rows, columns, possible)
                found[pair] = own
        return found


def _there(table: Floats) -> tuple[slice, slice]:
    """The cells of those who are there."""
    rows, columns = table.shape
    return slice(0, rows - 1), slice(0, columns - 1)


def _of_one_person(domain: Domain, pair: Group) -> bool:
    """Whether both columns are of the person in one place."""
    return len({getattr(domain.columns[column], "place", None) for column in pair}) == 1


def _alike(columns: Sequence[Column]) -> list[list[int]]:
    """Positions of columns that share a covariance: of persons in the second place and later."""
    found: dict[object, list[int]] = {}
    for position, column in enumerate(columns):
        shared: object = position
        if isinstance(column, Slot) and column.place > 1:
            shared = column.of.name
        found.setdefault(shared, []).append(position)
    return list(found.values())


def predicted(
    product: Floats,
    deviation: Floats,
    variance: float,
    strength: float,
    one: Basis,
    other: Basis,
) -> Predicted:
    """Every cell from the others: y - a / q of variance 1 / q, noise included.

    With K the covariance of all cells, a = (K + noise)^-1 y and q the diagonal of the inverse
    (Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, 5.12).
    """
    inverse = 1 / (strength * np.multiply.outer(one.values, other.values) + variance)
    z = one.vectors.T @ deviation @ other.vectors
    outside = deviation - one.vectors @ z @ other.vectors.T
    weighted = one.vectors @ (z * inverse) @ other.vectors.T + outside / variance
    precision = (one.vectors**2) @ (inverse - 1 / variance) @ (other.vectors**2).T + 1 / variance
    measured = deviation + product
    return Predicted(
        measured,
        variance,
        measured - weighted / precision,
        np.maximum(1 / precision - variance, _LEAST_VARIANCE * variance),
    )


def _all(
    deviations: Mapping[Group, Floats],
    variances: Mapping[Group, float],
    scores: Mapping[Group, Score],
    bases: Sequence[Basis],
) -> dict[Group, _Posterior]:
    return {
        (a, b): _posterior(table, variances[a, b], (bases[a], bases[b]), scores.get((a, b)))
        for (a, b), table in deviations.items()
    }


def _first_covariance(shares: Floats, similarity: Floats) -> Floats:
    """Centred, growing with the shares, of trace k - 1."""
    k = len(shares)
    centre = np.eye(k) - 1 / k
    deviations = np.maximum(shares, 1e-12) ** 0.75
    return _unit_trace(centre @ (deviations[:, None] * similarity * deviations) @ centre)


def _unit_trace(covariance: Floats) -> Floats:
    """A covariance of k codes scaled to the trace k - 1: a variance of 1 along each contrast."""
    scaled: Floats = covariance * ((len(covariance) - 1) / np.trace(covariance))
    return scaled


def _posterior(
    table: Floats,
    variance: float,
    bases: Sequence[Basis],
    score: Score | None = None,
    *,
    at_once: int = _AT_ONCE,
) -> _Posterior:
    """What the prior of these bases and the noise leave of a residual, in the bases."""
    z = along_axes(table, [basis.vectors.T for basis in bases])
    squares = z**2
    spread = functools.reduce(np.multiply.outer, [basis.values for basis in bases])
    top = 3 * max(float(squares.mean()), variance)
    strengths = np.geomspace(0.002 * min(variance, top), top, _POINTS)
    logs = evidence(squares, spread, variance, strengths, at_once=at_once)
    if score is not None:
        logs += score.evidence(MEAN_ABSOLUTE * np.sqrt(strengths) * spread_of(bases))
    weights = np.exp(logs - logs.max())
    likelihood = float(logs.max()) + math.log(weights.mean())
    weights /= weights.sum()
    gain = np.zeros(spread.shape)
    for block in _blocks(len(strengths), spread.size, at_once):
        signal = np.multiply.outer(strengths[block], spread)
        gain += np.tensordot(weights[block], signal / (signal + variance), axes=1)
    kept = float((gain * spread).sum() / spread.sum())
    return _Posterior(
        z * gain, variance * gain, float((weights * strengths).sum()), kept, likelihood
    )


def evidence(
    squares: Floats,
    spread: Floats,
    variance: float,
    strengths: Floats,
    *,
    at_once: int = _AT_ONCE,
) -> Floats:
    """Logarithms float64[P] of the likelihoods of squared contrasts at each strength."""
    inside = tuple(range(1, spread.ndim + 1))
    logs = np.empty(len(strengths))
    for block in _blocks(len(strengths), spread.size, at_once):
        total = np.multiply.outer(strengths[block], spread) + variance
        logs[block] = -0.5 * (np.log(total) + squares / total).sum(axis=inside)
    return logs


def spread_of(bases: Sequence[Basis]) -> float:
    """The sum of the standard deviations of a table's cells at strength 1."""
    return math.prod(basis.spread for basis in bases)


def _blocks(n_strengths: int, n_cells: int, at_once: int) -> list[slice]:
    some = max(1, at_once // n_cells)
    return [slice(first, first + some) for first in range(0, n_strengths, some)]


def along_axes(table: Floats, matrices: Sequence[Floats]) -> Floats:
    """A table with every axis multiplied by its matrix."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table


def _updated(
    start: Sequence[Floats],
    bases: Sequence[Basis],
    posteriors: Mapping[Group, _Posterior],
    alike: Sequence[Sequence[int]],
    *,
    prior_of_a_code: float = _PRIOR_OF_A_CODE,
) -> list[Floats]:
    """The covariances of all columns from the posteriors of their pairs."""
    weights = [max(_PRIOR_WEIGHT, prior_of_a_code * len(c)) for c in start]
    sums = [weight * c for weight, c in zip(weights, start, strict=True)]
    for (a, b), p in posteriors.items():
        moments = (p.mean, p.variance), (p.mean.T, p.variance.T)
        for column, partner, (mean, variance) in zip((a, b), (b, a), moments, strict=True):
            q, inner = bases[column].vectors, bases[partner].values
            inside = (mean / inner) @ mean.T + np.diag((variance / inner).sum(axis=1))
            sums[column] = sums[column] + p.kept * (q @ inside @ q.T) / p.strength
            weights[column] += p.kept * len(inner)
    found = list(sums)
    for positions in alike:
        total = functools.reduce(np.add, [sums[position] for position in positions])
        covariance = total / sum(weights[position] for position in positions)
        for position in positions:
            found[position] = _unit_trace(covariance)
    return found


@dataclass(frozen=True, eq=False)
class Model:
    """Tables to aim at, in shares.

    Attributes:
        residuals: The unbiased combination of all tables.
        n: Number of present records, known or estimated.
        one_way: Shares of every column's cells.
        pairs: Shares of the cells of every pair of columns, by ascending positions.
        groups: The same of larger measured groups.
        classes: What the pairs say of groups that were not measured.
        signal: Of measured pairs, about the variance of the signal over that of the noise.
        errors: Of measured pairs, about the sum of squared errors of the cells' shares.
        bases: Of every column.
        carried: Pairs whose table is taken to deviate from that of the prior.
        alike: Pairs that are taken to deviate from what all places of a household have together.
    """

    residuals: Residuals
    n: float
    one_way: tuple[Floats, ...]
    pairs: Mapping[Group, Floats]
    groups: Mapping[Group, Floats]
    classes: LatentClasses
    signal: Mapping[Group, float]
    errors: Mapping[Group, float]
    bases: Sequence[Basis]
    carried: frozenset[Group] = frozenset()
    alike: AlikePlaces = field(default_factory=AlikePlaces)

    @classmethod
    def of(
        cls, released: NoisyMarginals, *, carried: bool = True, strong: float = _STRONG
    ) -> Model:
        """Denoised tables, consistent in their one-way margins.

        Args:
            released: What was measured.
            carried: Whether its prior, if it has one, is used.
            strong: The evidence at which a score speaks for a pair of the prior where the measured
                pairs do not: a logarithm.
        """
        boxes = boxes_of(released.domain)
        residuals = released.residuals()
        n = residuals.present(released.n_records)
        prior = released.prior if carried else None
        one_way = one_ways(released, residuals, n, boxes, smoothed=True, prior=prior)
        columns = range(len(released.sizes))
        pairs = [(a, b) for a in columns for b in columns if a < b]
        variances = {p: residuals.variances.get(p, 0.0) for p in pairs}
        from_centres = scores_of(released, one_way, n)
        scores = from_independence(released, from_centres, one_way, n)
        earlier: dict[Group, tuple[Floats, Score | None]] = {}
        if prior is not None:
            tables = centres([pair for pair in pairs if pair in prior.pairs], one_way, prior)
            earlier = {pair: (n * table, from_centres.get(pair)) for pair, table in tables.items()}
        measured: dict[Group, float] = {
            pair: variance for pair, variance in variances.items() if variance > 0
        }
        products = {p: n * table for p, table in centres(measured, one_way, boxes=boxes).items()}
        places = AlikePlaces.of(
            released.domain.columns, one_way, products, residuals, measured, scores
        )
        alike = places.tables({pair: products[pair] / n for pair in places.pairs})
        bases, denoised, nearer, odds = _denoise(
            one_way,
            products | {pair: n * table for pair, table in alike.items()},
            residuals.values,
            measured,
            {pair: score for pair, score in scores.items() if pair not in alike},
            released.domain.columns,
            earlier,
        )
        for pair, (_, score) in earlier.items():
            # Of what was not measured its score decides, if it has one: by strong evidence where
            # the measured pairs do not bear the prior out.
            if pair in residuals.values or score is None:
                continue
            if score.gain(scores[pair]) + odds > (0.0 if odds > 0 else strong):
                nearer.add(pair)
        possible: dict[Group, Booleans] = {
            pair: possible_cells(pair, released.sizes, boxes) for pair in pairs
        }
        records = refined(
            {pair: each.cells for pair, each in denoised.items()},
            [n * p for p in one_way],
            possible,
        )
        signal = {pair: each.signal for pair, each in denoised.items()}
        errors = {pair: each.error / n**2 for pair, each in denoised.items()}
        start: dict[Group, Floats] = {}
        for pair in pairs:
            if pair in records:
                start[pair] = records[pair] / n
            elif pair in residuals.values:  # known exactly
                start[pair] = residuals.table(pair) / n
            elif pair in nearer:
                start[pair] = earlier[pair][0] / n
            else:
                start |= centres([pair], one_way, boxes=boxes)
        classes = LatentClasses.of(one_way, start if errors else {}, released.public_generator())
        fitted: dict[Group, Floats] = {}
        smoothed = classes.smoothed(start, errors)
        # Of one person's columns the other places say more than the classes of households do.
        smoothed |= {pair: start[pair] for pair in alike if _of_one_person(released.domain, pair)}
        for (a, b), table in smoothed.items():
            if (a, b) in denoised:
                cells = denoised[a, b].cells
                likely = cells.likely_cells(n * table, n * one_way[a], n * one_way[b])
                table = table * (likely & possible[a, b])
            if (a, b) in residuals.values or (a, b) in nearer or not possible[a, b].all():
                table = fit_pair(table, one_way[a], one_way[b], possible[a, b])
            fitted[a, b] = table
        model = cls(
            residuals, n, one_way, fitted, {}, classes, signal, errors, bases, frozenset(nearer),
            places,
        )  # fmt: skip
        larger = sorted({table.group for table in released.tables if len(table.group) > 2})
        return replace(model, groups={group: model.measured(group, boxes) for group in larger})

    def as_prior(self, released: NoisyMarginals, seal: str) -> Prior:
        """What the model says to a later release: pairs that were measured, known or carried over.

        Args:
            released: What the model is of.
            seal: Of the bundle that it is published in.
        """
        variances = []
        for column, declared in enumerate(released.domain.columns):
            known = not self.residuals.variances[(column,)]
            variances.append(
                0.0 if known else column_shares(declared, self.residuals, column, released.prior)[1]
            )
        pairs = {
            pair: table
            for pair, table in self.pairs.items()
            if pair in self.residuals.values or pair in self.carried
        }
        return Prior(seal=seal, one_way=self.one_way, variances=tuple(variances), pairs=pairs)

    def implied(
        self,
        group: Group,
        boxes: Sequence[Box] = (),
        *,
        interacting: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Floats:
        """Shares of the cells of three columns or more that have the fitted pairs.

        Args:
            group: Positions of the columns.
            boxes: Structural zeros.
            interacting: Whether the classes say how the columns interact; without, and of columns
                that they do not describe, the table is the one of maximum entropy.
            rng: Draws how the columns interact besides, of which nothing was measured.
        """
        if interacting and self.classes.describe(group):
            start = self.classes.table(group)
        else:
            start = functools.reduce(np.multiply.outer, [self.one_way[c] for c in group])
        if rng is not None:
            start = start * np.exp(self._interaction(group, rng))
        possible = possible_cells(group, self.residuals.sizes, boxes)
        return fit_margins(start * possible, self._margins(group))

    def _interaction(self, group: Group, rng: np.random.Generator) -> Floats:
        """A log-linear interaction of all columns at once, drawn along the contrasts of pairs."""
        bases = [self.bases[column] for column in group]
        spread = functools.reduce(np.multiply.outer, [basis.values for basis in bases])
        spread = spread / spread.sum() * math.prod(len(basis.vectors) for basis in bases)
        contrasts = _INTERACTION * np.sqrt(spread) * rng.standard_normal(spread.shape)
        return along_axes(contrasts, [basis.vectors for basis in bases])

    def _margins(self, group: Group) -> dict[Group, Floats]:
        """Fitted pairs by their axes in a group's table."""
        axes = itertools.combinations(range(len(group)), 2)
        return {(i, j): self.pairs[group[i], group[j]] for i, j in axes}

    def measured(
        self, group: Group, boxes: Sequence[Box], rng: np.random.Generator | None = None
    ) -> Floats:
        """Shares of the cells of a measured group of three columns or more.

        What pairs and classes imply, moved towards the measured residuals of three columns and
        more as far as their noise leaves them by the prior of pairs, or with a generator to a draw
        from what it leaves, and fitted to the pairs again.
        """
        table = self.implied(group, boxes)
        moved = table.copy()
        for part in subgroups(group):
            if len(part) < 3:
                continue
            inside = tuple(group.index(column) for column in part)
            others = tuple(axis for axis in range(len(group)) if axis not in inside)
            gap = self.residuals.values[part] - self.n * centred(table.sum(axis=others))
            of_part = [self.bases[column] for column in part]
            posterior = _posterior(gap, self.residuals.variances[part], of_part)
            kept = posterior.mean
            if rng is not None:
                kept = kept + np.sqrt(posterior.variance) * rng.standard_normal(kept.shape)
            cells = math.prod(table.shape[axis] for axis in others)
            shape = [table.shape[axis] if axis in inside else 1 for axis in range(len(group))]
            shift = along_axes(kept, [basis.vectors for basis in of_part]).reshape(shape)
            moved += shift / (cells * self.n)
        possible = possible_cells(group, self.residuals.sizes, boxes)
        return fit_margins(np.maximum(moved, FLOOR * table) * possible, self._margins(group))


def strongest_triples(model: Model) -> list[Group]:
    """Triples of columns by how far their pairs are from independence, all three of them."""
    distances = {
        (a, b): float(np.abs(table - np.multiply.outer(model.one_way[a], model.one_way[b])).sum())
        for (a, b), table in model.pairs.items()
    }
    sizes = model.residuals.sizes
    triples: list[Group] = [
        triple
        for triple in itertools.combinations(range(len(sizes)), 3)
        if math.prod(sizes[column] for column in triple) <= MOST_TRIPLE_CELLS
    ]
    strengths = {
        triple: math.prod(distances[pair] for pair in itertools.combinations(triple, 2))
        for triple in triples
    }
    return sorted(triples, key=lambda triple: (-round(strengths[triple], 12), triple))


def scores_of(released: NoisyMarginals, one_way: Sequence[Floats], n: float) -> dict[Group, Score]:
    """What the scores say, with the bias that the one-ways they were taken with gave them."""
    if released.scores is None:
        return {}
    sigma = {table.group[0]: table.variance**0.5 for table in released.one_way}
    bias = [_score_bias(n, p, sigma[j]) if j in sigma else 0.0 for j, p in enumerate(one_way)]
    scores = released.scores
    return {
        (a, b): Score(distance, math.hypot(bias[a], bias[b]), scores.sigma)
        for (a, b), distance in zip(scores.pairs, scores.distances.tolist(), strict=True)
    }


def centres(
    pairs: Iterable[Group],
    one_way: Sequence[Floats],
    prior: Prior | None = None,
    boxes: Sequence[Box] = (),
) -> dict[Group, Floats]:
    """Shares of pairs with these margins: those of a prior that knows them, else products.

    Of the columns of persons the products are of those who are there: independent given which
    places of a household have a person.
    """
    presence = tuple(box for box in boxes if box.presence)
    sizes = [len(p) for p in one_way]
    found: dict[Group, Floats] = {}
    for a, b in pairs:
        margins = one_way[a], one_way[b]
        if prior is not None and (a, b) in prior.pairs:
            found[a, b] = prior.table((a, b), *margins)
            continue
        found[a, b] = np.multiply.outer(*margins)
        possible = possible_cells((a, b), sizes, presence) if presence else None
        if possible is not None and not possible.all():
            found[a, b] = fit_pair(found[a, b], *margins, possible)
    return found


def from_independence(
    released: NoisyMarginals, scores: Mapping[Group, Score], one_way: Sequence[Floats], n: float
) -> dict[Group, Score]:
    """Scores as distances from independence, where a prior made them distances from its tables.

    How far a pair deviates from a table, and that table from independence, add up in squares.
    """
    found = dict(scores)
    prior = released.prior
    known: Collection[Group] = () if prior is None else scores.keys() & prior.pairs.keys()
    tables = centres(known, one_way, prior)
    for pair, product in centres(known, one_way, boxes=boxes_of(released.domain)).items():
        apart = n * float(np.abs(tables[pair] - product).sum())
        distance = math.hypot(max(scores[pair].distance, 0.0), apart)
        found[pair] = replace(scores[pair], distance=distance)
    return found


def _score_bias(n: float, shares: Floats, sigma: float) -> float:
    """About the distance from the product that the noise of one column's one-way makes."""
    return 0.8 * float(np.minimum(sigma, n * shares + 0.4 * sigma).sum())
