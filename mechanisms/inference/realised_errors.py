"""The errors that a release really has, once exact counts may be looked at beside it.

The counterpart of what a plan expects, for the curator's report: whoever sees these figures and the
release can work out exact counts, so they are as private as the counts are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.inference.intervals import normal_quantile

LEVEL = 0.95


def total_variation(published: ArrayLike, true: ArrayLike) -> float:
    """Half the sum of absolute differences of the shares, 0 to 1.

    Args:
        published: Counts of any shape, not negative; made to add up to 1.
        true: As many; likewise. Where one of both has no records, they are 1 apart.
    """
    first, second = (np.asarray(each, np.float64) for each in (published, true))
    sums = float(first.sum()), float(second.sum())
    if min(sums) <= 0:
        return 0.0 if max(sums) <= 0 else 1.0
    return float(np.abs(first / sums[0] - second / sums[1]).sum() / 2)


@dataclass(frozen=True, repr=False)
class Coverage:
    """How many intervals hold the true value; private.

    Attributes:
        inside: That do.
        of: Of how many.
        level: At which they are stated.
    """

    inside: int
    of: int
    level: float = LEVEL

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.inside + other.inside, self.of + other.of, self.level)

    @property
    def share(self) -> float:
        """NaN of none."""
        return self.inside / self.of if self.of else float("nan")

    @property
    def missed(self) -> int:
        """How many do not."""
        return self.of - self.inside

    @property
    def at_most(self) -> Fraction:
        """In which share of releases so many or more miss at most, whatever the intervals share.

        Intervals of one release share noise, so that they may miss together, and counting them as
        independent would call honest ones broken. But if each misses with probability 1 - level at
        most, the number that miss has a mean of (1 - level) times their number at most, and by
        Markov's inequality P(missed >= m) <= (1 - level) of/m, which is attained by intervals that
        miss in groups of m. Few that miss say nothing.
        """
        if not self.missed:
            return Fraction(1)
        return min(Fraction(1), (1 - Fraction(str(self.level))) * self.of / self.missed)


def coverage(true: ArrayLike, estimates: ArrayLike, errors: ArrayLike) -> Coverage:
    """How many normal intervals at ``LEVEL`` hold the true values.

    Args:
        true: float64 of any shape.
        estimates: As many.
        errors: Standard errors, as many or one for all; what has 0 is known exactly, and has no
            interval to be counted.
    """
    exact, found, error = np.broadcast_arrays(
        *(np.asarray(each, np.float64) for each in (true, estimates, errors))
    )
    stated = error > 0
    inside = np.abs(found - exact) <= normal_quantile(LEVEL) * error
    return Coverage(int(np.count_nonzero(inside & stated)), int(np.count_nonzero(stated)))
