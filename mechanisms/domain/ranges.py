"""Columns of numbers or dates in bins, and the special values that have cells beside them.

The order of the cells, and how codes go with bins and special values, are here; what a bin holds is
said by the columns of whole numbers, real numbers and dates (``mechanisms.domain.columns``).
"""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Codes, Column
from statpress.mechanisms.errors import EdgesError

MOST_SPECIAL = 100
"""Special values that a column may have."""


@dataclass(frozen=True, kw_only=True)
class Ranges(Column):
    """Numbers or dates in *bins*, beside which special values have cells of their own.

    Codes go by value. A special value that lies in a bin comes before it if it is at most the
    bin's middle, else after it; the bin keeps all its other values, and is written as it would be
    without. What is neither special nor in the declared range is clamped to the first or last bin.

    Attributes:
        special: Distinct values, kept in order.
    """

    special: tuple[Any, ...] = field(default=(), repr=False)  # forms of reading hash the repr

    def _check(self) -> None:
        self._check_bins()
        if len(self.special) > MOST_SPECIAL:
            raise EdgesError(
                f"{len(self.special)} special values are declared, and at most {MOST_SPECIAL} can "
                "have cells of their own.",
                where=self.name,
                next_step="Leave the rarest to the bins.",
            )
        object.__setattr__(self, "special", tuple(sorted(map(self._as_special, self.special))))
        for value, following in itertools.pairwise(self.special):
            if value == following:
                raise EdgesError(
                    f"The special value {in_words(value)} is given twice.", where=self.name
                )
        for value in self.special:
            own = np.array([self.bin_of(value)])
            if self._middles(own)[0] == self._written(value):
                raise EdgesError(
                    f"{in_words(value)} cannot have a cell of its own: the cell that holds it is "
                    f"written {in_words(value)} too.",
                    where=self.name,
                    next_step="Leave it out of 'special' if that cell holds no other value; else "
                    "declare cells of which it is not the middle.",
                )
            if not self._n_left(own)[0]:
                raise EdgesError(
                    f"All values of the cell that holds {in_words(value)} are special.",
                    where=self.name,
                    next_step="Leave one of them out of 'special', or declare wider cells.",
                )

    @abstractmethod
    def _check_bins(self) -> None:
        """Refuse bins that are not a total function."""

    @abstractmethod
    def _as_special(self, value: Any) -> Any:
        """A special value in the column's own type.

        Raises:
            EdgesError: It is not of that type.
        """

    @property
    @abstractmethod
    def n_bins(self) -> int:
        """Number of codes that are bins."""

    @property
    def n_values(self) -> int:
        return self.n_bins + len(self.special)

    @property
    @abstractmethod
    def extent(self) -> tuple[Any, Any]:
        """The least and the largest value of the bins."""

    @property
    def outlying(self) -> tuple[Any, ...]:
        """The special values outside the range: codes and not amounts, such as 99999."""
        low, high = self.extent
        return tuple(value for value in self.special if not low <= value <= high)

    @property
    def inlying(self) -> tuple[Any, ...]:
        """The special values inside a bin, and not where it begins."""
        bins = ((value, self.bin_of(value)) for value in self.special)
        low, high = self.extent
        return tuple(v for v, j in bins if low < v < high and v != self.begin_of(j))

    @property
    def amounts(self) -> range:
        """The codes of bins and of the special values within their range."""
        below = sum(value < self.extent[0] for value in self.special)
        return range(below, self.n_values - len(self.outlying) + below)

    @functools.cached_property
    def bins_before(self) -> Codes:
        """int64[n_special], ascending: how many bins come before each special value."""
        bins = [(value, self.bin_of(value)) for value in self.special]
        return np.array([j + self._is_above(value, j) for value, j in bins], dtype=np.int64)

    @property
    def special_codes(self) -> Codes:
        """int64[n_special], ascending: the codes of the special values."""
        return self.bins_before + np.arange(len(self.special))

    @property
    @abstractmethod
    def borders(self) -> NDArray[np.float64]:
        """Where bins begin, and where the last ends, of dates in days: float64[n_bins + 1]."""

    def limits_of(self, codes: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Per code of a number the least and the largest value that its rank may have.

        Of a bin these are its ends. A special value that comes before the other values of its bin
        shares its ranks with the smaller ones, and one that comes after them with the larger ones.

        Returns:
            Two float64[k].
        """
        first, last = self._limits(self.bins_of(codes))
        for value, before, code in zip(
            self.special, self.bins_before, self.special_codes, strict=True
        ):
            own, j = codes == code, self.bin_of(value)
            low, high = self._limits(np.array([j]))
            first[own], last[own] = (value, high[0]) if before > j else (low[0], value)
        return first, last

    def is_special(self, codes: Codes) -> NDArray[np.bool_]:
        """bool[k]: which codes are those of special values."""
        return np.isin(codes, self.special_codes)

    def bins_of(self, codes: Codes) -> Codes:
        """int64[k]: the bins of codes int64[k]; of a special value a bin beside it."""
        if not self.special:
            return codes
        bins = codes - np.searchsorted(self.special_codes, codes)
        return np.asarray(np.minimum(bins, self.n_bins - 1))

    def codes_of_bins(self, bins: Codes) -> Codes:
        """int64[k]: the codes of bins int64[k]."""
        return bins + np.searchsorted(self.bins_before, bins, side="right")

    def _code_of(self, value: Any) -> int:
        for special, code in zip(self.special, self.special_codes, strict=True):
            if self._comparable(value) == special:
                return int(code)
        return int(self.codes_of_bins(np.array([self.bin_of(value)]))[0])

    def _comparable(self, value: Any) -> Any:
        """A value as special ones are compared with it."""
        return value

    @abstractmethod
    def bin_of(self, value: Any) -> int:
        """The bin of a value that is not special, or that a special value lies in."""

    @abstractmethod
    def begin_of(self, j: int) -> Any:
        """The least value of a bin."""

    @abstractmethod
    def _is_above(self, value: Any, j: int) -> bool:
        """Whether a special value lies above the middle of a bin."""

    def _written(self, value: Any) -> Any:
        """A value of the column as it is published."""
        return value

    def _decode(self, codes: Codes) -> NDArray[Any]:
        return self._with_special(codes, self._middles(self.bins_of(codes)))

    def _spread(self, codes: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        return self._with_special(codes, self._within(self.bins_of(codes), fractions))

    def _with_special(self, codes: Codes, values: NDArray[Any]) -> NDArray[Any]:
        """Values of bins, and special values where the codes are theirs."""
        if not self.special:
            return values
        written = np.array([self._written(value) for value in self.special])
        places = np.searchsorted(self.special_codes, codes).clip(max=len(written) - 1)
        return np.where(self.is_special(codes), written[places], values)

    @property
    def ends(self) -> tuple[Any, Any] | None:
        if self._single:
            return None
        values = (*self.extent, *self.special)
        return self._written(min(values)), self._written(max(values))

    @property
    def _single(self) -> bool:
        """Whether every bin is a single value."""
        return False

    @abstractmethod
    def _middles(self, bins: Codes) -> NDArray[Any]:
        """Public values of bins int64[k]."""

    @abstractmethod
    def _within(self, bins: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        """Values within bins int64[k] that are not special."""

    def _limits(self, bins: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the largest value of bins of numbers; an edge is that of both its bins."""
        raise TypeError(f"a column of kind {self.kind} has no numbers")

    @abstractmethod
    def _n_left(self, bins: Codes) -> NDArray[np.int64]:
        """How many values of bins int64[k] are not special; 1 where they cannot be counted."""


def in_words(value: Any) -> str:
    """A value for a message, without decimals that it does not need."""
    return str(value).removesuffix(".0")


def n_between(special: NDArray[Any], first: NDArray[Any], end: NDArray[Any]) -> NDArray[np.int64]:
    """How many special values lie from the first up to below the end of each range."""
    return np.asarray(np.searchsorted(special, end) - np.searchsorted(special, first))


def skipping(special: NDArray[Any], first: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """Whole values so many steps above the first of each range, special ones not counted."""
    values = first + steps
    for value in special:
        values += ((first <= value) & (value <= values)).astype(steps.dtype)
    return np.asarray(values)
