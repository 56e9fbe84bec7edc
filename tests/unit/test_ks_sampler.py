"""The exact KS sampler against enumeration: its law, its bands, its bounds, its claim."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from every_choice import Everything
from flint import arb, ctx
from neighbouring import Table, largest_loss, moved, orders, tables

from statpress.mechanisms.sampling.randomness import choose_real
from statpress.mechanisms.tables.exponential_ks import Band, Radii, sample_ks

Law = dict[Table, float]
EPSILONS = (Fraction(1, 3), Fraction(2))
# All n, k <= 6 over two and three cells; a few over one and four.
SIZES = [(n, k, s) for s in (2, 3) for n in range(1, 7) for k in range(1, 7)] + [
    (1, 1, 1),
    (5, 3, 1),
    (1, 3, 4),
    (4, 2, 4),
    (3, 4, 4),
    (4, 5, 4),
]
FULL = [size for size in SIZES if size[2] > 2 and (size[0] in (4, 6) or size[1] > 4)]


def distance(table: Table, other: Table) -> Fraction:
    """Kolmogorov-Smirnov distance, by the definition."""
    n, k = sum(table), sum(other)
    heights = zip(itertools.accumulate(table), itertools.accumulate(other), strict=True)
    return max(abs(Fraction(h, n) - Fraction(z, k)) for h, z in heights)


def law_by_definition(
    table: Table,
    k: int,
    epsilon: Fraction,
    utility: Callable[[Fraction], float] = math.ceil,
    sensitivity: float = 1,
) -> Law:
    weights = {
        z: orders(z)
        * math.exp(-float(epsilon) * utility(sum(table) * distance(table, z)) / 2 / sensitivity)
        for z in tables(k, len(table))
    }
    total = math.fsum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


def radius_law(table: Table, k: int, rate: Fraction) -> dict[int, float]:
    """The law of the radius, by running the sampler through all of its choices."""
    heights = list(itertools.accumulate(table))
    sizes: dict[tuple[int, int], arb] = {}

    def draw() -> int:
        radii = Radii(heights, k, rate)
        radii._sizes = sizes  # of the same bands, whatever was drawn before
        return radii.draw(np.random.default_rng())

    return Everything(draw).found


def band_law(band: Band, n_cells: int, k: int) -> Law:
    """The law of a path of a band, from the weights it is drawn with."""
    found: Law = {}

    def back(j: int, height: int, after: Table, probability: float) -> None:
        if j == 0:
            assert height == 0
            found[after] = probability
            return
        with ctx.workprec(128):
            weights = [float(weight.mid()) for weight in band.backward(j, height)]
        for i, weight in enumerate(weights):
            if weight > 0:
                before = band.low[j - 1] + i
                share = probability * weight / math.fsum(weights)
                back(j - 1, before, (height - before, *after), share)

    back(n_cells, k, (), 1.0)
    return found


def law_of_sampler(table: Table, k: int, rate: Fraction) -> Law:
    heights, found = list(itertools.accumulate(table)), dict.fromkeys(tables(k, len(table)), 0.0)
    for radius, probability in radius_law(table, k, rate).items():
        for z, given in band_law(Band(heights, k, radius), len(table), k).items():
            found[z] += probability * given
    return found


@pytest.mark.parametrize(
    ("n", "k", "s"),
    [pytest.param(*size, marks=[pytest.mark.nightly] * (size in FULL)) for size in SIZES],
)
def test_law_is_that_of_the_definition(n: int, k: int, s: int) -> None:
    epsilon = EPSILONS[(n + k) % 2]
    for table in tables(n, s):
        found, expected = (
            law_of_sampler(table, k, epsilon / 2),
            law_by_definition(table, k, epsilon),
        )
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("table", "k"), [((2, 0, 1), 3), ((0, 3), 5), ((1, 1, 1, 1), 2), ((7,), 4)]
)
def test_law_of_the_whole_function(table: Table, k: int) -> None:
    def run() -> Table:
        drawn = sample_ks(np.array(table), k, Fraction(3, 2), np.random.default_rng())
        return tuple(drawn.tolist())

    expected = law_by_definition(table, k, Fraction(3, 2))
    assert Everything(run).found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("utility", [math.floor, lambda x: math.floor(x + Fraction(1, 2)), float])
def test_another_rounding_is_another_law(utility: Callable[[Fraction], float]) -> None:
    """The twins' utilities have the same sensitivity, yet they are not what is sampled."""
    table, k, epsilon = (2, 0, 1), 4, Fraction(3, 2)
    found = law_of_sampler(table, k, epsilon / 2)
    twin = law_by_definition(table, k, epsilon, utility)
    assert max(abs(math.log(found[z] / twin[z])) for z in found) > 1e-3


@pytest.mark.parametrize(("n", "k", "s"), [(1, 2, 3), (4, 3, 3), (6, 6, 2), (3, 4, 4), (5, 4, 1)])
def test_band_sizes(n: int, k: int, s: int) -> None:
    for table in tables(n, s):
        heights = list(itertools.accumulate(table))
        needed = {z: math.ceil(n * distance(table, z)) for z in tables(k, s)}
        for radius in range(n + 2):
            expected = sum(orders(z) for z in needed if needed[z] <= radius)
            with ctx.workprec(128):
                size = Band(heights, k, radius).size() * arb.fac_ui(k)
                assert size.contains(expected)
                assert size.rad() < 1e-30
                assert Radii(heights, k, Fraction(1)).size(n).contains(arb(s) ** k / arb.fac_ui(k))


@pytest.mark.parametrize("radius", [20, pytest.param(500, marks=pytest.mark.nightly), 9000])
@pytest.mark.parametrize("first", [pytest.param(10_000, marks=pytest.mark.nightly), 100])
def test_balls_stay_narrow_at_full_size(first: int, radius: int) -> None:
    """100 cells, k = 464: no weight of a path is known to less than 100 bits of 128."""
    table = np.full(100, (10_000 - first) // 99)
    table[0] = 10_000 - table[1:].sum()
    with ctx.workprec(128):
        band = Band(np.cumsum(table).tolist(), 464, radius)
        bits = [weight.rel_accuracy_bits() for row in band.rows() for weight in row.coeffs()]
        assert min(bits) > 100


def test_bounds_on_the_radii_hold() -> None:
    table, k, rate = (40, 3, 0, 17, 60), 30, Fraction(1, 4)
    heights = list(itertools.accumulate(table))
    radii = Radii(heights, k, rate)
    radii.sharpen()
    assert len(radii.knots) > 3
    with ctx.workprec(128):
        masses = radii.masses()
        for (a, b), mass in zip(radii.pieces(), masses, strict=True):
            last = sum(heights) if b is None else b
            for radius in range(a + 1, min(last, 125)):
                assert radii.size(radius) <= radii.size(b) or radii.size(radius).overlaps(
                    radii.size(b)
                )
            steps = range(a + 1, min(last, 4000) + 1)
            direct = math.fsum(math.exp(-float(rate) * radius) for radius in steps)
            bound = float(radii.size(b).mid())
            assert float(mass.mid()) == pytest.approx(
                bound * direct * math.expm1(float(rate)), rel=1e-9
            )


def worst_loss(n: int, s: int, c: int, law: Callable[[Table], Law]) -> float:
    """The largest log-ratio over all pairs of tables that differ in one unit."""
    return largest_loss({table: law(table) for table in tables(n, s)}, c)


@pytest.mark.parametrize(
    ("n", "k", "s", "c"), [(4, 3, 3, 1), (5, 4, 2, 2), (3, 3, 3, 2), (1, 2, 3, 1)]
)
def test_no_pair_of_neighbours_tells_more_than_epsilon(n: int, k: int, s: int, c: int) -> None:
    epsilon = Fraction(3, 2)
    loss = worst_loss(n, s, c, lambda table: law_of_sampler(table, k, epsilon / (2 * c)))
    assert loss <= epsilon + 1e-9
    assert loss > 0.45 * epsilon  # the test has power


@pytest.mark.parametrize("c", [1, 2])
def test_half_the_sensitivity_tells_more(c: int) -> None:
    halved = worst_loss(
        4, 3, c, lambda t: law_by_definition(t, 3, Fraction(3, 2), math.ceil, c / 2)
    )
    assert halved > Fraction(3, 2)


@pytest.mark.parametrize(("n", "k", "s"), [(1, 3, 3), (3, 2, 3), (5, 3, 2), (4, 4, 3)])
def test_sensitivity(n: int, k: int, s: int) -> None:
    found = 0
    for table, other in itertools.permutations(tables(n, s), 2):
        records = moved(table, other)
        for z in tables(k, s):
            change = math.ceil(n * distance(table, z)) - math.ceil(n * distance(other, z))
            assert abs(change) <= records
            found = max(found, abs(change)) if records == 1 else found
    assert found == 1


class Bytes:
    """A generator that gives the bytes it is told."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bytes(self, size: int) -> bytes:
        return self.words.pop(0).to_bytes(size, "big")


def test_choice_draws_more_bits_where_the_first_do_not_decide() -> None:
    """Weights 1 and 2: the border is at 1/3, between two multiples of 2**-64."""
    third = 2**64 // 3
    for words, expected in [
        ((0,), 0),
        ((third - 1,), 0),
        ((third, 0), 0),
        ((third, third - 1), 0),
        ((third, third, 2**64 - 1), 1),
        ((third + 1,), 1),
        ((2**64 - 1,), 1),
    ]:
        rng: Any = Bytes(*words)
        assert choose_real(lambda: [arb(1), arb(2)], rng) == expected
        assert not rng.words


def test_choice_waits_for_narrow_balls() -> None:
    """A wide enclosure is asked for again at more digits, with the same bits kept."""
    asked: list[int] = []

    def weights() -> list[arb]:
        asked.append(ctx.prec)
        wide = arb(1, 0.5) if len(asked) == 1 else arb(1)
        return [wide, arb(1)]

    rng: Any = Bytes(2**63 - 5, 7)
    assert choose_real(weights, rng) == 0
    assert asked == [128, 256]


def test_choice_never_takes_what_has_no_weight() -> None:
    rng: Any = Bytes(0, 2**64 - 1)
    assert choose_real(lambda: [arb(0), arb(1), arb(0)], rng) == 1
    assert choose_real(lambda: [arb(0), arb(1), arb(0)], rng) == 1


def test_extremes() -> None:
    rng = np.random.default_rng(3)
    table = np.array([0, 9, 0, 1])
    # At a large epsilon the release is as near as can be; n divides k here.
    assert sample_ks(table, 20, 1e4, rng).tolist() == [0, 18, 0, 2]
    assert sample_ks(table, 50, 1e-12, rng).sum() == 50
    assert sample_ks(np.array([4]), 7, 1.0, rng).tolist() == [7]
    assert sample_ks(np.array([0, 1]), 1, 1.0, rng).sum() == 1


@pytest.mark.parametrize(
    ("counts", "records", "epsilon"),
    [
        ([1, 2], 0, 1.0),
        ([1, 2], 3, 0.0),
        ([1, 2], 3, math.inf),
        ([1, 2], 3, math.nan),
        ([0, 0], 3, 1.0),
        ([3, -1], 3, 1.0),
    ],
)
def test_arguments_out_of_range(counts: list[int], records: int, epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"needs|must"):
        sample_ks(np.array(counts), records, epsilon, np.random.default_rng())
