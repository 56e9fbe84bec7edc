"""The scale of integer noise on every cell: a grid of dyadic numbers, and the least that serves."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from mechanisms.accounting.enclosures import double_above
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.mechanism import Target
from mechanisms.errors import InfeasibleBudgetError, RecordsError

MOST_CELLS = 10_000_000
"""Of a table with noise on every cell."""

_FINEST, _WIDEST = Fraction(1, 2**20), Fraction(2**40)
_ENDS = (-20 * 1024, 40 * 1024)  # their places on the grid


def scale_for(
    given: Fraction | None, target: Target, loss: Callable[[Fraction], PrivacyLoss]
) -> Fraction:
    """The given scale, or the smallest within a thousandth, at which a loss meets the target.

    Raises:
        InfeasibleBudgetError: No scale, or not the given one, meets it.
    """
    if target.n_cells > MOST_CELLS:
        raise InfeasibleBudgetError(
            f"A noisy table has a row per cell; {target.n_cells:,} are too many.",
            next_step=f"Declare at most {MOST_CELLS:,} cells, or use 'bootstrap'.",
        )

    def fits(scale: Fraction) -> bool:
        return target.allows(loss(scale))

    if given is None:
        return _smallest(fits)
    scale = Fraction(double_above(given))
    if not fits(scale):
        least = _smallest(fits)
        raise InfeasibleBudgetError(
            f"Noise of scale {float(scale):g} is too little for the budget.",
            next_step=f"Give a scale of at least {float(least):.6g}, leave it out, or"
            " raise the budget.",
        )
    return scale


def _smallest(fits: Callable[[Fraction], bool]) -> Fraction:
    """Smallest scale on the grid at which a budget is met."""
    low, high = _ENDS
    if fits(_grid(low)):
        return _grid(low)
    if not fits(_grid(high)):
        raise InfeasibleBudgetError(
            "No scale of this noise meets the budget.",
            next_step="Raise the budget; Gaussian noise needs a delta above 0, 'laplace' none.",
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(_grid(middle)) else (middle, high)
    return _grid(high)


def _grid(index: int) -> Fraction:
    """The index-th scale: 1024 steps from each power of two to the next; index 0 is 1."""
    power, step = divmod(index, 1024)
    return Fraction(1024 + step, 1024) * Fraction(2) ** power


def check_scale(scale: Fraction, where: str = "") -> None:
    """Refuse a scale outside the grid.

    Raises:
        RecordsError: It is not between 2**-20 and 2**40.
    """
    if not _FINEST <= scale <= _WIDEST:
        raise RecordsError("The scale must be between 2**-20 and 2**40 records.", where=where)
