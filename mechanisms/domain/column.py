"""What every kind of column is: a total function from any value to a small integer code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError

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
