"""Whether records said to be usable keep the relations of their columns, on known tables."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from coded import CodesInMemory
from numpy.typing import NDArray
from scipy import stats
from wide_tables import ManyColumns

from statpress.mechanisms.domain.columns import Categorical, Ordinal
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.mechanism import TYPICAL_ASSOCIATION, Target
from statpress.tasks.release.entropy import SeededRandomness

FEWEST = 5  # relations of a table that readers look for
KEPT = 0.6  # share of them that usable records keep
RIGHT = 0.95  # share of the verdicts "usable" that are right


@dataclass(frozen=True)
class Known:
    """A table whose dependence is known.

    Attributes:
        sizes: Codes of every column.
        codes: uint8[columns, n].
        ordered: Whether neighbouring codes are alike.
        epsilon: Of its release.
    """

    sizes: tuple[int, ...]
    codes: NDArray[np.uint8]
    ordered: bool
    epsilon: float


def drawn(seed: int) -> Known:
    """A table of 4 to 16 columns of 2 to 16 codes, even or skewed, and 1,000 to 40,000 records.

    Columns follow three common factors, in their order or in one that was shuffled, or six latent
    classes.
    """
    rng = np.random.default_rng(seed)
    n, width = int(math.exp(rng.uniform(math.log(1000), math.log(40_000)))), rng.integers(4, 17)
    sizes = rng.integers(2, rng.choice([3, 6, 10, 16]) + 1, width)
    made = ("ordered", "shuffled", "classes")[seed % 3]
    factors, loads = rng.normal(size=(3, n)), rng.normal(size=(width, 3)) * rng.uniform(0.3, 1.2)
    classes = rng.integers(0, 6, n)
    codes = np.empty((width, n), np.uint8)
    for column, size in enumerate(sizes):
        shares = np.maximum(rng.dirichlet(np.full(size, rng.choice([20.0, 2.0, 0.7]))), 0.01)
        shares /= shares.sum()
        if made == "classes":
            ends = rng.dirichlet(shares * size * rng.uniform(0.3, 3), 6).cumsum(axis=1)
            found = (rng.random(n)[:, None] > ends[classes]).sum(axis=1)
        else:
            ranks = stats.rankdata(loads[column] @ factors + rng.normal(size=n)) / n
            found = np.searchsorted(shares.cumsum(), ranks - 0.5 / n)
        found = np.minimum(found, size - 1)
        codes[column] = rng.permutation(size)[found] if made == "shuffled" else found
    whole = tuple(int(size) for size in sizes)
    return Known(whole, codes, made == "ordered", float(rng.choice([0.3, 1.0, 3.0])))


def table_of(known: Known, codes: NDArray[np.uint8], a: int, b: int) -> NDArray[np.float64]:
    cells = codes[a].astype(np.int64) * known.sizes[b] + codes[b]
    counts = np.bincount(cells, minlength=known.sizes[a] * known.sizes[b])
    return (counts / len(cells)).reshape(known.sizes[a], known.sizes[b])


def kept(known: Known, records: NDArray[np.uint8]) -> list[bool]:
    """Of every relation that readers look for, whether the records have at least half of it.

    What they have is the slope of their deviation from independence on the true one.
    """
    found = []
    for a, b in itertools.combinations(range(len(known.sizes)), 2):
        true, drawn = (table_of(known, codes, a, b) for codes in (known.codes, records))
        product = np.multiply.outer(true.sum(axis=1), true.sum(axis=0))
        deviation = true - product
        squares = np.divide(deviation**2, product, out=np.zeros(true.shape), where=product > 0)
        if squares.sum() >= TYPICAL_ASSOCIATION**2 * (min(true.shape) - 1):
            own = drawn - np.multiply.outer(drawn.sum(axis=1), drawn.sum(axis=0))
            found.append(bool((own * deviation).sum() >= 0.5 * (deviation**2).sum()))
    return found


@functools.cache
def released(first: int, tables: int) -> list[tuple[Marginals, int, float]]:
    """Of so many tables the mechanism, the number of records, and the share kept.

    Args:
        first: Seed of the first.
        tables: With at least ``FEWEST`` relations each.
    """
    found: list[tuple[Marginals, int, float]] = []
    for seed in itertools.count(first):
        if len(found) == tables:
            return found
        known = drawn(seed)
        kind = Ordinal if known.ordered else Categorical
        columns = tuple(
            kind(name=f"c{j}", categories=tuple(range(k))) for j, k in enumerate(known.sizes)
        )
        domain, n = ManyColumns(columns), known.codes.shape[1]
        if len(kept(known, known.codes)) < FEWEST:
            continue
        budget = {"epsilon": known.epsilon, "delta": 1e-6}
        target = Target(**budget, n_records=n, n_cells=2, domain=domain)  # type: ignore[arg-type]
        made = Marginals.calibrate(MarginalsKnobs(), target)
        rng = SeededRandomness(np.random.PCG64(seed))
        release = made.release(CodesInMemory(domain, n, tuple(known.codes)), rng)
        shown = kept(known, np.array(made.postprocess(release).codes))
        found.append((made, n, float(np.mean(shown))))
    raise AssertionError


def judged(first: int, tables: int, records: int = 1) -> list[tuple[float, float]]:
    """Of so many tables the weakest relation that the plan says is kept, and the share kept.

    The plan promises the errors of ``records`` times as many as there are; a broken twin's of
    more than once as many.
    """
    found = []
    for made, n, share in released(first, tables):
        least = made.expected_error(n_records=records * n, n_cells=2).least_association
        assert least is not None
        found.append((least, share))
    return found


def right(found: list[tuple[float, float]]) -> float:
    """Share of the tables called usable that keep their relations."""
    usable = [share for least, share in found if least <= TYPICAL_ASSOCIATION]
    assert len(usable) >= len(found) / 4, "a plan that calls nothing usable would always be right"
    return float(np.mean([share >= KEPT for share in usable]))


@pytest.mark.parametrize(
    ("first", "tables"), [(43, 4), pytest.param(0, 60, marks=pytest.mark.nightly)]
)
def test_usable_records_keep_the_relations_that_readers_look_for(first: int, tables: int) -> None:
    found = judged(first, tables)
    assert right(found) >= RIGHT
    lost = [share for least, share in found if least > 2 * TYPICAL_ASSOCIATION]
    assert lost and np.mean(lost) < KEPT  # nor is a verdict too strict


def test_a_plan_that_promises_the_errors_of_more_records_is_wrong() -> None:
    assert right(judged(43, 4, records=20)) < RIGHT
