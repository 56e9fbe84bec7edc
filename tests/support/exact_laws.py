"""What each mechanism releases, by the definition of its law and not by its sampler.

``law_of`` gives the distribution of a whole release, which can be enumerated. A mechanism whose
law cannot be is registered with ``noise_of`` instead, which says why, and what noise its
numbers have while the data do not change. A subclass has the law of its base.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from density_law import cell_probabilities
from law_values import (
    EstimateLaw,
    FiniteLaw,
    Law,
    Noise,
    NoiseLaw,
    Outcome,
    draws_law,
    gaussian_noise,
    laplace_noise,
)
from neighbouring import Table, orders, tables

from statpress.mechanisms.estimates.dp_bootstrap import BootstrapEstimate
from statpress.mechanisms.estimates.joint_moments import MeanEstimate
from statpress.mechanisms.estimates.noisy_quantile import NoisyQuantile, QuantileOfCells
from statpress.mechanisms.estimates.pair_moments import PairEstimate
from statpress.mechanisms.estimates.regression_moments import RegressionEstimate
from statpress.mechanisms.estimates.subsample_split import SplitEstimate
from statpress.mechanisms.functions.bernstein import FunctionRelease
from statpress.mechanisms.marginals.linked_marginals import LinkedMarginals
from statpress.mechanisms.marginals.marginals import Marginals
from statpress.mechanisms.places.place_tables import PlaceTables
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.density import Density
from statpress.mechanisms.tables.exponential_ks import ExponentialKS
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable
from statpress.mechanisms.tables.sample_resample import SampleResample
from statpress.mechanisms.tables.two_resolutions import TwoResolutions


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
    kernel = mechanism.kernel(len(counts))
    shares = cell_probabilities(np.array(counts), kernel, mechanism.uniform)
    return draws_law(shares, mechanism.records)


@law_of.register
def _(mechanism: ExponentialKS, counts: Table) -> Law:
    """The weights exp(-epsilon n distance / 2), with the score n times distance rounded up."""
    weights: dict[Outcome, float] = {}
    for z in tables(mechanism.records, len(counts)):
        score = math.ceil(_ks_distance(counts, z) * sum(counts))
        weights[z] = orders(z) * math.exp(-float(mechanism.epsilon) / 2 * score)
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
        ways = orders(tuple(Counter(public).values()))
        chance = ways * math.prod(orders(z) / s**k for z in public)
        total = math.fsum(weight[z] for z in public)
        for z in public:
            masses[z] += chance * weight[z] / total
    return FiniteLaw(masses)


def _ks_distance(h: Table, z: Table) -> Fraction:
    n, k = sum(h), sum(z)
    gaps = itertools.accumulate(Fraction(a, n) - Fraction(b, k) for a, b in zip(h, z, strict=True))
    return max(abs(gap) for gap in gaps)


@law_of.register
def _(mechanism: QuantileOfCells, counts: Table) -> Law:
    """Both ends, 5/12 of epsilon each, then the value between them by a sixth."""
    assert mechanism.quantile is not None and mechanism.cells is not None
    sums = [0, *itertools.accumulate(counts)]
    last = len(counts) - 1
    centre, low, high = mechanism.quantile.wanted
    epsilon, ends = float(mechanism.epsilon), mechanism.quantile.ends
    guarded = float(ends.steep) / (epsilon * 5 / 12)

    def choice(
        wanted: int, above: float, below: float, among: range, base: Iterable[int] = ()
    ) -> dict[int, float]:
        costs = (
            max(above * (sums[at] - wanted), below * (wanted - sums[at + 1]), 0) for at in among
        )
        each = itertools.zip_longest(costs, base, fillvalue=1)
        weights = [weight * math.exp(-cost) for cost, weight in each]
        return {at: each / math.fsum(weights) for at, each in zip(among, weights, strict=True)}

    steep, gentle = (epsilon * 5 / 12 * part for part in (guarded, 1 - guarded))
    every = range(last + 1)
    lower = choice(low, steep, gentle, every) if low >= 0 else {0: 1.0}
    upper = choice(high, gentle, steep, every) if high <= sum(counts) else {last: 1.0}
    masses: dict[Outcome, float] = {}
    for (b, p), (c, q) in itertools.product(lower.items(), upper.items()):
        between = range(min(b, c), max(b, c) + 1)
        base = _base_weights(mechanism.quantile, len(between))
        for a, r in choice(centre, epsilon / 12, epsilon / 12, between, base).items():
            cells = mechanism.cells
            key = (
                float(cells.middle[a]), float(cells.first[b]), float(cells.last[c]), abs(c - b) + 1
            )  # fmt: skip
            masses[key] = masses.get(key, 0.0) + p * q * r
    return EstimateLaw(masses)


def _base_weights(quantile: NoisyQuantile, count: int) -> list[int]:
    """Of as many cells between the ends: 1, 4, 16 towards where the quantile is expected."""
    n, (_, low, high) = quantile.n_records, quantile.wanted
    first, last = max(low, 0), min(high, n)
    middle = (quantile.share * n - first) / (last - first)
    found = [1] * count
    for third in (Fraction(1, 3), Fraction(2, 3)):
        for at in range(count):
            inside = math.floor(count * middle * third) <= at
            inside &= at < count - math.floor(count * (1 - middle) * third)
            found[at] *= 4 if inside else 1
    return found


_FINE = "its noise lies on a grid so fine that outputs cannot be listed; its loss is that of {}"


@functools.singledispatch
def noise_of(mechanism: Any) -> Noise:
    """The noise of a release whose law cannot be enumerated."""
    raise LookupError(f"register the law of '{mechanism.name}' with law_of or noise_of")


@noise_of.register
def _(mechanism: MeanEstimate) -> Noise:
    moments = mechanism.moments
    sds = {"sum": float(moments.scale), "sum_of_squares": float(moments.square_scale)}
    if moments.count_scale is not None:
        sds["records"] = float(moments.count_scale)
    return Noise(sds, _FINE.format("two sums, see test_joint_moments.py"))


@noise_of.register
def _(mechanism: PairEstimate) -> Noise:
    sds = {"sums": mechanism.moments.noise.sigma}
    return Noise(sds, _FINE.format("several sums, see test_pair_moments.py"))


@noise_of.register
def _(mechanism: RegressionEstimate) -> Noise:
    sds = {"sums": mechanism.moments.noise.sigma}
    return Noise(sds, _FINE.format("several sums, see test_regression_moments.py"))


@noise_of.register
def _(mechanism: SplitEstimate) -> Noise:
    sds = {"value": mechanism.resamples.full.sigma, "parts": mechanism.resamples.part.sigma}
    return Noise(sds, _FINE.format("noisy subsamples, see test_resampling_losses.py"))


@noise_of.register
def _(mechanism: BootstrapEstimate) -> Noise:
    noise = mechanism.resamples.noise
    sds = {f"replicates_{i}": noise.sigma for i in range(1, noise.dimension + 1)}
    return Noise(sds, _FINE.format("noisy resamples, see test_resampling_losses.py"))


@noise_of.register
def _(mechanism: FunctionRelease) -> Noise:
    laplace = mechanism.noise == "laplace"
    factor = math.sqrt(2) if laplace else 1.0
    reason = _FINE.format("values on a lattice, see test_bernstein.py")
    return Noise({"counts": factor * float(mechanism.scale)}, reason, laplace)


@noise_of.register
def _(mechanism: Marginals) -> Noise:
    """Of a single column, which gets the whole budget."""
    squared = 2 * mechanism.unit_records**2 / mechanism.mu**2
    reason = _FINE.format("one table, see test_marginal_steps.py and test_marginals_sampler.py")
    return Noise({"column_0": math.sqrt(squared)}, reason)


@noise_of.register
def _(mechanism: LinkedMarginals) -> Noise:
    """Of columns, which share a part of the budget by the power 2/3 of their cells."""
    parts = np.array(mechanism.sizes) ** (2 / 3)
    squared = 2 / (mechanism.mu**2 * Fraction(mechanism.shares.one_way) * parts / parts.sum())
    sds = {f"column_{i}": math.sqrt(each) for i, each in enumerate(squared)}
    return Noise(sds, _FINE.format("tables, see test_marginal_steps.py"))


@noise_of.register
def _(mechanism: PlaceTables) -> Noise:
    """Of tables of two levels without only children."""
    squared = 2 * mechanism.unit_records**2 / mechanism.mu**2
    reason = _FINE.format("tables of places, see test_place_tables.py")
    shares = enumerate(table.share for table in mechanism.tables)
    return Noise({f"table_{i}": math.sqrt(squared / share) for i, share in shares}, reason)


def has_law(mechanism: type) -> bool:
    """Whether its law is registered."""
    return law_of.dispatch(mechanism) is not law_of.dispatch(object)


def has_noise(mechanism: type) -> bool:
    """Whether its noise is registered, with a reason."""
    return noise_of.dispatch(mechanism) is not noise_of.dispatch(object)
