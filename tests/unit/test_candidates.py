"""Sample and resample: distances by definition, sensitivities by brute force, the claim."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import ctx
from neighbouring import moved, tables
from numpy.typing import NDArray

from statpress.mechanisms.tables.sample_resample import (
    Scores,
    choose_candidate,
    cramer_von_mises_scores,
    draw_candidates,
    feature_scores,
    ks_scores,
    mean_features,
    series_features,
    series_terms,
)

Array = NDArray[np.int64]
Score = Callable[[Array, Array], Scores]


def values(scores: Scores) -> NDArray[np.float64]:
    """Scores as floats, for enumeration."""
    plain = np.array([float(Fraction(x, scores.denominator)) for x in scores.numerators])
    return np.sqrt(plain) if scores.root else plain


def mean_of(shape: tuple[int, ...]) -> Score:
    return lambda h, z: feature_scores(h, z, mean_features(shape))


def series(cells: int, terms: int, terms_of_release: int) -> Score:
    """The L2 distance of two series, the second with fewer terms."""
    data = series_features(cells, terms)
    release = data.copy()
    release[terms_of_release:] = 0
    return lambda h, z: feature_scores(h, z, data, release)


def on_grid(score: Score, shape: tuple[int, ...]) -> Score:
    return lambda h, z: score(h.reshape(shape), z.reshape((-1, *shape)))


# Name: score over 4 cells, and the least part of Delta that some neighbours must reach.
SCORES: dict[str, tuple[Score, float]] = {
    "ks": (ks_scores, 1.0),
    "ks, two columns": (on_grid(ks_scores, (2, 2)), 1.0),
    "cramer": (cramer_von_mises_scores, 0.55),
    "cramer, two columns": (on_grid(cramer_von_mises_scores, (2, 2)), 0.55),
    "mean": (mean_of((4,)), 1.0),
    "mean, two columns": (mean_of((2, 2)), 1.0),
    "series": (series(4, 3, 3), 1.0),
    "series, fewer terms": (series(4, 3, 1), 0.9),
}
NIGHTLY = pytest.mark.nightly
KINDS = pytest.mark.parametrize("name", SCORES)


@KINDS
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 3), (3, 2), pytest.param(4, 3, marks=NIGHTLY)])
def test_sensitivity_is_one_per_record(name: str, n: int, k: int) -> None:
    """Scores are in units of Delta, so a unit of c records may move them by c."""
    score, least = SCORES[name]
    everything = np.array(tables(k, 4))
    found = {table: values(score(np.array(table), everything)) for table in tables(n, 4)}
    largest = 0.0
    for table, other in itertools.permutations(found, 2):
        change = float(np.abs(found[table] - found[other]).max())
        assert change <= moved(table, other) + 1e-12
        largest = max(largest, change if moved(table, other) == 1 else 0.0)
    if n in (3, 4):
        assert largest >= least * (1 - 1e-6)  # half the sensitivity would be refuted


def test_cramer_von_mises_sensitivity_for_one_column() -> None:
    """1 - (1 - 1/n)^3, of which 3/n is the limit; Lemma 14 has twice that."""
    for n in range(1, 6):
        everything = np.array([z for k in range(1, 3) for z in tables(k, 2) if k == 1])
        found = {t: values(cramer_von_mises_scores(np.array(t), everything)) for t in tables(n, 2)}
        pairs = [(a, b) for a, b in itertools.permutations(found, 2) if moved(a, b) == 1]
        largest = max(float(np.abs(found[a] - found[b]).max()) for a, b in pairs)
        assert largest * 3 / n == pytest.approx(1 - (1 - 1 / n) ** 3)


def test_distances_by_definition() -> None:
    h, z = np.array([3, 0, 2, 5]), np.array([[1, 1, 0, 2], [0, 4, 0, 0]])
    gaps = np.cumsum(h) / 10 - np.cumsum(z, axis=1) / 4
    assert values(ks_scores(h, z)) / 10 == pytest.approx(np.abs(gaps).max(axis=1))
    expected = (gaps**2 * (h / 10)).sum(axis=1)
    assert values(cramer_von_mises_scores(h, z)) * 3 / 10 == pytest.approx(expected)
    means = np.abs(h @ np.arange(4) / 30 - z @ np.arange(4) / 12)
    assert values(feature_scores(h, z, mean_features((4,)))) / 10 == pytest.approx(means, abs=1e-5)


def test_two_columns_by_definition() -> None:
    rng = np.random.default_rng(1)
    h, z = rng.multinomial(9, [1 / 6] * 6).reshape(2, 3), rng.multinomial(5, [1 / 6] * 6, 4)
    z = z.reshape(4, 2, 3)
    gaps = np.array(
        [
            [
                h[: i + 1, : j + 1].sum() / 9 - one[: i + 1, : j + 1].sum() / 5
                for i in range(2)
                for j in range(3)
            ]
            for one in z
        ]
    )
    assert values(ks_scores(h, z)) / 9 == pytest.approx(np.abs(gaps).max(axis=1))
    expected = (gaps**2 * (h.reshape(-1) / 9)).sum(axis=1)
    assert values(cramer_von_mises_scores(h, z)) * 3 / 9 == pytest.approx(expected)


def test_series_distance_is_that_of_the_densities() -> None:
    h, z, cells, terms = np.array([3, 0, 2, 5]), np.array([[1, 1, 0, 2]]), 4, 3
    x = (np.arange(200_000) + 0.5) / 200_000
    middles = (np.arange(cells) + 0.5) / cells

    def density(counts: Array, terms: int) -> NDArray[np.float64]:
        orders = range(1, terms + 1)
        share = counts / counts.sum()
        return 1 + sum(
            (2 * np.cos(np.pi * j * x) * float(share @ np.cos(np.pi * j * middles))) for j in orders
        )

    expected = math.sqrt(np.mean((density(h, terms) - density(z[0], 2)) ** 2))
    basis = np.sqrt(2) * np.cos(np.pi * np.arange(1, terms + 1)[:, None] * middles)
    steps = basis[:, :, None] - basis[:, None]
    delta = math.sqrt((steps**2).sum(axis=0).max()) / 10
    found = values(series(cells, terms, 2)(h, z))
    assert found * delta == pytest.approx([expected], rel=1e-5)
    assert delta <= 2 * math.sqrt(2) * math.sqrt(terms) / 10 <= 2 * 2 * terms / 10  # Lemma 17


def test_sensitivity_of_features_of_many_cells() -> None:
    """Where pairs are too many, or too large, the ranges bound the distance of any two."""
    h, z, phi = np.eye(1, 60, dtype=np.int64)[0], np.eye(60, dtype=np.int64), series_features(60, 4)
    exact = feature_scores(h, z, phi)
    bound = feature_scores(h, z, phi, most_paired=59)
    assert exact.numerators == bound.numerators
    assert exact.denominator < bound.denominator < 2.1 * exact.denominator
    ranges = phi.max(axis=1) - phi.min(axis=1)
    assert bound.denominator == sum(int(value) ** 2 for value in ranges)
    huge = feature_scores(h, z, phi << 20)
    assert huge.denominator == bound.denominator << 40


def test_series_terms() -> None:
    assert [series_terms(n, Fraction(1)) for n in (1, 7, 8, 26, 27, 10**6 - 1, 10**6)] == [
        1,
        1,
        2,
        2,
        3,
        99,
        100,
    ]
    assert series_terms(1024, Fraction(3, 4)) == 16


def law(scores: Scores, epsilon: float, c: int = 1) -> NDArray[np.float64]:
    weights = np.exp(-epsilon / (2 * c) * values(scores))
    return np.asarray(weights / weights.sum())


class Bytes:
    """A generator that gives one word, as a share of the unit interval."""

    def __init__(self, share: float) -> None:
        self.word = int(share * 2**53) << 11

    def bytes(self, size: int) -> bytes:
        return self.word.to_bytes(size, "big")


@KINDS
@pytest.mark.parametrize("c", [1, 2])
def test_choice_inverts_the_cumulative_law(name: str, c: int) -> None:
    everything = np.array(tables(3, 4))
    scores = SCORES[name][0](np.array([4, 0, 2, 1]), everything)
    bounds = np.cumsum(law(scores, 2.5, c))
    for i, (low, high) in enumerate(itertools.pairwise((0.0, *bounds))):
        for share in (low + 1e-9, (low + high) / 2, high - 1e-9):
            rng = Bytes(share)
            assert choose_candidate(scores, 2.5 / c, rng) == i  # type: ignore[arg-type]


def largest_loss(score: Score, public: Array, n: int, epsilon: float, c: int = 1) -> float:
    laws = {table: law(score(np.array(table), public), epsilon, c) for table in tables(n, 4)}
    return max(
        float(np.abs(np.log(laws[a] / laws[b])).max())
        for a, b in itertools.permutations(laws, 2)
        if moved(a, b) <= c
    )


# One candidate near the first cell and many near the last: where the bound is reached.
UNEVEN = np.array([[1, 0, 0, 0]] + 200 * [[0, 0, 0, 1]])


@KINDS
@pytest.mark.parametrize(
    ("n", "c"),
    [(1, 1), (2, 2), pytest.param(3, 1, marks=NIGHTLY), pytest.param(3, 2, marks=NIGHTLY)],
)
def test_no_pair_of_neighbours_tells_more_than_epsilon(name: str, n: int, c: int) -> None:
    for public in (UNEVEN, np.array(tables(2, 4)), UNEVEN[:1]):
        assert largest_loss(SCORES[name][0], public, n, 1.5, c) <= 1.5 + 1e-9


@pytest.mark.parametrize("name", ["ks", "ks, two columns", "mean", "mean, two columns"])
def test_half_the_sensitivity_tells_more(name: str) -> None:
    def halved(h: Array, z: Array) -> Scores:
        scores = SCORES[name][0](h, z)
        return Scores([x * (4 if scores.root else 2) for x in scores.numerators],
                      scores.denominator, scores.root)  # fmt: skip

    assert largest_loss(halved, UNEVEN, 1, 1.5) > 1.5
    assert largest_loss(SCORES[name][0], UNEVEN, 1, 1.5) > 0.98 * 1.5


def test_large_numbers_stay_exact() -> None:
    """Above 2**63 the arithmetic goes over to Python's integers."""
    h, z = np.array([10**7, 3, 10**7, 1]), np.array([[10**5, 1, 2, 3], [1, 10**5, 2, 3]])
    n, k = int(h.sum()), int(z[0].sum())
    heights, release = np.cumsum(h).tolist(), np.cumsum(z, axis=1).tolist()
    squares = [
        sum(int(h[j]) * (k * heights[j] - n * row[j]) ** 2 for j in range(4)) for row in release
    ]
    assert list(cramer_von_mises_scores(h, z).numerators) == squares
    phi = mean_features((4,)) << 10
    assert n * k * int(phi.max()) > 2**64
    found = feature_scores(h, z, phi)
    steps = [int(value) for value in phi[0]]
    data = sum(k * int(a) * b for a, b in zip(h, steps, strict=True))
    gaps = [data - n * sum(a * b for a, b in zip(row, steps, strict=True)) for row in z.tolist()]
    assert list(found.numerators) == [gap * gap for gap in gaps]


def test_balls_hold_the_scores() -> None:
    with ctx.workprec(200):
        balls = Scores([8, 3], 4, True).enclosures()
        assert (balls[0] * balls[0]).contains(2)
        assert Scores([8, 3], 4).enclosures()[1].contains(0.75)


@pytest.mark.parametrize("concentration", [None, 0.01, 1.0])
def test_candidates_have_their_size(concentration: float | None) -> None:
    rng = np.random.default_rng(4)
    drawn = draw_candidates(50, 30, 17, rng, concentration=concentration)
    assert drawn.shape == (50, 30)
    assert drawn.dtype == np.int64
    assert np.all(drawn.sum(axis=1) == 17)


def test_one_cell_and_features_that_say_nothing() -> None:
    scores = feature_scores(np.array([5]), np.array([[2], [2]]), mean_features((1,)))
    assert list(scores.numerators) == [0, 0]
    assert law(scores, 1.0) == pytest.approx([0.5, 0.5])


def test_arguments_out_of_range() -> None:
    good = np.array([[1, 1]])
    for h, z in [([0, 0], good), ([1, 2], np.array([[1, 1], [1, 0]])), ([1, 2, 3], good)]:
        with pytest.raises(ValueError, match="needs n >= 1"):
            ks_scores(np.array(h), z)
    with pytest.raises(ValueError, match="too many records"):
        ks_scores(np.array([2**40, 0]), np.array([[2**40, 0]]))
    with pytest.raises(ValueError, match="epsilon must be"):
        choose_candidate(Scores([1], 1), 0.0, np.random.default_rng())
