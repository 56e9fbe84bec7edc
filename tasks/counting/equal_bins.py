"""Equal bins by arithmetic in doubles, proven on every edge before the engine sees it.

Addition, subtraction, multiplication and floor of doubles give the same result in every engine
(IEEE 754), so what NumPy finds here is what the engine will find.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_SIGNIFICANT = 53  # bits of a double
_MOST_PATCHES = 16


@dataclass(frozen=True)
class EdgeFormula:
    """The edges as (start + i * step) + (start_rest + i * step_rest), rounded after each operation.

    ``start`` and ``step`` are multiples of one power of two, so large that the first sum is exact
    for every edge. The rest is so small that the last sum is nearly always the double nearest to
    the exact edge; where it is not, the edge is one of the ``patches``.

    Attributes:
        start: With its rest the first edge.
        step: With its rest the width of a bin.
        patches: Edges that the formula misses, by index.
    """

    start: float
    start_rest: float
    step: float
    step_rest: float
    patches: tuple[tuple[int, float], ...] = ()

    def at(self, index: NDArray[np.float64]) -> NDArray[np.float64]:
        """The formula's edges at whole indices, patches aside."""
        with np.errstate(all="ignore"):
            first = self.start + index * self.step
            return np.asarray(first + (self.start_rest + index * self.step_rest))

    @classmethod
    def of(cls, edges: NDArray[np.float64]) -> EdgeFormula | None:
        """A formula that gives every one of the edges, float64[n_bins + 1]; None if none does."""
        low, high = Fraction(float(edges[0])), Fraction(float(edges[-1]))
        width = (high - low) / (len(edges) - 1)
        unit = Fraction(2) ** (_exponent(2 * max(abs(low), abs(high))) - _SIGNIFICANT + 1)
        start, step = (round(number / unit) * unit for number in (low, width))
        try:
            found = cls(float(start), float(low - start), float(step), float(width - step))
        except OverflowError:
            return None
        missed = np.flatnonzero(found.at(np.arange(len(edges), dtype=np.float64)) != edges)
        if len(missed) > _MOST_PATCHES:
            return None
        patches = tuple((int(i), float(edges[i])) for i in missed)
        return replace(found, patches=patches)


def guessing_scale(edges: NDArray[np.float64]) -> float | None:
    """A scale for which floor((x - edges[0]) * scale) is the bin of x or the next.

    Subtraction, multiplication by a positive number and floor never decrease, as
    rounded in doubles too. So if at each inner edge the result is not below the
    bin that begins there, and at the double just below not above it, then the
    same holds at all x from the first to the last inner edge. None if no such
    scale is found, as when the bins are not equal.

    Args:
        edges: float64[n_bins + 1], of two bins at least.
    """
    inner, begins = edges[1:-1], np.arange(1, len(edges) - 1)
    below = np.nextafter(inner, -np.inf)
    with np.errstate(all="ignore"):
        scale = np.max(begins / (inner - edges[0])) * (1 + 2**-50)
        enough = np.floor((inner - edges[0]) * scale) >= begins
        not_too_much = np.floor((below - edges[0]) * scale) <= begins
    return float(scale) if np.all(enough & not_too_much) else None


def _exponent(number: Fraction) -> int:
    """The power of two above a positive number, or the one above that."""
    return number.numerator.bit_length() - number.denominator.bit_length() + 1
