"""What every kind of column is: a total function from any value to a small integer code.

**Ranges** are columns of numbers or dates in bins, beside which special values have cells of their
own. The order of the cells, and how codes go with bins and special values, are here; what a bin
holds is said by the columns of whole numbers, real numbers and dates
(``mechanisms.domain.columns``).

**Where in a bin values lie**, by the slope of the neighbouring cells. Of a bin only its number of
records is public. Here the density within it is linear, with the slope of the chord between the
densities of the bins on either side (the bin's own at an end of the range), made flatter where it
would fall below 0: piecewise linear reconstruction as in finite volume methods (van Leer 1979,
doi:10.1016/0021-9991(79)90145-1). The mass of every bin is kept.

With u in [0, 1] for a place in the bin, the density is 1 + a (2u - 1). The *tilt* a in [-1, 1] is
half the bin's width times the slope, over the bin's own density. A uniform v becomes the place
u = F^{-1}(v), where F(u) = (1 - a) u + a u^2.

It is post-processing: no data, no budget. Special values, ``other`` and missing have no slope.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError, EdgesError

Codes = NDArray[np.int64]
Category = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A named column with a declared, finite set of codes 0..size-1.

    Attributes:
        name: Column name in the source and in the release.
        missing: Whether nulls have a cell of their own, the last code.
    """

    kind: ClassVar[str]
    name: str
    missing: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("A column needs a name.")
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse a declaration that is not a total function."""

    @property
    @abstractmethod
    def n_values(self) -> int:
        """Codes that are neither ``other`` nor ``missing``."""

    @property
    def other_code(self) -> int | None:
        """Code of the declared ``other`` cell, if there is one."""
        return None

    @property
    def size(self) -> int:
        """Number of codes, with ``other`` and ``missing``."""
        return self.n_values + (self.other_code is not None) + self.missing

    @property
    def missing_code(self) -> int | None:
        """Code of the declared ``missing`` cell, if there is one."""
        return self.size - 1 if self.missing else None

    @property
    def null_code(self) -> int:
        """Code that a null or a NaN receives, declared or not."""
        return next((c for c in (self.missing_code, self.other_code) if c is not None), 0)

    @property
    def unseen_code(self) -> int:
        """Code that a value outside the declared categories receives."""
        return next((c for c in (self.other_code, self.missing_code) if c is not None), 0)

    def code_of(self, value: Any) -> int:
        """The code of one value; defined for null, NaN and every value of the kind's type."""
        if value is None or value != value:  # NaN and NaT differ from themselves
            return self.null_code
        return self._code_of(value)

    @abstractmethod
    def _code_of(self, value: Any) -> int:
        """The code of a value that is neither null nor NaN."""

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Public values of codes.

        Args:
            codes: int64[k], each in 0..size-1.

        Returns:
            An array[k] of the release's type for this column; entries of the
            ``missing`` cell hold an arbitrary value, see ``is_missing``.
        """
        return self._decode(np.minimum(codes, self.size - 1 - self.missing))

    @property
    def ends(self) -> tuple[Any, Any] | None:
        """The least and the largest value of ``spread``; None if cells are single values."""
        return None

    def spread(self, codes: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        """Values within the cells of codes, where cells are ranges; else those of ``decode``.

        Args:
            codes: int64[k], each in 0..size-1.
            fractions: float64[k] in [0, 1): how far into its cell each value lies.

        Returns:
            An array[k]; entries of the ``missing`` cell hold an arbitrary value.
        """
        known = np.minimum(codes, self.size - 1 - self.missing)
        return self._spread(known, fractions)

    def _spread(self, codes: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        """Values within the cells of codes that are not ``missing``."""
        del fractions
        return self._decode(codes)

    @abstractmethod
    def _decode(self, codes: Codes) -> NDArray[Any]:
        """Public values of codes that are not ``missing``."""

    def is_missing(self, codes: Codes) -> NDArray[np.bool_]:
        """bool[k]: which codes are the ``missing`` cell."""
        if self.missing_code is None:
            return np.zeros(len(codes), dtype=np.bool_)
        return np.asarray(codes == self.missing_code)


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
