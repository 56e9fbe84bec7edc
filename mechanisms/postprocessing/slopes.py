"""Where in their cells values lie, by the slope of the neighbouring cells.

Of a bin only its number of records is public. Here the density within it is linear, with the slope
of the chord between the densities of the bins on either side (the bin's own at an end of the
range), made flatter where it would fall below 0: piecewise linear reconstruction as in finite
volume methods (van Leer 1979, doi:10.1016/0021-9991(79)90145-1). The mass of every bin is kept.

With u in [0, 1] for a place in the bin, the density is 1 + a (2u - 1). The *tilt* a in [-1, 1] is
half the bin's width times the slope, over the bin's own density. A uniform v becomes the place
u = F^{-1}(v), where F(u) = (1 - a) u + a u^2.

It is post-processing: no data, no budget. Special values, ``other`` and missing have no slope.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes, Column
from statpress.mechanisms.domain.ranges import Ranges

Floats = NDArray[np.float64]


def tilts(column: Column, counts: Codes) -> Floats:
    """How the density leans in every cell of a column.

    Args:
        column: As declared.
        counts: Records of every code, int64[size].

    Returns:
        float64[size] in [-1, 1], 0 where values lie evenly or are single.
    """
    leaning = np.zeros(column.size)
    if not isinstance(column, Ranges) or column.ends is None or column.n_bins == 1:
        return leaning
    codes, borders = column.codes_of_bins(np.arange(column.n_bins)), column.borders
    widths, centres = np.diff(borders), (borders[:-1] + borders[1:]) / 2
    below = np.arange(-1, len(codes) - 1).clip(0)
    above = np.arange(1, len(codes) + 1).clip(max=len(codes) - 1)
    with np.errstate(all="ignore"):  # of bins narrower than doubles can divide by
        densities = counts[codes] / widths
        slopes = (densities[above] - densities[below]) / (centres[above] - centres[below])
        found = slopes * widths / 2 / np.where(densities > 0, densities, 1.0)
    leaning[codes] = np.nan_to_num(np.clip(found, -1.0, 1.0))
    return leaning


def leant(evenly: Floats, leaning: Floats) -> Floats:
    """Places in a cell, float64[k] in [0, 1), from even ones and the cell's tilts, float64[k]."""
    flat = 1 - leaning
    divisor = flat + np.sqrt(flat**2 + 4 * leaning * evenly)
    places = 2 * evenly / np.maximum(divisor, math.ulp(0.0))
    return np.minimum(places, math.nextafter(1.0, 0.0))
