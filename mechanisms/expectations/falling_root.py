"""Where a falling function passes a level, in some thirty looks."""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST_LOOKS = 200
_NARROW = 2.0**-60  # of the first bracket
_CUT = 2.0**-10  # of the level, below which the function counts as this


def falling_root(
    function: Callable[[float], float], level: float, low: float, high: float
) -> float:
    """About the place where a continuous falling function passes a level.

    False position on the function's logarithm, in which an end that stays counts half as much each
    time (the Illinois rule), with a halving at every fourth look.

    Args:
        function: Above the level at ``low``, and not at ``high``.
        level: To pass, above 0.
        low: The lower end.
        high: The upper end.
    """

    def height(point: float) -> float:
        return math.log(max(function(point) / level, _CUT))

    width = (high - low) * _NARROW
    over, under, moved, point = height(low), height(high), 0, high
    for look in range(_MOST_LOOKS):
        if high - low <= width or not over > under:
            break
        share = 0.5 if look % 4 == 3 else over / (over - under)
        point = low + share * (high - low)
        least = min(width / 2, (high - low) / 4)
        point = min(max(point, low + least), high - least)
        found = height(point)
        if found > 0:
            low, over = point, found
            under = under / 2 if moved > 0 else under
            moved = 1
        else:
            high, under = point, found
            over = over / 2 if moved < 0 else over
            moved = -1
        if not low < (low + high) / 2 < high:
            break
    return point
