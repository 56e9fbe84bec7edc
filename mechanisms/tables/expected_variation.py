"""The total variation to expect of a table, over public reference shapes.

**Total variation after projection.** The projection of noisy counts x_j + Z_j takes
max(x_j + Z_j - t, 0), where t makes the sum n (mechanisms.postprocessing.simplex). With many
cells t hardly varies, and solves

    sum of E (x_j + Z_j - t)+ = n,

so that the expected total variation is the sum of E |max(Z_j - t, -x_j)| over 2n. With
G(a) = E (Z - a)+, known in closed form for normal and Laplace noise, both are sums over cells:

    E (x + Z - t)+ = G(t - x),    E |max(Z - t, -x)| = G(t) + G(-t) - G(x - t).

The true counts x are private, so the mean over three reference shapes stands for them: all
cells alike, counts proportional to 1/rank (Zipf), and the same on a tenth of the cells, the
rest being empty. Ranks are taken in groups, each with its mean. A guide, not a bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.expectations.falling_root import falling_root
from mechanisms.expectations.few_draws import variation_of_few_draws

Floats = NDArray[np.float64]

_ERFC = np.vectorize(math.erfc, otypes=[np.float64])  # SciPy's takes longer to import than all
_GROUPS = 80


def projected_total_variation(
    sd: Callable[[Floats], Floats], *, n_records: int, n_cells: int, laplace: bool = False
) -> float:
    """About the expected total variation between projected and true shares, 0 to 1.

    Args:
        sd: Standard deviation of the noise, float64[k], of cells with counts float64[k].
        n_records: Number of records n.
        n_cells: Number of cells.
        laplace: Whether the noise is Laplace; otherwise it is taken as normal.
    """
    found = [
        _variation(weights, counts, sd(counts), n_records, laplace)
        for weights, counts in _references(n_records, n_cells)
    ]
    return float(np.mean(found))


def drawn_total_variation(
    pseudocount: Fraction, records: int, *, n_records: int, n_cells: int
) -> float:
    """The same of the estimates from ``records`` draws with a pseudocount.

    The draws of a cell are taken as normal, unless there are ten times as many cells as draws.
    """
    total = n_records + pseudocount * n_cells
    if 10 * records < n_cells:
        found = [
            variation_of_few_draws(
                weights, counts, float(pseudocount), float(total / records), n_records
            )
            for weights, counts in _references(n_records, n_cells)
        ]
        return float(np.mean(found))

    def deviations(counts: Floats) -> Floats:
        shares = (counts + float(pseudocount)) / float(total)
        found: Floats = float(total) * np.sqrt(shares * (1 - shares).clip(min=0) / records)
        return found

    return projected_total_variation(deviations, n_records=n_records, n_cells=n_cells)


def ordered_references(n_records: int, n_cells: int, rng: np.random.Generator) -> Iterator[Floats]:
    """The reference shapes as counts of cells in an order, float64[n_cells] each.

    Counts fall from the first cell to the last, so that neighbours are alike; where nine tenths
    are empty the others are scattered, so that they are not.

    Args:
        n_records: Number of records n.
        n_cells: Number of cells.
        rng: Scatters them; of a known seed.
    """
    for flat, occupied in _sizes(n_cells):
        weights, counts = _shape(flat, occupied, n_records)
        listed = np.repeat(counts, weights.astype(np.int64))
        if occupied < n_cells:
            listed = np.append(listed, np.zeros(n_cells - occupied))
            listed = listed[rng.permutation(n_cells)]
        yield listed


def _sizes(n_cells: int) -> tuple[tuple[bool, int], ...]:
    """Of every shape whether it is flat, and how many cells are not empty."""
    return (True, n_cells), (False, n_cells), (False, max(1, n_cells // 10))


@functools.lru_cache(maxsize=512)
def _references(n_records: int, n_cells: int) -> tuple[tuple[Floats, Floats], ...]:
    """The reference shapes: numbers of cells float64[k] and their counts float64[k]."""
    shapes = ((_shape(flat, some, n_records), n_cells - some) for flat, some in _sizes(n_cells))
    return tuple(
        (np.append(weights, empty), np.append(counts, 0.0)) for (weights, counts), empty in shapes
    )


def _shape(flat: bool, occupied: int, n_records: int) -> tuple[Floats, Floats]:
    """Numbers of cells float64[k] of equal counts float64[k], which add up to n."""
    if flat:
        return np.array([float(occupied)]), np.array([n_records / occupied])
    edges = np.rint(np.geomspace(1, occupied + 1, _GROUPS))
    edges = edges[np.diff(edges, prepend=0) > 0]  # each once; np.unique imports numpy.ma
    edges[0], edges[-1] = 1, occupied + 1
    weights = np.diff(edges)
    shares = np.diff(_harmonic(edges))  # sums of 1/rank
    counts: Floats = n_records * shares / shares.sum() / weights
    return weights, counts


def _harmonic(places: Floats) -> Floats:
    """Sums of 1/rank over the ranks below some whole numbers from 1 on: digamma plus a constant."""
    near = np.append(0.0, np.cumsum(1 / np.arange(1.0, 32)))
    square = 1 / places**2  # Abramowitz and Stegun 6.3.18
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    far = np.log(places) - 1 / (2 * places) - series + np.euler_gamma
    found: Floats = np.where(places > 32, far, near[np.minimum(places, 32).astype(np.int64) - 1])
    return found


def _variation(weights: Floats, counts: Floats, sd: Floats, n_records: int, laplace: bool) -> float:
    excess = _laplace_excess if laplace else _normal_excess
    sd = np.maximum(sd, 1e-12)
    low, high = -n_records - 40 * float(sd.max()), float((counts + 40 * sd).max())
    t = falling_root(lambda t: float(weights @ excess(t - counts, sd)), n_records, low, high)
    each = excess(np.full_like(sd, t), sd) + excess(np.full_like(sd, -t), sd)
    return float(weights @ (each - excess(counts - t, sd))) / (2 * n_records)


def _normal_excess(a: Floats, sd: Floats) -> Floats:
    z = a / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    above = _ERFC(z / math.sqrt(2)) / 2
    found: Floats = sd * density - a * above
    return found


def _laplace_excess(a: Floats, sd: Floats) -> Floats:
    scale = sd / np.sqrt(2)
    tail: Floats = np.maximum(-a, 0.0) + scale / 2 * np.exp(-np.abs(a) / scale)
    return tail
