"""Expected error of a released function, from public quantities only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mechanisms.base.kind import in_words


@dataclass(frozen=True, kw_only=True)
class ExpectedFunction:
    """What an analyst can expect of a function before any data is read; in its own units.

    Attributes:
        sup_error: About the mean largest error over the declared ranges, for a reference.
        bias: Of that the error of the polynomial.
        noise: And that of the noise.
        bound_95: A level that the largest error passes with probability 5 % at most, whatever
            the data; None where nothing is known of the function's smoothness.
        least_error: No release that is as private (of this pure epsilon, or this mu) errs by
            less for all data; None if no bound is known.
        noise_sd_middle: Standard deviation of the noise in the middle of the ranges.
    """

    sup_error: float
    bias: float
    noise: float
    bound_95: float | None
    least_error: float | None
    noise_sd_middle: float

    def deciding(self, criterion: str) -> float:
        """The largest error."""
        return self.sup_error

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and values."""
        parts = f"{self.bias:.4g} of the polynomial, {self.noise:.4g} of the noise"
        yield "expected largest error", f"{self.sup_error:.5g} ({parts})"
        yield "the same with 95 %, at most", _known(self.bound_95)
        yield "no release errs less for all data", _known(self.least_error)
        yield "sd of the noise in the middle", f"{self.noise_sd_middle:.4g}"

    def summary(self) -> str:
        """All that is known."""
        return in_words(self.rows())


def _known(figure: float | None) -> str:
    return "not known" if figure is None else f"{figure:.5g}"
