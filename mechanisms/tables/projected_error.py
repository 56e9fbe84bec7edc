"""Expected total variation of a table after its projection, for public reference shapes.

The projection of noisy counts x_j + Z_j takes max(x_j + Z_j - t, 0), where t makes the sum n
(mechanisms.postprocessing.simplex). With many cells t hardly varies, and solves

    sum of E (x_j + Z_j - t)+ = n,

so that the expected total variation is the sum of E |max(Z_j - t, -x_j)| over 2n. With
G(a) = E (Z - a)+, known in closed form for normal and Laplace noise, both are sums over cells:

    E (x + Z - t)+ = G(t - x),    E |max(Z - t, -x)| = G(t) + G(-t) - G(x - t).

The true counts x are private, so the mean over three reference shapes stands for them: all
cells alike, counts proportional to 1/rank (Zipf), and the same on a tenth of the cells, the
rest being empty. Ranks are taken in groups, each with its mean. A guide, not a bound.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_GROUPS = 80
_ROUNDS = 60


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
    sizes = (1.0, n_cells), (0.0, n_cells), (0.0, max(1, n_cells // 10))
    found = []
    for flat, occupied in sizes:
        weights, counts = _shape(bool(flat), occupied, n_records)
        weights = np.append(weights, n_cells - occupied)
        counts = np.append(counts, 0.0)
        found.append(_variation(weights, counts, sd(counts), n_records, laplace))
    return float(np.mean(found))


def _shape(flat: bool, occupied: int, n_records: int) -> tuple[Floats, Floats]:
    """Numbers of cells float64[k] of equal counts float64[k], which add up to n."""
    from scipy.special import digamma

    if flat:
        return np.array([float(occupied)]), np.array([n_records / occupied])
    edges = np.unique(np.rint(np.geomspace(1, occupied + 1, _GROUPS)))
    edges[0], edges[-1] = 1, occupied + 1
    weights = np.diff(edges)
    shares = digamma(edges[1:]) - digamma(edges[:-1])  # sums of 1/rank
    counts: Floats = n_records * shares / shares.sum() / weights
    return weights, counts


def _variation(weights: Floats, counts: Floats, sd: Floats, n_records: int, laplace: bool) -> float:
    excess = _laplace_excess if laplace else _normal_excess
    sd = np.maximum(sd, 1e-12)
    low, high = -n_records - 40 * float(sd.max()), float((counts + 40 * sd).max())
    for _ in range(_ROUNDS):
        t = (low + high) / 2
        total = float(weights @ excess(t - counts, sd))
        low, high = (t, high) if total > n_records else (low, t)
    each = excess(np.full_like(sd, t), sd) + excess(np.full_like(sd, -t), sd)
    return float(weights @ (each - excess(counts - t, sd))) / (2 * n_records)


def _normal_excess(a: Floats, sd: Floats) -> Floats:
    from scipy.special import ndtr

    z = a / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    found: Floats = sd * density - a * ndtr(-z)
    return found


def _laplace_excess(a: Floats, sd: Floats) -> Floats:
    scale = sd / np.sqrt(2)
    tail: Floats = np.maximum(-a, 0.0) + scale / 2 * np.exp(-np.abs(a) / scale)
    return tail
