"""Expected error of projected counts where most cells are never drawn.

The estimate of a cell is v = step z - pseudocount, z the number of its draws. Where those are few,
z is Poisson and far from normal. As (v - t)+ adds up to the number of records n, and so do
the true counts x, the total variation between the two is the sum of E (v - t - x)+ over n, in which
E (z - a)+ is a sum of two Poisson tails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.expectations.falling_root import falling_root

Floats = NDArray[np.float64]


def variation_of_few_draws(
    weights: Floats, counts: Floats, pseudocount: float, step: float, n_records: int
) -> float:
    """About the expected total variation between projected and true shares, 0 to 1.

    Args:
        weights: float64[k], numbers of cells.
        counts: float64[k], the records in each of them.
        pseudocount: k.
        step: N/m, what a draw adds to an estimate.
        n_records: Number of records n.
    """
    means = (counts + pseudocount) / step  # of the numbers of draws

    def excess(a: Any) -> float:
        """Sum over the cells of E (v - a)+ for v = step z - pseudocount, z Poisson."""
        return step * float(weights @ _poisson_excess((a + pseudocount) / step, means))

    low, high = -pseudocount - n_records, float(counts.max()) + 40 * step * (1 + means.max() ** 0.5)
    t = falling_root(excess, n_records, low, high)
    return min(excess(t + counts) / n_records, 1.0)


def _poisson_excess(a: Floats, means: Floats) -> Floats:
    """E (z - a)+ of Poisson numbers z."""
    from scipy.special import gammainc

    first = np.maximum(np.floor(a) + 1, 1)  # the least z above a; gammainc(k, m) = Pr[z >= k]
    before = np.where(first > 1, gammainc(np.maximum(first - 1, 1), means), 1.0)
    above = means * before - a * gammainc(first, means)
    found: Floats = np.where(a < 0, means - a, np.maximum(above, 0.0))
    return found
