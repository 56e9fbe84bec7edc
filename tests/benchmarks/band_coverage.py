"""How often bands of tables hold, and how wide they are next to the best possible ones.

    python -m tests.benchmarks.band_coverage [--replicates 5000] [--quick]

Tables of 20 and 200 cells with discrete Gaussian noise at mu (scale sqrt(2)/mu), from laws that are
uniform, Zipf's, one point, and uniform over the first tenth of the cells. Of the released tables
are computed the bands of ``mechanisms.tables.bands``; *held* is the share of replicates in which
all limits hold, *ratio* the average width over that of an oracle, which knows the law and simulates
the same table: the cells' limits are then as many standard deviations as hold at the level, and
those of cumulative counts a constant distance. Widths are of limits between 0 and 1.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.tables import bands
from statpress.mechanisms.tables.band_limits import DiscreteNoise
from statpress.mechanisms.tables.bands import BandLaw, Places, cumulative_share

Floats = NDArray[np.float64]
LEVEL = 0.95
RECORDS = (300, 1000, 5000, 50_000)
MUS = (0.1, 0.3, 0.7, 3.0)
CELLS = (20, 200)
LAWS = ("uniform", "zipf", "point", "empty")
CHECKED, WIDTHS = 4000, 1000  # cells of the replicates that take long to check, and to compute
KINDS = ("cells, counts", "cells, shares", "cumulative, counts", "cumulative, shares")


@dataclass(frozen=True)
class Row:
    """One band in one setting.

    Attributes:
        kind: One of ``KINDS``.
        held: Share of the replicates in which all limits hold.
        width: Average width, in shares of the records.
        ratio: To the oracle's; not a number where that has no width.
    """

    law: str
    records: int
    mu: float
    cells: int
    kind: str
    held: float
    width: float
    ratio: float


def law_of(name: str, cells: int) -> Floats:
    """Shares float64[cells]."""
    ranks = np.arange(1, cells + 1)
    weights = {
        "uniform": np.ones(cells),
        "zipf": 1 / ranks,
        "point": (ranks == 1) * 1.0,
        "empty": (ranks <= max(1, cells // 10)) * 1.0,
    }[name]
    return np.asarray(weights / weights.sum())


def noise_of(scale: float, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Discrete Gaussian noise of a scale, by its law."""
    reach = math.ceil(9 * scale) + 5
    steps = np.cumsum(DiscreteNoise(scale).masses(reach))
    return np.asarray(np.searchsorted(steps / steps[-1], rng.random(shape)) - reach)


def rows(
    law: str,
    n: int,
    mu: float,
    cells: int,
    replicates: int,
    *,
    checked: int = CHECKED,
    widths: int = WIDTHS,
    noise: Callable[..., NDArray[np.int64]] = noise_of,
) -> Iterator[Row]:
    """The four bands of one setting."""
    rng = np.random.default_rng(1)
    p, scale = law_of(law, cells), math.sqrt(2) / mu
    counts = rng.multinomial(n, p, replicates)
    released = counts + noise(scale, counts.shape, rng)
    found = BandLaw.of_noise(DiscreteNoise(scale), n_records=n, n_cells=cells)

    def row(kind: str, truth: Floats, ends: tuple[Floats, Floats], best: Floats) -> Row:
        """The oracle's limits are ``best`` from its estimates, float64[replicates, cells, 2]."""
        low, high = (np.clip(each, 0, 1) for each in ends)
        held = np.mean(np.all((low <= truth + 1e-12) & (truth - 1e-12 <= high), axis=1))
        width = float(np.mean(high - low))
        least = float(np.mean(np.clip(best[1], 0, 1) - np.clip(best[0], 0, 1)))
        ratio = width / least if least > 0 else math.nan
        return Row(law, n, mu, cells, kind, float(held), width, ratio)

    shares = released / n
    q = found.cells.half_width(LEVEL)
    best = _quantile(np.abs(released - counts).max(1)) / n
    yield row(KINDS[0], counts / n, ((released - q) / n, (released + q) / n), _around(shares, best))
    limits = bands.share_limits(found.cells, released.ravel(), LEVEL)
    sd = np.sqrt(n * p * (1 - p) + scale**2) / n
    best = _quantile((np.abs(shares - p) / sd).max(1)) * sd
    yield row(
        KINDS[1], p, tuple(each.reshape(shares.shape) for each in limits), _around(shares, best)
    )
    ends = released.sum(1) - n
    strays = found.strays(0)
    assert strays is not None
    summed = np.cumsum(released, axis=1) - ends[:, None] * (np.arange(1, cells + 1) / cells)
    truth = np.cumsum(counts, axis=1)
    off = np.abs(summed - truth).max(1)
    ours = _around(summed / n, np.asarray(bands.count_distance(strays, LEVEL) / n))
    count = row(KINDS[2], truth / n, (ours[0], ours[1]), _around(summed / n, _quantile(off) / n))
    few = checked // cells
    yield replace(count, held=_held_given_ends(found, ends[:few], off[:few]))
    sums = np.cumsum(p)[None, :]
    best = _around(summed / n, _quantile(np.abs(summed / n - sums).max(1)))
    distance, by_place = cumulative_share(found, strays, LEVEL)
    ours = _around(summed / n, np.asarray(distance / n))
    if not by_place or found.places is None:
        yield row(KINDS[3], sums, (ours[0], ours[1]), best)
        return
    joined, raw = np.arange(1, cells), np.cumsum(released, axis=1)[:, :-1] * 1.0
    places = [
        found.places(one, joined, int(end)) for one, end in zip(raw[:few], ends, strict=False)
    ]
    limits = [bands._share_band_by_place(each, LEVEL) for each in places[: widths // cells]]
    ours = np.stack([[low, high] for low, high in limits], axis=1)
    share = row(KINDS[3], sums, (ours[0], ours[1]), best[:, : len(limits)])
    yield replace(share, held=float(np.mean([_holds(each, sums[0, :-1]) for each in places])))


def _held_given_ends(law: BandLaw, ends: NDArray[np.int64], off: Floats) -> float:
    """How often the cumulative counts hold, each at the distance that its own end leads to."""
    found = []
    for end, distance in zip(ends.tolist(), off.tolist(), strict=True):
        strays = law.strays(end)
        assert strays is not None
        found.append(float(strays.tail(np.array([distance]))[0]) > 1 - LEVEL)
    return float(np.mean(found))


def _holds(places: Places, truth: Floats) -> bool:
    """Whether no end at any place excludes the truth."""
    alpha = (1 - LEVEL) / (2 * places.number)
    below = places.law.exceeding(places.y, truth, alpha, other=False)
    above = places.law.exceeding(places.whole - places.y, 1 - truth, alpha, other=True)
    return bool(np.all(below > alpha) and np.all(above > alpha))


def _quantile(distances: Floats) -> Floats:
    return np.asarray(np.quantile(distances, LEVEL, method="higher"))


def _around(values: Floats, distance: Floats) -> Floats:
    return np.stack([values - distance, values + distance])


def settings(quick: bool) -> Iterator[tuple[str, int, float, int]]:
    """Laws, records, mu and cells."""
    if quick:
        return iter([("zipf", 300, 0.7, 20), ("empty", 1000, 3.0, 20), ("point", 300, 3.0, 20)])
    return itertools.product(LAWS, RECORDS, MUS, CELLS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=5000)
    parser.add_argument("--quick", action="store_true", help="three settings only")
    asked = parser.parse_args()
    headings = "law", "n", "mu", "cells", "band", "held", "width", "ratio"
    print("{:8} {:>6} {:>4} {:>5} {:20} {:>6} {:>7} {:>6}".format(*headings))
    for setting in settings(asked.quick):
        for row in rows(*setting, asked.replicates):
            print(line(row), flush=True)


def line(row: Row) -> str:
    """A row of the table."""
    return (
        f"{row.law:8} {row.records:6} {row.mu:4} {row.cells:5} {row.kind:20} "
        f"{row.held:6.4f} {row.width:7.4f} {row.ratio:6.3f}"
    )


if __name__ == "__main__":
    main()
