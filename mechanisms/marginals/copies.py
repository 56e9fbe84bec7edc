"""Copies of the records, each fitted to tables drawn from what the measurements leave open.

An analyst who takes synthetic records for records gets intervals that are far too short: the noise
of the tables behind them is in every figure, and in no standard error. Copies show it. Each is a
draw of the confidential file itself, with as many rows, so Rubin's rule for imputed data holds
(1987, Multiple Imputation for Nonresponse in Surveys, 3.1), with the copies' own variance W:
T = W + (1 + 1/M) B. Everything here is a function of the release, so copies cost nothing.

**Single columns** are drawn from the smoother's posterior and projected once; the means of numbers
and dates from those of the unbiased counts.

**Measured pairs.** The noise leaves each contrast of a pair's deviation from independence a normal
posterior. The prior is the one of ``mechanisms.marginals.denoising``, with three differences. The
strengths of all pairs together say how strong a pair may be (empirical Bayes), and a single
contrast may have ``FACTORS`` times the variance that the pair's strength gives it: a pair of
ordered columns often has one strong contrast and no other, which a common strength shrinks too far;
and a trend along an ordered column is likelier from the start. In a single file this would cost
accuracy; in copies it is what makes intervals cover.

**Pairs that were not measured**, or with noise that would hide a typical relation and hides theirs,
are not independent but unknown. They are drawn around what the clear pairs imply, the table of
latent classes that are fitted to these only, with a strength that is drawn from that of the others
given their noisy score, if they have one. In ``cps91`` at epsilon 1 the correlations of pairs that
were not measured are .13 from 0, and .08 from those of the classes, in the root mean square.

**A prior** (``mechanisms.marginals.prior``) is not used: intervals from copies are of this release
alone. Its scores are distances from the prior's tables; from independence a pair is taken to be
farther by how far these are from it. A posterior of a model that uses its prior
(``mechanisms.marginals.with_prior``) has deviations from the earlier tables of the pairs that the
model takes to deviate from these.

**Persons of households** (``mechanisms.marginals.presence``). Pairs of their columns deviate from
tables that all places have together, which are drawn first, one for all places; so what the noise
leaves open of these is alike in every place of a copy. Sizes and persons agree in every copy.

**Interactions** of three columns that were not measured are those of the classes, with a random one
upon it that is wider than most interactions of social surveys.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.contingency_table import GroupCounts
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.allocation import MEAN_ABSOLUTE, copies_at_once
from statpress.mechanisms.marginals.analyses import numbers_of
from statpress.mechanisms.marginals.column_shares import one_ways
from statpress.mechanisms.marginals.denoising import (
    Basis,
    Model,
    Score,
    centres,
    evidence,
    from_independence,
    learnt_bases,
    predicted,
    scores_of,
    spread_of,
    trends_of,
)
from statpress.mechanisms.marginals.fitting import fit_pair, with_margins
from statpress.mechanisms.marginals.latent_classes import LatentClasses
from statpress.mechanisms.marginals.pair_cells import (
    Predicted,
    nonempty,
    shares_of_cells,
)
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.residuals import NoisyMarginals, centred
from statpress.mechanisms.marginals.synthesis import Beginning, TargetsOf, synthesise
from statpress.mechanisms.marginals.target_tables import Floats, Group, boxes_of, possible_cells
from statpress.mechanisms.parallel import in_threads

FACTORS, CHANCES = np.array([1.0, 10.0, 100.0]), np.array([0.6, 0.3, 0.1])
"""How much more variance a contrast may have than its pair's strength gives it, and how often."""
_UNMEASURED, _RISING = 3.0, 1.0
_DISTANCES = np.geomspace(0.001, 0.5, 24)
"""Total variation of a pair from independence."""
_TYPICAL, _POOL, _ROUNDS = 0.07, 20.0, 100
SWEEPS = 3


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the measurements leave open of a model's tables.

    Attributes:
        released: What was drawn.
        model: Of the single file, with bases of its own.
        strengths: Probabilities float64[P] of the strengths of every pair, measured or not.
        none: Of measured pairs the probability that each cell is empty, float32[k_a, k_b].
        clear: The measured pairs whose noise would not hide a typical relation, or does not hide
            theirs.
    """

    released: NoisyMarginals
    model: Model
    strengths: Mapping[Group, Floats]
    none: Mapping[Group, NDArray[np.float32]]
    clear: frozenset[Group]

    @classmethod
    def of(cls, released: NoisyMarginals, model: Model) -> Posterior:
        """The posterior of everything that was measured."""
        from_centres = scores_of(released, model.one_way, model.n)
        scores = from_independence(released, from_centres, model.one_way, model.n)
        scores |= {pair: from_centres[pair] for pair in model.carried & from_centres.keys()}
        noise: dict[Group, float] = {
            pair: variance
            for pair, variance in model.residuals.variances.items()
            if len(pair) == 2 and variance
        }
        around = _centres(released, model, noise, model.one_way)
        products = {pair: model.n * table for pair, table in around.items()}
        deviations: dict[Group, Floats] = {
            pair: model.residuals.values[pair] - centred(products[pair]) for pair in noise
        }
        alike = frozenset(model.alike.pairs)
        scores = {pair: score for pair, score in scores.items() if pair not in alike}
        columns = released.domain.columns
        if len(columns) > 1:
            bases = learnt_bases(model.one_way, deviations, noise, scores, columns, _RISING)
            model = replace(model, bases=bases)
        logs: dict[Group, Floats] = {}
        cells: dict[Group, Predicted] = {}
        for pair in model.pairs:
            if pair in model.residuals.values and pair not in noise:
                continue  # known exactly
            own = _bases(model, pair)
            strengths = _strengths(_present(released.domain, model, pair), own)
            logs[pair] = _of_score(scores.get(pair), strengths, own)
            if pair in noise:
                z = own[0].vectors.T @ deviations[pair] @ own[1].vectors
                spread = np.multiply.outer(own[0].values, own[1].values)
                logs[pair] = logs[pair] + evidence(z**2, spread, noise[pair], strengths)
                weights = np.exp(logs[pair] - logs[pair].max())
                mean = float(weights @ strengths / weights.sum())
                cells[pair] = predicted(products[pair], deviations[pair], noise[pair], mean, *own)
        pooled = _pooled({pair: log for pair, log in logs.items() if pair not in alike})
        pooled |= _pooled({pair: logs[pair] for pair in alike})
        clear = frozenset(
            pair
            for pair in model.pairs.keys() & model.residuals.values.keys()
            if pair in alike
            or _largest_deviation(
                _bases(model, pair), _present(released.domain, model, pair), pooled.get(pair)
            )
            >= noise.get(pair, 0.0)
        )
        model = _implied(model, clear, released.public_generator())
        shares = shares_of_cells(cells)
        none = {p: c.chances_of_none(shares[p]).astype(np.float32) for p, c in cells.items()}
        return cls(released, model, pooled, none, clear)

    def draw(self, rng: np.random.Generator) -> Model:
        """A model whose tables are drawn with a public generator."""
        model, released = self.model, self.released
        boxes = boxes_of(released.domain)
        one_way = one_ways(released, model.residuals, model.n, boxes, smoothed=True, rng=rng)
        around = _centres(released, model, model.pairs, one_way, rng)
        pairs = {pair: self.pair(pair, one_way, rng, around[pair]) for pair in model.pairs}
        drawn = replace(model, one_way=one_way, pairs=pairs, groups={})
        groups = {group: drawn.measured(group, boxes, rng) for group in model.groups}
        return replace(drawn, groups=groups)

    def pair(
        self,
        pair: Group,
        one_way: Sequence[Floats],
        rng: np.random.Generator,
        centre: Floats | None = None,
    ) -> Floats:
        """Drawn shares float64[k_a, k_b] of a pair, with these single columns.

        Args:
            pair: Positions of its columns.
            one_way: Of every column the shares of its cells.
            rng: Public.
            centre: The shares that the pair is taken to deviate from; by default the likeliest.
        """
        model, released = self.model, self.released
        if pair not in self.strengths:  # known exactly
            return model.pairs[pair]
        if centre is None:
            centre = _centres(released, model, [pair], one_way)[pair]
        margins = one_way[pair[0]], one_way[pair[1]]
        possible = possible_cells(pair, released.sizes, boxes_of(released.domain))
        table, variance = self._cells(pair, model.n * centre, rng)
        inside = possible.copy()
        if pair in self.none:
            inside &= rng.random(possible.shape) >= self.none[pair]
        inside = nonempty(table, possible, inside)
        rows, columns = (model.n * margin for margin in margins)
        trends = trends_of(*(released.domain.columns[column] for column in pair))
        table = with_margins(table, variance, rows, columns, inside, trends) / model.n
        return table if possible.all() else fit_pair(table, *margins, possible)

    def _cells(
        self, pair: Group, centre: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """A drawn table, in records, that may be negative, and the variances of its cells."""
        n, bases = self.model.n, _bases(self.model, pair)
        strengths = _strengths(_present(self.released.domain, self.model, pair), bases)
        strength = float(rng.choice(strengths, p=self.strengths[pair]))
        prior = strength * np.multiply.outer(bases[0].values, bases[1].values)
        noise = self.model.residuals.variances.get(pair)
        one, other = (basis.vectors for basis in bases)
        if pair not in self.clear | self.model.carried:
            implied = self.model.pairs[pair]
            of_margins = np.multiply.outer(implied.sum(axis=1), implied.sum(axis=0))
            centre = centre + n * (implied - of_margins)
        if noise is None:
            mean, variance = np.zeros(prior.shape), _UNMEASURED * prior
        else:
            z = one.T @ (self.model.residuals.values[pair] - centred(centre)) @ other
            prior = prior * _factors(z, prior, noise, rng)
            mean, variance = prior / (prior + noise) * z, prior / (prior + noise) * noise
        contrasts = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
        return centre + one @ contrasts @ other.T, one**2 @ variance @ (other**2).T


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies of the records, drawn when they are asked for.

    Attributes:
        released: What was drawn.
        model: Of the single file.
        codes: Of the single file, unsigned[n, d].
        number: How many.
        targets_of: What their records are to meet, if not ``drawn_targets``.
    """

    released: NoisyMarginals
    model: Model
    codes: NDArray[np.unsignedinteger]
    number: int
    targets_of: TargetsOf | None = None

    @functools.cached_property
    def sets(self) -> tuple[NDArray[np.unsignedinteger], ...]:
        """Codes unsigned[n, d] of each copy; its generator follows from the release and its place.

        They begin with the records of the single file, or with a prior with such as have none.
        """
        if not self.number:
            return ()
        model, start = self.model, self.codes
        own, *generators = self.released.public_generator().spawn(1 + self.number)
        if self.released.prior is not None:  # which is not in intervals, so not in copies either
            model = Model.of(self.released, carried=False)
            start = synthesise(
                model,
                len(start),
                own,
                boxes=boxes_of(self.released.domain),
                known=self.released.known,
            )
        posterior = Posterior.of(self.released, model)
        beginning = Beginning.of(
            start,
            posterior.model,
            self.released.known or {},
            posterior.clear,
        )
        drawn = functools.partial(self._drawn, posterior, beginning)
        return tuple(in_threads(drawn, generators, at_once=self.at_once))

    @property
    def at_once(self) -> int:
        """How many are drawn at a time."""
        return copies_at_once(self.released.sizes, len(self.codes))

    def _drawn(
        self, posterior: Posterior, beginning: Beginning, rng: np.random.Generator
    ) -> NDArray[np.unsignedinteger]:
        return synthesise(
            posterior.draw(rng),
            len(beginning.codes),
            rng,
            boxes=boxes_of(self.released.domain),
            known=self.released.known,
            presence=Presence.of(self.released.domain),
            sweeps=SWEEPS,
            copied=beginning,
            targets_of=self.targets_of,
        )

    @functools.cached_property
    def too_short(self) -> Mapping[Group, tuple[float | None, float | None]]:
        """How many times too short intervals from one set of records are, of pairs of columns.

        The first figure is of the shares of a pair's cells, in the median over those with ``LEAST``
        records or more, the second of the slope of least squares of the second column on the first,
        if both have numbers. Each is the standard error that the copies show over the one that a
        set of records has if it is taken for the confidential one; None where there is none. Of
        more than ``MOST_COUNTED`` pairs some are counted, at even steps.
        """
        columns, sizes = self.released.domain.columns, self.released.sizes
        pairs = [
            pair
            for pair in itertools.combinations(range(len(sizes)), 2)
            if sizes[pair[0]] * sizes[pair[1]] <= _MOST_CELLS
        ]
        pairs = pairs[:: math.ceil(len(pairs) / MOST_COUNTED) or 1] if self.number else []
        n_records = self.released.n_records or self.released.residuals().present(None)
        share = len(self.codes) / n_records
        found: dict[Group, tuple[float | None, float | None]] = {}
        for start in range(0, len(pairs), _AT_ONCE):
            some = pairs[start : start + _AT_ONCE]
            for pair, *tables in zip(
                some, *(_counted(sizes, some, codes) for codes in self.sets), strict=True
            ):
                counts = np.array(tables, dtype=np.float64)
                slope = _slope_too_short(counts, [numbers_of(columns[c]) for c in pair], share)
                found[pair] = _shares_too_short(counts, share), slope
        return found


def _counted(
    sizes: Sequence[int], pairs: Sequence[Group], codes: NDArray[np.unsignedinteger]
) -> list[NDArray[np.int64]]:
    """The tables of pairs of some records, codes unsigned[n, d]."""
    counting = GroupCounts(sizes, pairs)
    counting.add({column: np.ascontiguousarray(codes[:, column]) for column in counting.columns})
    return counting.tables()


LEAST, MOST_COUNTED, _MOST_CELLS, _AT_ONCE = 10, 200, 10_000, 20


def _shares_too_short(counts: Floats, share: float) -> float | None:
    """Of the shares of cells, from counts float64[M, a, b]."""
    shares = counts / counts[0].sum()
    naive = shares * (1 - shares) / counts[0].sum()
    known = (counts.mean(axis=0) >= LEAST) & (naive.mean(axis=0) > 0)
    ratios = _ratios(shares[:, known], naive[:, known], share)
    return float(np.median(ratios)) if ratios.size else None


def _slope_too_short(counts: Floats, values: Sequence[Floats], share: float) -> float | None:
    """Of the slope of the second column on the first, from counts float64[M, a, b]."""
    there = [np.flatnonzero(np.isfinite(each)) for each in values]
    if min(map(len, there)) < 2:
        return None
    weights = counts[:, there[0]][:, :, there[1]]
    x, y = (each[codes] for each, codes in zip(values, there, strict=True))
    n = weights.sum(axis=(1, 2))
    x = x - x.mean()
    y = y - y.mean()
    with np.errstate(all="ignore"):
        mean_x, mean_y = weights.sum(axis=2) @ x / n, weights.sum(axis=1) @ y / n
        xx = weights.sum(axis=2) @ x**2 - n * mean_x**2
        yy = weights.sum(axis=1) @ y**2 - n * mean_y**2
        xy = np.einsum("mab,a,b->m", weights, x, y) - n * mean_x * mean_y
        slopes = xy / xx
        naive = (yy - slopes * xy) / (n - 2) / xx
        ratios = _ratios(slopes, naive, share)
    return float(ratios) if np.isfinite(ratios) else None


def _ratios(figures: Floats, naive: Floats, share: float) -> Floats:
    """Standard errors by Rubin's rule over naive ones; both float64[M, ...], by copy."""
    between = (1 + 1 / len(figures)) * figures.var(axis=0, ddof=1)
    within = naive.mean(axis=0)
    return np.asarray(np.sqrt((share * within + between) / within))


def _centres(
    released: NoisyMarginals,
    model: Model,
    pairs: Iterable[Group],
    one_way: Sequence[Floats],
    rng: np.random.Generator | None = None,
) -> dict[Group, Floats]:
    """Shares of the cells that pairs of these margins are taken to deviate from.

    Those of persons' columns are what all places have together, with a generator as it is drawn.
    """
    boxes = boxes_of(released.domain)
    pairs = {*pairs}
    earlier, plain = pairs & model.carried, pairs - model.carried
    found = centres(earlier, one_way, released.prior) | centres(plain, one_way, boxes=boxes)
    products = centres(model.alike.pairs, one_way, boxes=boxes)
    return found | model.alike.tables(products, rng)


def _present(domain: Domain, model: Model, pair: Group) -> float:
    """How many records have the persons that both columns of a pair are of."""
    columns = [domain.columns[column] for column in pair]
    absent = [
        model.one_way[place][-1]
        for place, column in zip(pair, columns, strict=True)
        if isinstance(column, Slot)
    ]
    return max(model.n * (1 - max(absent, default=0.0)), 1.0)


def _largest_deviation(bases: tuple[Basis, Basis], n: float, strengths: Floats | None) -> float:
    """The largest variance of a contrast of a pair that is as strong as is typical, or stronger.

    It is stronger where the measurement tells so: by the median of its probable strengths.
    """
    one, other = bases
    distance = _TYPICAL
    if strengths is not None:
        median = int(np.searchsorted(strengths.cumsum(), 0.5))
        distance = max(distance, float(_DISTANCES[min(median, len(_DISTANCES) - 1)]))
    strength = (2 * n * distance / (MEAN_ABSOLUTE * spread_of(bases))) ** 2
    return strength * float(one.values.max() * other.values.max())


def _implied(model: Model, clear: Collection[Group], rng: np.random.Generator) -> Model:
    """A model whose pairs that are not clear are as the clear ones imply."""
    if len(clear) == len(model.pairs):
        return model
    classes = LatentClasses.of(model.one_way, {pair: model.pairs[pair] for pair in clear}, rng)
    implied = {
        pair: classes.table(pair)
        for pair in model.pairs
        if pair not in clear and classes.describe(pair)
    }
    return replace(model, pairs={**model.pairs, **implied}, classes=classes)


def _bases(model: Model, pair: Group) -> tuple[Basis, Basis]:
    return model.bases[pair[0]], model.bases[pair[1]]


def _strengths(n: float, bases: tuple[Basis, Basis]) -> Floats:
    """The strengths at which a pair is expected to be so far from independence."""
    return np.asarray((2 * n * _DISTANCES / (MEAN_ABSOLUTE * spread_of(bases))) ** 2)


def _of_score(score: Score | None, strengths: Floats, bases: tuple[Basis, Basis]) -> Floats:
    if score is None:
        return np.zeros(len(strengths))
    return score.evidence(MEAN_ABSOLUTE * np.sqrt(strengths) * spread_of(bases))


def _pooled(logs: Mapping[Group, Floats]) -> dict[Group, Floats]:
    """Posterior probabilities of every pair's strengths, with a prior learnt from all pairs."""
    prior = np.exp(-0.5 * np.log(_DISTANCES / _TYPICAL) ** 2)
    prior /= prior.sum()
    likelihoods = np.array([np.exp(each - each.max()) for each in logs.values()])
    likelihoods = likelihoods.reshape(-1, len(prior))
    pooled = prior
    for _ in range(_ROUNDS):
        weights = likelihoods * pooled
        weights /= weights.sum(axis=1, keepdims=True)
        pooled = (weights.sum(axis=0) + _POOL * prior) / (len(weights) + _POOL)
    weights = likelihoods * pooled
    return dict(zip(logs, weights / weights.sum(axis=-1, keepdims=True), strict=True))


def _factors(z: Floats, prior: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """Of every contrast a factor, drawn given what was measured of it."""
    total = np.multiply.outer(FACTORS, prior) + noise
    logs = np.log(CHANCES).reshape(-1, 1, 1) - 0.5 * (np.log(total) + z**2 / total)
    chances = np.exp(logs - logs.max(axis=0))
    reached = np.cumsum(chances, axis=0) / chances.sum(axis=0)
    drawn = (rng.random(z.shape) > reached[:-1]).sum(axis=0)
    return np.asarray(FACTORS[drawn])


@dataclass(frozen=True)
class Combined:
    """Figures of all copies combined by Rubin's rule.

    Attributes:
        estimate: Their mean.
        standard_error: The root of T.
        degrees_of_freedom: Of Student's t; infinite where the copies agree.
    """

    estimate: float
    standard_error: float
    degrees_of_freedom: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Both ends of the interval."""
        from scipy.stats import t

        reach = float(t.ppf((1 + confidence) / 2, self.degrees_of_freedom)) * self.standard_error
        return self.estimate - reach, self.estimate + reach

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the figure is 0."""
        from scipy.stats import t

        if not self.standard_error:
            return float(self.estimate == 0)
        return float(2 * t.sf(abs(self.estimate) / self.standard_error, self.degrees_of_freedom))


def combined(
    figures: ArrayLike,
    variances: ArrayLike | None = None,
    *,
    share: float = 1.0,
    freedom: float = math.inf,
) -> Combined:
    """The figures of two copies or more, combined.

    With W the mean of the variances and B the variance between the M figures the variance is
    T = W + (1 + 1/M) B, with (M - 1) (T / ((1 + 1/M) B))^2 degrees of freedom. Where W has few
    itself, v, that is 1/f, and their number is 1 / (f + 1/g) with g = v (v + 1)/(v + 3) (W / T).

    Source: Rubin 1987, Multiple Imputation for Nonresponse in Surveys, 3.1; Barnard and Rubin 1999,
    doi 10.1093/biomet/86.4.948.

    Args:
        figures: float64[M], computed on each copy.
        variances: float64[M], as they were computed there, for a population that the records are a
            sample of; without, the figure is of the confidential records themselves.
        share: Rows of a copy over confidential records; variances are of copies with fewer rows.
        freedom: Degrees of freedom of a variance of one copy, as of few clusters.

    Raises:
        ConfigError: There are fewer than two figures, one is not a finite number, or the variances
            are not as many or negative.
    """
    q = np.asarray(figures, dtype=np.float64)
    w = np.zeros(q.shape) if variances is None else np.asarray(variances, dtype=np.float64) * share
    if q.ndim != 1 or len(q) < 2 or w.shape != q.shape:
        raise ConfigError("Give one figure for each of two copies or more, and as many variances.")
    if not (np.isfinite(q).all() and np.isfinite(w).all() and np.all(w >= 0)):
        raise ConfigError("A figure or a variance of a copy is not a finite number.")
    between = (1 + 1 / len(q)) * float(q.var(ddof=1))
    total = float(w.mean()) + between
    degrees = (len(q) - 1) * (total / between) ** 2 if between else math.inf
    if math.isfinite(freedom) and w.any():
        own = freedom * (freedom + 1) / (freedom + 3) * float(w.mean()) / total
        degrees = 1 / (1 / degrees + 1 / own)
    return Combined(float(q.mean()), math.sqrt(total), degrees)
