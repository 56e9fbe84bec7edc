"""A filter for Gaussian differential privacy: what adaptive steps may spend in all.

A step with Euclidean sensitivity D and normal noise of variance s^2 in each coordinate is
D/s-GDP. If the steps, each chosen after looking at the results of those before, are such that the
sum of their D^2/s^2 never passes mu^2, then all of them together are mu-GDP (Smith and Thakurta
2022, arXiv 2210.17520, Theorem 1, whose filter loses nothing against a composition fixed in
advance).
"""

from __future__ import annotations

from fractions import Fraction

from mechanisms.errors import InsufficientBudgetError, RecordsError

_BITS = 256  # every spending is rounded up to a multiple of 2**-256


class GdpFilter:
    """Holds a fixed mu^2 and refuses any step that would pass it.

    Attributes:
        mu_squared: All that may ever be spent.
    """

    def __init__(self, mu_squared: Fraction) -> None:
        if not isinstance(mu_squared, Fraction) or mu_squared < 0:
            raise RecordsError("mu squared must be a fraction of at least 0.")
        self._mu_squared = mu_squared
        self._spent = Fraction(0)

    @property
    def mu_squared(self) -> Fraction:
        """All that may ever be spent."""
        return self._mu_squared

    @property
    def spent(self) -> Fraction:
        """What was spent, rounded up."""
        return self._spent

    @property
    def remaining(self) -> Fraction:
        """What may still be spent."""
        return self._mu_squared - self._spent

    def spend(self, sensitivity_squared: int | Fraction, variance: Fraction) -> None:
        """Spend sensitivity^2 / variance, before the noise of that variance is drawn.

        Args:
            sensitivity_squared: Squared Euclidean sensitivity, in the units of the variance.
            variance: Of the equivalent normal noise in each coordinate.

        Raises:
            InsufficientBudgetError: It would pass mu^2; nothing is spent then.
            RecordsError: The sensitivity is negative or the variance not positive, or one of
                them is not exact.
        """
        if not isinstance(sensitivity_squared, int | Fraction) or not isinstance(
            variance, int | Fraction
        ):
            raise RecordsError("A filter takes exact numbers only.")
        if sensitivity_squared < 0 or variance <= 0:
            raise RecordsError("A sensitivity is at least 0, and a variance above 0.")
        amount = Fraction(sensitivity_squared) / variance
        rounded = Fraction(-(-amount.numerator * 2**_BITS // amount.denominator), 2**_BITS)
        if rounded > self.remaining:
            raise InsufficientBudgetError(
                "A step would pass the budget of its mechanism.",
                remaining=self.remaining,
                requested=rounded,
                next_step="Report this: its steps were planned to fit.",
            )
        self._spent += rounded
