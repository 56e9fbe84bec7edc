"""What each mechanism releases, by the definition of its law and not by its sampler.

``law_of`` gives the distribution of a whole release, which can be enumerated. A mechanism whose
law cannot be is registered with ``noise_of`` instead, which says why, and what noise its
numbers have while the data do not change. A subclass has the law of its base.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.estimates.dp_bootstrap import BootstrapEstimate
from mechanisms.estimates.joint_moments import MeanEstimate
from mechanisms.estimates.noisy_quantile import QuantileOfCells
from mechanisms.estimates.pair_moments import PairEstimate
from mechanisms.estimates.subsample_split import SplitEstimate
from mechanisms.functions.bernstein_release import FunctionRelease
from mechanisms.tables.bootstrap import Bootstrap
from mechanisms.tables.density import Density
from mechanisms.tables.exponential_ks import ExponentialKS
from mechanisms.tables.exponential_records import dense_counts
from mechanisms.tables.perturbed_histogram import GaussianTable, LaplaceTable
from mechanisms.tables.sample_resample import SampleResample
from mechanisms.tables.two_resolutions import TwoResolutions

Table = tuple[int, ...]
Outcome = tuple[Any, ...]
Floats = np.ndarray[Any, np.dtype[np.float64]]
_RARE, _TAIL = 10, 1e-13


def tables(n_records: int, n_cells: int) -> list[Table]:
    """All tables of n records over the cells."""
    every = itertools.product(range(n_records + 1), repeat=n_cells)
    return [table for table in every if sum(table) == n_records]


def neighbours(n_records: int, n_cells: int, unit_records: int = 1) -> Iterator[tuple[Table, ...]]:
    """All ordered pairs of tables that differ in the records of one unit."""
    for a, b in itertools.permutations(tables(n_records, n_cells), 2):
        if sum(max(x - y, 0) for x, y in zip(a, b, strict=True)) <= unit_records:
            yield a, b


def table_of(domain: Domain, counts: Table) -> ContingencyTable:
    """The private table of counts of all cells."""
    dense = np.array(counts, np.int64)
    cells = np.flatnonzero(dense)
    return ContingencyTable(domain, cells, dense[cells])


def counts_of(raw: Any) -> Table:
    """All counts of a raw table, of cells first."""
    if isinstance(raw, ContingencyTable):
        return tuple(dense_counts(raw).tolist())
    blocks = getattr(raw, "blocks", np.array([], np.int64))
    return (*raw.counts.tolist(), *blocks.tolist())


def goodness(observed: Sequence[float], expected: Sequence[float]) -> float:
    """P-value of chi-square, with the classes expected less than ten times taken together."""
    seen, law = np.array(observed, np.float64), np.array(expected, np.float64)
    rare = law < _RARE
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        law = np.append(law[~rare], law[rare].sum())
    if len(law) < 2:
        return 1.0
    law = np.maximum(law * (seen.sum() / law.sum()), 1e-9)
    return float(stats.chisquare(seen, law).pvalue)


class Law(ABC):
    """The law of a release of one table."""

    @abstractmethod
    def divergence(self, other: Any, epsilon: float) -> float:
        """The hockey-stick divergence from another table's law, sum of (P - e^epsilon Q)+."""

    @abstractmethod
    def p_value(self, drawn: Sequence[Outcome]) -> float:
        """Of releases against this law."""

    def outcome(self, raw: Any) -> Outcome:
        """What the law is of, out of a release."""
        return counts_of(raw)


@dataclass(frozen=True)
class FiniteLaw(Law):
    """Probabilities of all outcomes."""

    masses: Mapping[Outcome, float]

    def divergence(self, other: FiniteLaw, epsilon: float) -> float:
        factor = math.exp(epsilon)
        return math.fsum(
            max(p - factor * other.masses.get(z, 0.0), 0.0) for z, p in self.masses.items()
        )

    def p_value(self, drawn: Sequence[Outcome]) -> float:
        seen = Counter(drawn)
        if set(seen) - {z for z, p in self.masses.items() if p > 0}:
            return 0.0
        return goodness(
            [seen[z] for z in self.masses], [len(drawn) * p for p in self.masses.values()]
        )

    @classmethod
    def of_weights(cls, weights: Mapping[Outcome, float]) -> FiniteLaw:
        """Of masses in proportion to the weights."""
        total = math.fsum(weights.values())
        return cls({z: weight / total for z, weight in weights.items()})


class EstimateLaw(FiniteLaw):
    """The same of the numbers of an estimate."""

    def outcome(self, raw: Any) -> Outcome:
        return tuple(number for numbers in raw.numbers.values() for number in numbers)


@dataclass(frozen=True)
class NoiseLaw(Law):
    """Integers with independent noise of one law.

    Attributes:
        centre: Without the noise.
        noise: Probabilities of -r..r; what is beyond is negligible.
    """

    centre: Table
    noise: tuple[float, ...]

    def divergence(self, other: NoiseLaw, epsilon: float) -> float:
        # Coordinates that do not move have the same factor in both laws, and cancel.
        shifts = [abs(b - a) for a, b in zip(self.centre, other.centre, strict=True) if a != b]
        return _of_shifts(self.noise, other.noise, tuple(sorted(shifts)), epsilon)

    def p_value(self, drawn: Sequence[Outcome]) -> float:
        """Of the noise of all numbers, and of the signs of each release's together."""
        noise = np.array(drawn) - np.array(self.centre)
        reach, mass = len(self.noise) // 2, np.array(self.noise)
        if np.abs(noise).max() > reach:
            return 0.0
        size = np.bincount(noise.ravel() + reach, minlength=2 * reach + 1)
        alone = goodness(size, noise.size * mass)
        signs = np.array([mass[:reach].sum(), mass[reach], mass[reach + 1 :].sum()])
        joint = functools.reduce(np.multiply.outer, [signs] * len(self.centre)).ravel()
        place = np.zeros(len(noise), np.int64)
        for column in noise.T:
            place = 3 * place + np.sign(column) + 1
        together = goodness(np.bincount(place, minlength=len(joint)), len(noise) * joint)
        return min(1.0, 2 * min(alone, together))


@functools.cache
def _of_shifts(
    noise: tuple[float, ...], others: tuple[float, ...], shifts: Table, epsilon: float
) -> float:
    first, second = np.ones(1), np.ones(1)
    p, q = np.array(noise), np.array(others)
    for shift in shifts:
        moved = np.zeros_like(q)
        moved[shift:] = q[:-shift]
        first, second = _merged(np.multiply.outer(first, p), np.multiply.outer(second, moved))
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def _merged(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Masses of outcomes of the same likelihood ratio taken together, which tell no less.

    Ratios are rounded; taking outcomes together can only lower a divergence.
    """
    p, q = first.ravel(), second.ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.round(np.log(p) - np.log(q), 9)
    _, place = np.unique(ratio, return_inverse=True)
    return np.bincount(place, weights=p), np.bincount(place, weights=q)


def laplace_noise(scale: Fraction) -> tuple[float, ...]:
    """Probabilities in proportion to exp(-|z|/scale), by the definition."""
    reach = math.ceil(-float(scale) * math.log(_TAIL))
    return _normalised(np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(scale)))


def gaussian_noise(scale: Fraction) -> tuple[float, ...]:
    """Probabilities in proportion to exp(-z^2 / (2 scale^2)), by the definition."""
    reach = math.ceil(float(scale) * math.sqrt(-2 * math.log(_TAIL)))
    return _normalised(np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(scale) ** 2)))


def _normalised(weights: Floats) -> tuple[float, ...]:
    return tuple((weights / weights.sum()).tolist())


def draws_law(shares: Sequence[Fraction], records: int) -> FiniteLaw:
    """Counts of records drawn independently from the shares."""
    return FiniteLaw(
        {
            z: math.factorial(records)
            * math.prod(float(p) ** x / math.factorial(x) for p, x in zip(shares, z, strict=True))
            for z in tables(records, len(shares))
        }
    )


@functools.singledispatch
def law_of(mechanism: Any, counts: Table) -> Law:
    """The law of the release of a table of these counts."""
    raise LookupError(f"register the law of '{mechanism.name}' with law_of or noise_of")


@law_of.register
def _(mechanism: LaplaceTable, counts: Table) -> Law:
    return NoiseLaw(counts, laplace_noise(mechanism.scale))


@law_of.register
def _(mechanism: GaussianTable, counts: Table) -> Law:
    return NoiseLaw(counts, gaussian_noise(mechanism.scale))


@law_of.register
def _(mechanism: TwoResolutions, counts: Table) -> Law:
    cells, blocks = len(counts), mechanism.blocks
    ends = [i * cells // blocks for i in range(blocks + 1)]
    sums = tuple(sum(counts[a:b]) for a, b in itertools.pairwise(ends))
    return NoiseLaw(counts + sums, gaussian_noise(mechanism.scale))


@law_of.register
def _(mechanism: Bootstrap, counts: Table) -> Law:
    total = sum(counts) + mechanism.pseudocount * len(counts)
    return draws_law([(h + mechanism.pseudocount) / total for h in counts], mechanism.records)


@law_of.register
def _(mechanism: Density, counts: Table) -> Law:
    n, w, kernel = sum(counts), mechanism.uniform, mechanism.kernel(len(counts))
    smooth = [
        sum((h * kernel.value(x, y) for x, h in enumerate(counts) if h), Fraction(0)) / n
        for y in range(len(counts))
    ]
    return draws_law([(1 - w) * p + w / len(counts) for p in smooth], mechanism.records)


@law_of.register
def _(mechanism: ExponentialKS, counts: Table) -> Law:
    """The weights exp(-epsilon n distance / 2), with the score n times distance rounded up."""
    weights: dict[Outcome, float] = {}
    for z in tables(mechanism.records, len(counts)):
        score = math.ceil(_ks_distance(counts, z) * sum(counts))
        weights[z] = _orders(z) * math.exp(-float(mechanism.epsilon) / 2 * score)
    return FiniteLaw.of_weights(weights)


@law_of.register
def _(mechanism: SampleResample, counts: Table) -> Law:
    """Over all candidates, uniform records each, of which one is chosen by its KS distance."""
    assert mechanism.distance == "ks" and mechanism.concentration is None
    n, s, k = sum(counts), len(counts), mechanism.records
    weight = {
        z: math.exp(-float(mechanism.epsilon) / 2 * n * float(_ks_distance(counts, z)))
        for z in tables(k, s)
    }
    masses: dict[Outcome, float] = dict.fromkeys(weight, 0.0)
    every = itertools.combinations_with_replacement(weight, mechanism.candidates)
    for public in every:
        ways = _orders(tuple(Counter(public).values()))
        chance = ways * math.prod(_orders(z) / s**k for z in public)
        total = math.fsum(weight[z] for z in public)
        for z in public:
            masses[z] += chance * weight[z] / total
    return FiniteLaw(masses)


def _orders(counts: Table) -> int:
    """In how many orders the records can be drawn."""
    return math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))


def _ks_distance(h: Table, z: Table) -> Fraction:
    n, k = sum(h), sum(z)
    gaps = itertools.accumulate(Fraction(a, n) - Fraction(b, k) for a, b in zip(h, z, strict=True))
    return max(abs(gap) for gap in gaps)


@law_of.register
def _(mechanism: QuantileOfCells, counts: Table) -> Law:
    """Three independent choices among the cells, at a third of epsilon each."""
    assert mechanism.quantile is not None and mechanism.cells is not None
    ends = [0, *itertools.accumulate(counts)]
    last = len(counts) - 1
    centre, low, high = mechanism.quantile.wanted

    def choice(wanted: int) -> dict[int, float]:
        gaps = [max(a - wanted, wanted - b, 0) for a, b in itertools.pairwise(ends)]
        weights = [math.exp(-float(mechanism.epsilon) / 6 * gap) for gap in gaps]
        return {at: weight / math.fsum(weights) for at, weight in enumerate(weights)}

    lower = choice(low) if low >= 0 else {0: 1.0}
    upper = choice(high) if high <= sum(counts) else {last: 1.0}
    cells = mechanism.cells
    return EstimateLaw(
        {
            (float(cells.middle[a]), float(cells.first[b]), float(cells.last[c])): p * q * r
            for (a, p), (b, q), (c, r) in itertools.product(
                choice(centre).items(), lower.items(), upper.items()
            )
        }
    )


@dataclass(frozen=True)
class Noise:
    """Noise on numbers, in fixed data.

    Attributes:
        sd: Standard deviation of each group of numbers.
        laplace: Whether it is Laplace noise, else Gaussian.
        reason: Why the law of a release is not enumerated.
    """

    sd: Mapping[str, float]
    reason: str
    laplace: bool = False

    def numbers(self, raw: Any) -> dict[str, Floats]:
        """The released numbers float64[k] by group."""
        if hasattr(raw, "numbers"):
            found: Mapping[str, Any] = raw.numbers
        else:
            found = {"counts": raw.counts}
        return {name: np.ravel(np.array(each, np.float64)) for name, each in found.items()}

    def p_value(self, drawn: Sequence[Any]) -> float:
        """Of releases of a table that resampling leaves as it is."""
        groups: dict[str, list[Floats]] = {}
        for raw in drawn:
            for name, numbers in self.numbers(raw).items():
                groups.setdefault(name, []).append(numbers)
        if set(groups) != set(self.sd):
            return 0.0
        family = stats.laplace if self.laplace else stats.norm
        values = []
        for name, rows in groups.items():
            found = np.array(rows)
            scale = self.sd[name] / (math.sqrt(2) if self.laplace else 1.0)
            noise = (found - found.mean(axis=0)) / scale  # a mean of many hardly moves the law
            values.append(float(stats.kstest(noise.ravel(), family.cdf).pvalue))
        return min(1.0, len(values) * min(values))


_FINE = "its noise lies on a grid so fine that outputs cannot be listed; its loss is that of {}"


@functools.singledispatch
def noise_of(mechanism: Any) -> Noise:
    """The noise of a release whose law cannot be enumerated."""
    raise LookupError(f"register the law of '{mechanism.name}' with law_of or noise_of")


@noise_of.register
def _(mechanism: MeanEstimate) -> Noise:
    moments = mechanism.moments
    sds = {"sum": float(moments.scale), "sum_of_squares": float(moments.square_scale)}
    return Noise(sds, _FINE.format("two sums, see test_joint_moments.py"))


@noise_of.register
def _(mechanism: PairEstimate) -> Noise:
    sds = {"sums": mechanism.moments.noise.sigma}
    return Noise(sds, _FINE.format("fourteen sums, see test_pair_moments.py"))


@noise_of.register
def _(mechanism: SplitEstimate) -> Noise:
    sds = {"value": mechanism.split.full.sigma, "parts": mechanism.split.part.sigma}
    return Noise(sds, _FINE.format("noisy subsamples, see test_resampling_losses.py"))


@noise_of.register
def _(mechanism: BootstrapEstimate) -> Noise:
    noise = mechanism.bootstrap.noise
    sds = {f"replicates_{i}": noise.sigma for i in range(1, noise.dimension + 1)}
    return Noise(sds, _FINE.format("noisy resamples, see test_resampling_losses.py"))


@noise_of.register
def _(mechanism: FunctionRelease) -> Noise:
    laplace = mechanism.noise == "laplace"
    factor = math.sqrt(2) if laplace else 1.0
    reason = _FINE.format("values on a lattice, see test_bernstein.py")
    return Noise({"counts": factor * float(mechanism.scale)}, reason, laplace)


def has_law(mechanism: type) -> bool:
    """Whether its law is registered."""
    return law_of.dispatch(mechanism) is not law_of.dispatch(object)


def has_noise(mechanism: type) -> bool:
    """Whether its noise is registered, with a reason."""
    return noise_of.dispatch(mechanism) is not noise_of.dispatch(object)
