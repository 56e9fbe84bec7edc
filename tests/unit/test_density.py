"""Density estimates and smoothed histograms: exact laws, claims, estimates, what is refused."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from density_law import cell_probabilities, value_of
from neighbouring import Table, multinomial, tables, worst

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import (
    ConfigError,
    InfeasibleBudgetError,
    RecordsError,
    StatpressError,
)
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.density import (
    Density,
    DensityKnobs,
    HistogramKernel,
    Kernel,
    SmoothedHistogram,
    SmoothedHistogramKnobs,
    TableKernel,
    _balanced_draws,
    density_epsilon,
    draw_ratio,
    gaussian_kernel,
    round_kernel,
    sample_density,
)
from statpress.mechanisms.tables.exponential_ks import sparse_table
from statpress.tasks.release.entropy import SeededRandomness

KERNELS: dict[str, Kernel] = {
    "cells": HistogramKernel(np.arange(3)),
    "uneven bins": HistogramKernel(np.array([1, 0, 0])),
    "one bin": HistogramKernel(np.array([0, 0, 0])),
    "gaussian": gaussian_kernel(3, 0.8, 8),
    "wide gaussian": gaussian_kernel(3, 30.0),
    "uneven": TableKernel(np.array([[4, 0, 0], [1, 2, 1], [1, 0, 3]]), 2),
    "one cell": gaussian_kernel(1, 1.0),
}
KINDS = pytest.mark.parametrize("name", KERNELS)


def delta(kernel: Kernel, n: int, c: int, m: int, w: Fraction, factor: Fraction) -> Fraction:
    """Delta at e^epsilon = factor, by enumeration of all neighbours and releases."""
    laws = {
        table: multinomial(cell_probabilities(np.array(table), kernel, w), m)
        for table in tables(n, kernel.n_cells)
    }
    return Fraction(worst(laws, c, factor))


@KINDS
@pytest.mark.parametrize(("n", "c", "m"), [(1, 1, 2), (3, 1, 2), (3, 2, 1), (2, 2, 2)])
def test_claim_holds_and_is_tight(name: str, n: int, c: int, m: int) -> None:
    kernel, w = KERNELS[name], Fraction(1, 5)
    factor = draw_ratio(kernel, w, n, c) ** m
    assert delta(kernel, n, c, m, w, factor) == 0
    if factor > 1:
        assert delta(kernel, n, c, m, w, factor * (1 - Fraction(1, 10**6))) > 0


@pytest.mark.parametrize("name", ["cells", "uneven bins", "gaussian", "uneven"])
def test_a_claim_for_another_share_is_refuted(name: str) -> None:
    """The mixture ignored, and half the share claimed in full."""
    kernel, claim = KERNELS[name], draw_ratio(KERNELS[name], Fraction(1, 5), 3) ** 2
    for used in (Fraction(1, 10**6), Fraction(1, 10)):
        assert delta(kernel, 3, 1, 2, used, claim) > 0


def test_theorem_8_is_the_histogram_of_equal_bins() -> None:
    kernel = HistogramKernel(np.repeat(np.arange(4), 5))
    w, n, c, bins = Fraction(1, 7), 50, 3, 4
    assert draw_ratio(kernel, w, n, c) == 1 + (1 - w) * c * bins / (n * w)


@KINDS
def test_ratio_is_below_the_closed_bound(name: str) -> None:
    """1 + (1 - w) c K_max s / (n w), K_max s being the largest density of a kernel."""
    kernel, w, n, c = KERNELS[name], Fraction(1, 7), 5, 2
    cells = range(kernel.n_cells)
    largest = max(value_of(kernel, x, y) for x in cells for y in cells)
    limit = 1 + (1 - w) * c * largest * kernel.n_cells / (n * w)
    assert draw_ratio(kernel, w, n, c) <= limit
    assert draw_ratio(kernel, Fraction(1), n, c) == 1


@KINDS
def test_extremes_are_those_of_the_values(name: str) -> None:
    kernel = KERNELS[name]
    cells = range(kernel.n_cells)
    columns = [[value_of(kernel, x, y) for x in cells] for y in cells]
    assert kernel.extremes() == {(min(column), max(column)) for column in columns}
    assert all(sum(value_of(kernel, x, y) for y in cells) == 1 for x in cells)


@KINDS
def test_probabilities_add_up(name: str) -> None:
    kernel = KERNELS[name]
    for table in tables(2, kernel.n_cells):
        assert sum(cell_probabilities(np.array(table), kernel, Fraction(2, 9))) == 1


@pytest.mark.parametrize("name", ["cells", "gaussian", "wide gaussian", "one bin"])
def test_epsilon_encloses_the_logarithm(name: str) -> None:
    kernel, w = KERNELS[name], Fraction(1, 10**3)
    for m, n in ((1, 10), (10**6, 10**9)):
        found = density_epsilon(kernel, w, m, n_records=n)
        ratio = draw_ratio(kernel, w, n)
        with mpmath.workdps(60):
            exact = m * mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
            assert found.lower <= exact <= found.upper
        assert found.upper - found.lower <= 1e-15 * found.upper


class Scripted:
    """A generator whose integers are given in order, and are within the bounds asked for."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def integers(self, low: int, high: object, size: object = None, **_: object) -> np.ndarray:
        if isinstance(size, tuple):
            return np.full(size, self.values.pop(0), dtype=np.uint64)
        count = int(size) if isinstance(size, int) else np.size(high)  # type: ignore[arg-type]
        drawn = np.array([self.values.pop(0) for _ in range(count)], dtype=np.int64)
        assert np.all((drawn >= low) & (drawn < np.asarray(high)))
        return drawn


def law_of_one_draw(table: Table, kernel: Kernel, steps: Callable[[int], int]) -> list[Fraction]:
    """The law of a draw that is not from the uniform part, over all integers it can get."""
    found = [Fraction(0)] * kernel.n_cells
    for rank in range(sum(table)):
        origin = int(np.searchsorted(np.cumsum(table), rank, side="right"))
        for step in range(steps(origin)):
            # The first word's top three bits are 2, of 0..3, of which 0 is the uniform part.
            rng = Scripted(2 << 61, rank, step)
            drawn = sample_density(np.array(table), kernel, Fraction(1, 4), 1, rng)  # type: ignore[arg-type]
            found[int(drawn.argmax())] += Fraction(1, sum(table) * steps(origin))
    return found


def test_part_from_the_data_by_enumeration() -> None:
    uneven, bins = KERNELS["uneven"], KERNELS["uneven bins"]
    for table in ((2, 0, 1), (0, 3, 1), (0, 0, 2)):
        for kernel, steps in ((uneven, lambda _: 4), (bins, lambda x: (1, 2, 2)[x])):
            found = law_of_one_draw(table, kernel, steps)
            mixed = [p * Fraction(3, 4) + Fraction(1, 12) for p in found]
            assert mixed == cell_probabilities(np.array(table), kernel, Fraction(1, 4))


@KINDS
@pytest.mark.parametrize("w", [Fraction(1), Fraction(1, 3), Fraction(1, 10**30)])
def test_draws_add_up(name: str, w: Fraction) -> None:
    kernel, rng = KERNELS[name], np.random.default_rng(1)
    table = np.array([0, 3, 1][-kernel.n_cells :])
    for m in (0, 1, 400):
        drawn = sample_density(table, kernel, w, m, rng)
        assert drawn.shape == (kernel.n_cells,)
        assert drawn.sum() == m


def test_rounding_keeps_the_kernel_near() -> None:
    weights = np.random.default_rng(2).integers(0, 2**32, (40, 40))
    kernel = round_kernel(weights, 30)
    exact = weights / weights.sum(axis=1, keepdims=True)
    assert np.abs(kernel.table / 2.0**30 - exact).max() < 41 * 2.0**-30


@pytest.mark.parametrize("bandwidth", [0.01, 0.7, 5.0, 1e6])
def test_gaussian_kernel_is_near_its_density(bandwidth: float) -> None:
    steps = np.arange(12)
    exact = np.exp(-0.5 * ((steps[:, None] - steps) / bandwidth) ** 2)
    exact /= exact.sum(axis=1, keepdims=True)
    found = gaussian_kernel(12, bandwidth).table / 2.0**30
    assert np.abs(found - exact).max() < 13 * 2.0**-30


def test_arguments_out_of_range() -> None:
    kernel, rng = KERNELS["cells"], np.random.default_rng()
    for w in (Fraction(0), Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(ValueError, match="uniform share"):
            sample_density(np.array([1, 0, 0]), kernel, w, 1, rng)
        with pytest.raises(ValueError, match="uniform share"):
            draw_ratio(kernel, w, 3)
    for table in ([0, 0, 0], [1, 2], [2, -1, 1]):
        with pytest.raises(ValueError, match="needs a count"):
            sample_density(np.array(table), kernel, Fraction(1, 2), 1, rng)
    with pytest.raises(ValueError, match="unit_records"):
        draw_ratio(kernel, Fraction(1, 2), 3, 4)
    for bins in ([], [0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="bin"):
            HistogramKernel(np.array(bins, dtype=np.int64))
    for table in ([[1, 2], [2, 2]], [[-1, 5], [2, 2]], [[4, 0]]):
        with pytest.raises(ValueError, match="kernel"):
            TableKernel(np.array(table), 2)
    with pytest.raises(ValueError, match="bandwidth"):
        gaussian_kernel(3, 0.0)


# Density estimates and smoothed histograms as a config names them: claims, estimates, input


def domain(*sizes: int) -> Domain:
    """Columns of so many cells."""
    named = zip("abc", sizes, strict=False)
    return Domain(tuple(Integer(name=n, lower=0, upper=size - 1) for n, size in named))


def one_draw(mechanism: Density | SmoothedHistogram, table: Table) -> list[Fraction]:
    """The law of a draw, by the definition."""
    if isinstance(mechanism, Density):
        kernel = mechanism.kernel(len(table))
        return cell_probabilities(np.array(table), kernel, mechanism.uniform)
    total = sum(table) + mechanism.pseudocount * len(table)
    return [(count + mechanism.pseudocount) / total for count in table]


def delta_as_named(
    mechanism: Density | SmoothedHistogram, n: int, s: int, c: int, factor: float
) -> float:
    """Delta at e^epsilon = factor, by enumeration of all neighbours and releases."""
    laws = {t: multinomial(one_draw(mechanism, t), mechanism.records) for t in tables(n, s)}
    return float(worst(laws, c, Fraction(factor)))


MECHANISMS: dict[str, Density | SmoothedHistogram] = {
    "cells": Density(records=2, uniform=Fraction(1, 5)),
    "bins": Density(records=2, uniform=Fraction(1, 7), bins=2),
    "kde": Density(
        records=2, uniform=Fraction(1, 5), estimator="kde", bandwidth=Fraction(4, 5)
    ),
    "smoothed": SmoothedHistogram(Fraction(1, 3), 2),
}  # fmt: skip
KINDS_AS_NAMED = pytest.mark.parametrize("name", MECHANISMS)


@KINDS_AS_NAMED
@pytest.mark.parametrize(("n", "s", "c"), [(1, 3, 1), (3, 3, 1), (3, 3, 2), (2, 4, 1)])
def test_the_release_costs_its_loss_and_no_less(name: str, n: int, s: int, c: int) -> None:
    mechanism = MECHANISMS[name]
    claimed = mechanism.loss(n_records=n, n_cells=s, unit_records=c)
    epsilon = claimed.pure_epsilon.upper
    for share in (0.0, 0.3, 0.7, 1.0):
        factor = math.exp(epsilon * share)
        found, bound = (
            delta_as_named(mechanism, n, s, c, factor),
            claimed.delta(epsilon * share).upper,
        )
        assert found <= bound + 1e-12
        if name == "smoothed" and n + s > 4:
            assert found == pytest.approx(bound, abs=1e-12)
    assert (
        delta_as_named(mechanism, n, s, c, math.exp(epsilon * (1 - 1e-6))) > 0
    )  # tight at delta 0


@KINDS_AS_NAMED
def test_less_smoothing_than_is_claimed_costs_more(name: str) -> None:
    """The broken twin: half the uniform share, or half the pseudocount."""
    mechanism = MECHANISMS[name]
    epsilon = mechanism.loss(n_records=3, n_cells=3).pure_epsilon.upper
    if isinstance(mechanism, Density):
        twin: Density | SmoothedHistogram = replace(mechanism, uniform=mechanism.uniform / 2)
    else:
        twin = SmoothedHistogram(mechanism.pseudocount / 2, 2)
    assert delta_as_named(twin, 3, 3, 1, math.exp(epsilon)) > 1e-3


@pytest.mark.parametrize("weight", [Fraction(1, 7), Fraction(9, 10)])
def test_all_three_are_one_mechanism_on_plain_cells(weight: Fraction) -> None:
    """Theorem 8's histogram, its bootstrap form, and the density estimate with a bin a cell."""
    target = Target(epsilon=9.0, delta=0.0, n_records=40, n_cells=6, unit_records=3)
    frame = target.frame
    knobs = SmoothedHistogramKnobs(records=4, uniform=weight)
    smoothed = SmoothedHistogram.calibrate(knobs, target)
    density = Density(records=4, uniform=weight)
    assert one_draw(smoothed, (9, 0, 1, 30, 0, 0)) == one_draw(density, (9, 0, 1, 30, 0, 0))
    equation_8 = 4 * math.log(float((1 - weight) * 3 * 6 / (40 * weight)) + 1)
    for loss in (smoothed.loss(**frame), density.loss(**frame)):
        assert loss.pure_epsilon.lower <= equation_8 * (1 + 1e-12)
        assert loss.pure_epsilon.upper >= equation_8 * (1 - 1e-12)
    plain = Bootstrap(smoothed.pseudocount, 4)
    assert smoothed.loss(**frame) == plain.loss(**frame)
    drawn = sparse_table(domain(6), [3, 0, 1, 0, 0, 0])
    one, other = (m.postprocess(drawn, n_records=40) for m in (smoothed, density))
    assert one.estimates.tolist() == other.estimates.tolist()
    assert smoothed.expected_error(n_records=40, n_cells=6) == density.expected_error(
        n_records=40, n_cells=6
    )
    assert smoothed.unbiased and density.unbiased
    assert smoothed.pure and not plain.pure


@KINDS_AS_NAMED
def test_estimates_are_right_on_average_where_they_say_so(name: str) -> None:
    mechanism, table = MECHANISMS[name], (5, 0, 1, 2)
    averages = [Fraction(0)] * 4
    for z, probability in multinomial(one_draw(mechanism, table), mechanism.records).items():
        found = mechanism.postprocess(sparse_table(domain(4), z), n_records=8)
        values = [found.undrawn_estimate] * 4
        for cell, estimate in zip(found.cells, found.estimates, strict=True):
            values[int(cell)] = float(estimate)
        averages = [a + probability * Fraction(v) for a, v in zip(averages, values, strict=True)]
    error = max(abs(float(a) - h) for a, h in zip(averages, table, strict=True))
    assert (error < 1e-12) is mechanism.unbiased
    if isinstance(mechanism, Density) and not mechanism.unbiased:  # of the smoothed counts alone
        kernel = mechanism.kernel(4)
        smooth = [sum(h * value_of(kernel, x, y) for x, h in enumerate(table)) for y in range(4)]
        assert [float(a) for a in averages] == pytest.approx([float(v) for v in smooth])


KNOBS = [
    DensityKnobs(),
    DensityKnobs(bins=4),
    DensityKnobs(estimator="kde"),
    DensityKnobs(estimator="kde", bandwidth=Fraction(9, 4), records=3),
    DensityKnobs(records=5),
    SmoothedHistogramKnobs(),
    SmoothedHistogramKnobs(records=5),
]


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize(
    "budget",
    [
        {"epsilon": 0.5, "delta": 0.0},
        {"epsilon": 1 / 3, "delta": 0.0, "unit_records": 7},
        {"epsilon": 3.0, "delta": 1e-6},
        {"epsilon": 0.0, "delta": 0.0, "rho": 0.05, "unit_records": 2},
    ],
)
def test_calibration_meets_the_budget_with_the_least_noise(
    knobs: Any, budget: dict[str, Any]
) -> None:
    kind: Any = Density if isinstance(knobs, DensityKnobs) else SmoothedHistogram
    target = Target(n_records=1000, n_cells=12, **budget)
    mechanism = kind.calibrate(knobs, target)
    assert target.allows(mechanism.loss(**target.frame))
    if kind is Density:
        less: Any = replace(mechanism, uniform=mechanism.uniform * Fraction(98, 100))
    else:
        less = kind(mechanism.pseudocount * Fraction(98, 100), mechanism.records)
    assert not target.allows(less.loss(**target.frame))
    described = {name: str(value) for name, value in mechanism.describe().items()}
    assert kind.from_description(described) == mechanism
    assert described["mechanism"] == kind.name


def test_default_draws_balance_sampling_against_the_uniform_share() -> None:
    """The least of w^2 + 1/(4m) at w = B m/(n epsilon), as the proof of Theorem 9 has it."""
    for n, epsilon, bins in ((10**6, Fraction(1), 10), (10**5, Fraction(1, 4), 40)):
        found = _balanced_draws(n, epsilon, Fraction(bins))

        def bound(m: int, scale: float = float(bins / (n * epsilon))) -> float:
            return (m * scale) ** 2 + 1 / (4 * m)

        assert bound(found) <= min(bound(found - 1), bound(found + 1))
        target = Target(epsilon=float(epsilon), delta=0.0, n_records=n, n_cells=bins)
        assert Density.calibrate(DensityKnobs(), target).records == found
        assert SmoothedHistogram.calibrate(SmoothedHistogramKnobs(), target).records == found
    # Theorem 9: m grows as n^(2/(r + 3)) if the bins do as n^(r/(r + 3)).
    for r in (1, 2, 5):
        small, large = (
            _balanced_draws(n, Fraction(1), Fraction(round(n ** (r / (r + 3)))))
            for n in (10**12, 10**18)
        )
        assert large / small == pytest.approx(10 ** (6 * 2 / (r + 3)), rel=0.02)
    assert _balanced_draws(10, Fraction(1, 1000), Fraction(500)) == 1


def test_one_cell_costs_nothing_and_is_released() -> None:
    target = Target(epsilon=1.0, delta=0.0, n_records=8, n_cells=1)
    rng = SeededRandomness(np.random.PCG64(1))
    for kind, knobs in (
        (Density, DensityKnobs()),
        (Density, DensityKnobs(estimator="kde")),
        (SmoothedHistogram, SmoothedHistogramKnobs()),
    ):
        mechanism: Any = kind.calibrate(knobs, target)
        assert mechanism.loss(**target.frame).pure_epsilon == (0.0, 0.0)
        assert mechanism.release(sparse_table(domain(1), [8]), rng).n_records == mechanism.records


def test_many_draws_come_in_chunks() -> None:
    told: list[int] = []
    private = sparse_table(domain(2, 3), [0, 9, 0, 0, 0, 1])
    drawn = Density(records=250, uniform=Fraction(1, 2)).release(
        private, SeededRandomness(np.random.PCG64(1)), told.append, chunk=100
    )
    assert (drawn.n_records, told) == (250, [100, 100, 50])
    assert drawn.domain == private.domain


def target(n: int = 1000, shape: Table = (12,)) -> Target:
    cells = math.prod(shape)
    return Target(epsilon=0.5, delta=0.0, n_records=n, n_cells=cells, shape=shape)


def calibrate(target: Target, **knobs: Any) -> Callable[[], Any]:
    return lambda: Density.calibrate(DensityKnobs(**knobs), target)


@pytest.mark.parametrize(
    ("refused", "error", "words"),
    [
        (calibrate(target(shape=(3, 4)), bins=4), ConfigError, "1 column.*'smoothed_histogram'"),
        (calibrate(target(shape=(3, 4)), estimator="kde"), ConfigError, "1 column"),
        (calibrate(target(shape=(2001,)), estimator="kde"), ConfigError, "at most 2,000"),
        (calibrate(target(shape=(1_000_001,))), ConfigError, "at most 1,000,000"),
        (calibrate(target(), bins=13), ConfigError, "13 bins are more than the 12"),
        (calibrate(target(), records=10**6), InfeasibleBudgetError, "12.0\\d+.*fewer records"),
        (calibrate(target(), records=10, uniform=Fraction(1, 10)), InfeasibleBudgetError,
         "need an epsilon of 1.0\\d+.*share of 0.19"),
        (calibrate(target(), estimator="spline"), ConfigError, "'histogram' or 'kde'"),
        (calibrate(target(), bandwidth=Fraction(1)), ConfigError, "kde"),
        (calibrate(target(), estimator="kde", bins=3), ConfigError, "histogram"),
        (calibrate(target(), estimator="kde", bandwidth=Fraction(1, 101)), ConfigError, "1/100"),
        (calibrate(target(), estimator="kde", bandwidth=Fraction(1, 3**19)), ConfigError, "1/100"),
        (calibrate(target(), estimator="kde", bandwidth=Fraction(3**20 + 1, 3**20)), ConfigError,
         "9 decimals"),
        (calibrate(target(), uniform=Fraction(0)), ConfigError, "above 0"),
        (calibrate(target(), records=0), RecordsError, "between 1"),
        (lambda: SmoothedHistogramKnobs(uniform=Fraction(1)), ConfigError, "below 1"),
        (lambda: SmoothedHistogramKnobs(records=0), RecordsError, "between 1"),
        (lambda: Density(records=1, uniform=Fraction(1, 2), estimator="kde"), ConfigError,
         "bandwidth"),
        (lambda: MECHANISMS["cells"].loss(n_records=2, n_cells=3, unit_records=3), RecordsError,
         "unit"),
        (lambda: SmoothedHistogram.calibrate(
            SmoothedHistogramKnobs(records=40, uniform=Fraction(1, 10)), target()),
         InfeasibleBudgetError, "need an epsilon of 4.\\d+.*share of 0.4"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_what_would_do(
    refused: Callable[[], Any], error: type[StatpressError], words: str
) -> None:
    with pytest.raises(error) as caught:
        refused()
    assert re.search(words, str(caught.value))


@pytest.mark.parametrize(
    ("kind", "knobs"),
    [
        (Density, DensityKnobs(records=70, uniform=Fraction(1, 7))),
        (Density, DensityKnobs(records=10**6)),
        (SmoothedHistogram, SmoothedHistogramKnobs(records=70, uniform=Fraction(1, 7))),
    ],
)
def test_the_budget_and_the_share_that_are_named_would_do(kind: Any, knobs: Any) -> None:
    with pytest.raises(InfeasibleBudgetError) as caught:
        kind.calibrate(knobs, target())
    named = re.search(r"epsilon of ([0-9.]+)\.", caught.value.what)
    assert named
    enough = replace(target(), epsilon=float(named[1]))
    assert kind.calibrate(knobs, enough).records == knobs.records
    with pytest.raises(InfeasibleBudgetError):
        kind.calibrate(knobs, replace(enough, epsilon=enough.epsilon * (1 - 1e-4)))
    if share := re.search(r"share of ([0-9.]+),", caught.value.next_step):
        uniform = Fraction(share[1])
        assert kind.calibrate(replace(knobs, uniform=uniform), target()).records == 70
