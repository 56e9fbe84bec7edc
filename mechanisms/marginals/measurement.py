"""The private steps of ``marginals``: noisy tables and noisy scores, within one filter.

1. Tables of every column.
2. Scores of all pairs: how far each is from independence (optional).
3. Tables of the pairs, or of the groups of the workload, each with its part of what is left by
   its expected error.
4. Tables of triples of columns (optional), by how their columns interact as far as the noisy pairs
   say (mechanisms.marginals.latent_classes).

**A filter for Gaussian differential privacy** says what adaptive steps may spend in all.
A step with Euclidean sensitivity D and normal noise of variance s^2 in each coordinate is
D/s-GDP. If the steps, each chosen after looking at the results of those before, are such that the
sum of their D^2/s^2 never passes mu^2, then all of them together are mu-GDP (Smith and Thakurta
2022, arXiv 2210.17520, Theorem 1, whose filter loses nothing against a composition fixed in
advance).

**Units and noise.** Counts are multiples of a grid of 2**-20 and get discrete Gaussian noise on
it, which is a post-processing of normal noise (mechanisms.sampling.randomness); each step
spends its squared sensitivity over the variance of that normal from the filter, first.

**Sensitivity** (a unit holds c records; adjacency: replace-one).

* *A table.* The unit's records leave at most c counts and enter at most c: with l_j and e_j the
  records that leave and enter cell j, the change is e - l, both of sum at most c (less, where
  records become present or absent). The square of its norm is |e|^2 + |l|^2 - 2 e.l <= 2 c^2,
  attained when all move from one cell to another.
* *A score* is the L1 distance of a private table and a table of integers that is public by then.
  It changes by at most the L1 norm of the table's change, 2 c. P scores: squared norm 4 c^2 P.

Under *add-remove* e or l is 0: a table changes by at most c^2 in squared norm, attained where all
records of the unit are in one cell, and a score by at most c, P scores by c^2 P in squared norm. So
a table that is given B has noise of variance c^2/B in place of 2 c^2/B, as if mu^2 were twice as
large; scores cost half as much as they would then. The number of records is private: every step
after the first goes by that of the noisy one-way tables.

**What scores say.** The score of a pair is its L1 distance from the product of the noisy one-way
tables, so it holds the true distance L, what the noise of the one-ways adds (the bias b) and noise
of its own. With N(sqrt(L^2 + b^2), s^2) as likelihood, the distribution of L over all pairs is
estimated from the scores themselves by expectation maximisation on a grid (nonparametric maximum
likelihood, Kiefer and Wolfowitz 1956, doi 10.1214/aoms/1177728066), and each L by its posterior
mean.

**Amounts.** What pairs may spend minimises the sum over all pairs of what is left of their
distances (mechanisms.marginals.allocation). The sum is convex in B, so that the derivative of every
pair, tabulated on a grid, equals one multiplier or the pair is not measured.

**Survey weights.** The class of a weight, by public edges, is a column, and its pairs are measured
without a score. If a record's class is a function of that record only, replacing a unit moves at
most 2 c^2 of a table with it as of any other, and nothing above changes. A weight that was raked or
adjusted for non-response depends on the records of others, and then replacing one may move more:
that it does not is the assumption that weights are taken *as given*.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.contingency_table import CodedColumns
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import InsufficientBudgetError, RecordsError
from statpress.mechanisms.marginals.allocation import (
    LEAST,
    MEAN_ABSOLUTE,
    MOST_TRIPLES,
    SHRUNK,
    Emphasis,
    Shares,
    by_cells,
    is_scored,
    towards,
)
from statpress.mechanisms.marginals.column_shares import one_ways
from statpress.mechanisms.marginals.denoising import (
    Model,
    centres,
    scores_of,
    strongest_triples,
)
from statpress.mechanisms.marginals.prior import Prior
from statpress.mechanisms.marginals.residuals import (
    GRID,
    KnownTotals,
    NoisyMarginals,
    NoisyScores,
    NoisyTable,
    scale_of,
)
from statpress.mechanisms.marginals.target_tables import Box, Floats, Group, boxes_of
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    Progress,
    Randomness,
    equivalent_variance,
    of_noise,
)

_POINTS, _ROUNDS, _GRID = 80, 60, 240


_BITS = 256  # every spending is rounded up to a multiple of 2**-256


class GdpFilter:
    """Holds a fixed mu^2 and refuses any step that would pass it.

    Attributes:
        mu_squared: All that may ever be spent.
    """

    def __init__(self, mu_squared: Fraction) -> None:
        if not isinstance(mu_squared, Fraction) or mu_squared < 0:
            raise RecordsError("mu squared must be a fraction of at least 0.")
        self._mu_squared = mu_squared
        self._spent = Fraction(0)

    @property
    def mu_squared(self) -> Fraction:
        """All that may ever be spent."""
        return self._mu_squared

    @property
    def spent(self) -> Fraction:
        """What was spent, rounded up."""
        return self._spent

    @property
    def remaining(self) -> Fraction:
        """What may still be spent."""
        return self._mu_squared - self._spent

    def spend(self, sensitivity_squared: int | Fraction, variance: Fraction) -> None:
        """Spend sensitivity^2 / variance, before the noise of that variance is drawn.

        Args:
            sensitivity_squared: Squared Euclidean sensitivity, in the units of the variance.
            variance: Of the equivalent normal noise in each coordinate.

        Raises:
            InsufficientBudgetError: It would pass mu^2; nothing is spent then.
            RecordsError: The sensitivity is negative or the variance not positive, or one of
                them is not exact.
        """
        if not isinstance(sensitivity_squared, int | Fraction) or not isinstance(
            variance, int | Fraction
        ):
            raise RecordsError("A filter takes exact numbers only.")
        if sensitivity_squared < 0 or variance <= 0:
            raise RecordsError("A sensitivity is at least 0, and a variance above 0.")
        amount = Fraction(sensitivity_squared) / variance
        rounded = Fraction(-(-amount.numerator * 2**_BITS // amount.denominator), 2**_BITS)
        if rounded > self.remaining:
            raise InsufficientBudgetError(
                "A step would pass the budget of its mechanism.",
                remaining=self.remaining,
                requested=rounded,
                next_step="Report this: its steps were planned to fit.",
            )
        self._spent += rounded


def table_sensitivity_squared(unit_records: int, adjacency: Adjacency) -> int:
    """Squared Euclidean sensitivity of one table, in squared records."""
    return adjacency.moved * unit_records**2


def score_sensitivity_squared(unit_records: int, n_pairs: int, adjacency: Adjacency) -> int:
    """Squared Euclidean sensitivity of the scores of some pairs, in squared records."""
    return (adjacency.moved * unit_records) ** 2 * n_pairs


def measure_tables(
    coded: CodedColumns,
    groups: Sequence[Group],
    amounts: Sequence[Fraction],
    *,
    unit_records: int,
    adjacency: Adjacency,
    budget: GdpFilter,
    rng: Randomness,
    progress: Progress | None = None,
) -> tuple[NoisyTable, ...]:
    """Noisy tables of groups of columns."""
    squared = table_sensitivity_squared(unit_records, adjacency)
    scales = [scale_of(squared, amount) for amount in amounts]
    for scale in scales:
        budget.spend(squared * GRID**2, equivalent_variance(scale))
    tables = []
    for group, scale, table in zip(groups, scales, coded.tables(groups), strict=True):
        noise = rng.discrete_gaussian(scale, table.size)
        tables.append(NoisyTable(group, scale, table * GRID + noise.reshape(table.shape)))
        if progress is not None:
            progress(table.size)
    return tuple(tables)


def score_pairs(
    coded: CodedColumns,
    references: dict[Group, NDArray[np.int64]],
    amount: Fraction,
    *,
    unit_records: int,
    adjacency: Adjacency,
    budget: GdpFilter,
    rng: Randomness,
) -> NoisyScores:
    """Noisy L1 distances of the tables of pairs from public tables of integers."""
    pairs = tuple(references)
    squared = score_sensitivity_squared(unit_records, len(pairs), adjacency)
    scale = scale_of(squared, amount)
    budget.spend(squared * GRID**2, equivalent_variance(scale))
    tables = zip(pairs, coded.tables(pairs), strict=True)
    exact = [int(np.abs(table - references[pair]).sum()) for pair, table in tables]
    noise = rng.discrete_gaussian(scale, len(pairs))
    return NoisyScores(pairs, scale, np.array(exact, dtype=np.int64) * GRID + noise)


def release_marginals(
    coded: CodedColumns,
    workload: Sequence[tuple[Group, float]],
    shares: Shares,
    mu_squared: Fraction,
    *,
    unit_records: int,
    adjacency: Adjacency,
    rng: Randomness,
    known: KnownTotals | None = None,
    emphasis: Emphasis | None = None,
    always: Collection[int] = (),
    prior: Prior | None = None,
    progress: Progress | None = None,
) -> NoisyMarginals:
    """One-way tables, scores, and the tables of ``workload`` that these make worth measuring.

    Charge the ledger before building ``rng``; ``known`` tables are exact and not measured; groups
    that hold a column of ``emphasis`` count more; pairs with a column of ``always`` are measured
    whatever scores say of others; scores are distances from the pairs of ``prior``.
    """
    emphasis = emphasis or {}
    workload = towards(workload, emphasis)
    known = dict(known or {})
    budget = GdpFilter(mu_squared)
    sizes = tuple(column.size for column in coded.domain.columns)
    exact = {column for group in known for column in group}
    singles = [(column,) for column in range(len(sizes)) if column not in exact]
    effective = float(mu_squared) / unit_records**2 * 2 / adjacency.moved
    n_records = coded.n_records if adjacency is Adjacency.REPLACE_ONE else None
    one_way: tuple[NoisyTable, ...] = ()
    if singles:
        part = Fraction(shares.one_way) * mu_squared if workload else mu_squared
        cells = np.array([sizes[column] for (column,) in singles], dtype=np.float64)
        amounts = _exact_amounts(by_cells(cells, np.ones(len(cells)), 1.0), part)
        one_way = measure_tables(
            coded,
            singles,
            amounts,
            unit_records=unit_records,
            adjacency=adjacency,
            budget=budget,
            rng=rng,
            progress=progress,
        )
    first = NoisyMarginals(coded.domain, n_records, one_way, None, (), known)
    if prior is not None:
        total = first.residuals().present(first.n_records)
        noisy = {t.group[0]: (t.counts / t.counts.sum(), t.variance / total**2) for t in one_way}
        first = replace(first, prior=prior.borne_out(noisy, n=total))
    groups = [(group, weight) for group, weight in workload if group not in known]
    if not groups:
        return first
    n, p = one_way_shares(first)
    scores = None
    pairs = [group for group, _ in groups if is_scored(group, always)]
    if shares.screen and len(pairs) > 1:
        scores = score_pairs(
            coded,
            references(pairs, n, p, first.prior, boxes_of(first.domain)),
            Fraction(shares.screen) * mu_squared,
            unit_records=unit_records,
            adjacency=adjacency,
            budget=budget,
            rng=rng,
        )
    scored = replace(first, scores=scores)

    def measured(
        groups: Sequence[Group], amounts: Floats, total: Fraction
    ) -> tuple[NoisyTable, ...]:
        """Tables of the groups that are given anything."""
        chosen = [group for group, amount in zip(groups, amounts.tolist(), strict=True) if amount]
        return measure_tables(
            coded,
            chosen,
            _exact_amounts(amounts[amounts > 0], total),
            unit_records=unit_records,
            adjacency=adjacency,
            budget=budget,
            rng=rng,
            progress=progress,
        )

    kept = Fraction(shares.triples) * mu_squared
    part = budget.remaining - kept
    weights = _allocate(scored, groups, p, n, float(part / mu_squared) * effective)
    tables = measured([group for group, _ in groups], weights, part)
    released = replace(scored, tables=tables)
    if kept:
        triples, weights = _interacting(released, emphasis, shares.triples * effective)
        released = replace(released, tables=(*tables, *measured(triples, weights, kept)))
    return released


def one_way_shares(first: NoisyMarginals) -> tuple[float, Sequence[Floats]]:
    """The number of present records and every column's shares, from the first step's tables."""
    residuals = first.residuals()
    n = residuals.present(first.n_records)
    return n, one_ways(first, residuals, n, boxes_of(first.domain), smoothed=False)


def references(
    pairs: Sequence[Group],
    n: float,
    p: Sequence[Floats],
    prior: Prior | None = None,
    boxes: Sequence[Box] = (),
) -> dict[Group, NDArray[np.int64]]:
    """The tables of whole records that pairs are compared with: a prior's, or products."""
    tables = centres(pairs, p, prior, boxes)
    return {pair: np.rint(n * table).astype(np.int64) for pair, table in tables.items()}


def evidence_of_marginals(one: CodedColumns, other: CodedColumns) -> Evidence:
    """How much likelier noisy marginals are of ``one`` than of ``other``, for audits.

    The log-ratios of the steps add up, each given the results of those before, from which the
    references of scores and the amounts of later steps follow.
    """
    exact: dict[Group, list[NDArray[np.int64]]] = {}

    def tables(groups: Sequence[Group]) -> list[list[NDArray[np.int64]]]:
        new = [group for group in groups if group not in exact]
        if new:
            counted = zip(one.tables(new), other.tables(new), strict=True)
            exact.update(zip(new, map(list, counted), strict=True))
        return [exact[group] for group in groups]

    def evidence(release: NoisyMarginals) -> float:
        noisy = (*release.one_way, *release.tables)
        found = 0.0
        for each, (first, second) in zip(noisy, tables([t.group for t in noisy]), strict=True):
            ratio = of_noise([first * GRID, second * GRID], float(each.scale))
            found += ratio(each.values)
        scores = release.scores
        if scores is None:
            return found
        before = replace(release, scores=None, tables=())
        boxes = boxes_of(release.domain)
        fixed = references(scores.pairs, *one_way_shares(before), release.prior, boxes)
        distances = np.array(
            [
                [int(np.abs(table - fixed[pair]).sum()) * GRID for table in both]
                for pair, both in zip(scores.pairs, tables(scores.pairs), strict=True)
            ]
        )
        return found + of_noise(distances.T, float(scores.scale))(scores.values)

    return evidence


def _allocate(
    scored: NoisyMarginals,
    groups: Sequence[tuple[Group, float]],
    one_way: Sequence[Floats],
    n: float,
    total: float,
) -> Floats:
    """Amounts float64[groups] of a total, in units of one record.

    Groups without a score are given what they would be by their cells; the rest goes to pairs by
    their scores.
    """
    sizes = np.array([float(np.prod([scored.sizes[c] for c in g])) for g, _ in groups])
    workload = np.array([weight for _, weight in groups])
    amounts = by_cells(sizes, workload, total, SHRUNK)
    if scored.scores is None:
        return amounts
    scores = scores_of(scored, one_way, n)
    is_pair = np.array([group in scores for group, _ in groups])
    pairs = [group for group, _ in groups if group in scores]
    distances = _expected_distances(
        np.array([scores[pair].distance for pair in pairs]),
        np.array([scores[pair].bias for pair in pairs]),
        scored.scores.sigma,
    )
    weights = [_column_weights(p, n) for p in one_way]
    amounts[is_pair] = _by_expected_error(
        distances,
        [(weights[a], weights[b]) for a, b in pairs],
        workload[is_pair],
        float(amounts[is_pair].sum()),
    )
    return amounts


_BELOW = 1.5  # how far classes are below the interactions that they find, about


def _interacting(
    released: NoisyMarginals, emphasis: Emphasis, total: float
) -> tuple[list[Group], Floats]:
    """Triples that may be measured, and amounts float64[T] of a total, in units of one record.

    The triples whose pairs are strongest, by how far from maximum entropy the classes are that
    describe the pairs.
    """
    model = Model.of(released)
    boxes = boxes_of(released.domain)
    measured = {table.group for table in released.tables}
    triples = [group for group in strongest_triples(model) if group not in measured]
    # Those that hold what counts more come first, the others as they were.
    triples.sort(key=lambda group: -math.prod(emphasis.get(column, 1.0) for column in group))
    triples = triples[:MOST_TRIPLES]
    distances = []
    for group in triples:
        interaction = model.implied(group, boxes)
        interaction = interaction - model.implied(group, boxes, interacting=False)
        distances.append(_BELOW * model.n * float(np.abs(interaction).sum()))
    weights = [_column_weights(p, model.n) for p in model.one_way]
    amounts = _by_expected_error(
        np.maximum(distances, 1.0),
        [[weights[column] for column in group] for group in triples],
        np.array([weight for _, weight in towards([(group, 1.0) for group in triples], emphasis)]),
        total,
    )
    return triples, amounts


def _expected_distances(scores: Floats, biases: Floats, sigma: float) -> Floats:
    """Posterior mean float64[P] of every pair's distance from independence, at least 1."""
    top = max(float(scores.max()), 3 * sigma)
    points = np.linspace(0.0, top, _POINTS)
    means = np.sqrt(points**2 + biases[:, None] ** 2)
    logs = -0.5 * ((scores[:, None] - means) / sigma) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    prior = np.full(_POINTS, 1 / _POINTS)
    for _ in range(_ROUNDS):
        posterior = likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    # Sums in a fixed order, whatever the number of threads.
    means_of_pairs: Floats = np.maximum((posterior * points).sum(axis=1), 1.0)
    return means_of_pairs


def _by_expected_error(
    distances: Floats, group_weights: Sequence[Sequence[Floats]], workload: Floats, total: float
) -> Floats:
    """Amounts float64[P] of a total that minimise the expected remaining error; some may be 0.

    ``group_weights`` are the ``_column_weights`` of the columns of each group.
    """
    tops = np.geomspace(total * 1e-7, total, _GRID)
    slopes = np.empty((len(distances), _GRID))
    for i, (distance, weights) in enumerate(zip(distances, group_weights, strict=True)):
        scale = MEAN_ABSOLUTE * math.prod(np.sqrt(each).sum() for each in weights)
        together = functools.reduce(np.multiply.outer, weights)
        values = np.sort(((distance / scale) ** 2 * together).ravel())
        if len(values) > 400:  # quantiles stand for many cells
            values = np.array([part.mean() for part in np.array_split(values, 400)])
        grown = 1 + values[:, None] * (tops / 2)
        kept = (values[:, None] / grown).sum(axis=0) / values.sum()
        slope = (values[:, None] ** 2 / 2 / grown**2).sum(axis=0) / values.sum()
        slopes[i] = workload[i] * distance * slope / (2 * np.sqrt(kept))
    slopes = np.maximum.accumulate(slopes[:, ::-1], axis=1)[:, ::-1]  # falls along B
    low, high = float(slopes.min()) / 2, float(slopes.max())
    for _ in range(100):
        level = math.sqrt(low * high)
        low, high = (level, high) if _amounts(slopes, tops, level).sum() > total else (low, level)
    amounts = _amounts(slopes, tops, high)
    if not amounts.any():
        amounts[int(np.argmax(slopes[:, 0]))] = total
    amounts[amounts < LEAST * total] = 0.0
    amounts *= total / amounts.sum()
    return amounts


def _amounts(slopes: Floats, tops: Floats, level: float) -> Floats:
    """Where each falling slope meets a level; 0 where it starts below."""
    reached = (slopes >= level).sum(axis=1)
    amounts = np.zeros(len(slopes))
    inside = reached > 0
    place = np.minimum(reached[inside], len(tops) - 1)
    above, below = slopes[inside, place - 1], slopes[inside, place]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(above > below, (above - level) / (above - below), 1.0)
    part = np.clip(part, 0.0, 1.0)
    amounts[inside] = tops[place - 1] * (tops[place] / tops[place - 1]) ** part
    return amounts


def _exact_amounts(amounts: Floats, total: Fraction) -> list[Fraction]:
    """Amounts as fractions that add up to at most a total, in the given proportions."""
    parts = [Fraction(float(amount)) for amount in amounts]
    whole = sum(parts)
    return [total * part / whole for part in parts]


def _column_weights(shares: Floats, n: float) -> Floats:
    """float64[k - 1]: how much the cells of a column deviate, the smallest left out."""
    weights = np.sort(np.maximum(shares, 1 / n) ** 1.5)[1:]
    scaled: Floats = weights * (len(weights) / weights.sum())
    return scaled
