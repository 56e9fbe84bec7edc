"""The codes of a record packed into few integers, as the counting engine hands them over.

Of a domain whose joint table can be counted the one word is the cell. The columns of a wider
one are divided, in order, into runs whose cells a double still holds exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import MAX_CELLS, Domain
from mechanisms.domain.group_counts import smallest_unsigned

_EXACT_DOUBLES = 2**53


@dataclass(frozen=True)
class PackedCodes:
    """Which word holds a column's code, and how it is read from there.

    Args:
        words: For each word the positions of its columns, the first the most significant.
        sizes: Number of codes of each column.

    Attributes:
        strides: What each column's code is multiplied with in its word.
    """

    words: tuple[range, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strides = []
        for word in reversed(self.words):
            stride = 1
            for column in reversed(word):
                strides.append(stride)
                stride *= self.sizes[column]
        object.__setattr__(self, "strides", tuple(reversed(strides)))

    @classmethod
    def of(cls, domain: Domain) -> Self:
        """One word if the domain's cells fit, else as few as follow from the columns' order."""
        sizes = tuple(column.size for column in domain.columns)
        if domain.n_cells <= MAX_CELLS:
            return cls((range(len(sizes)),), sizes)
        return cls.of_sizes(sizes)

    @classmethod
    def of_sizes(cls, numbers: Sequence[int]) -> Self:
        """The same for columns of so many codes each."""
        sizes = tuple(numbers)
        if math.prod(sizes) <= MAX_CELLS:
            return cls((range(len(sizes)),), sizes)
        words, start, cells = [], 0, 1
        for column, size in enumerate(sizes):
            if column > start and cells * size > _EXACT_DOUBLES:
                words.append(range(start, column))
                start, cells = column, 1
            cells *= size
        return cls((*words, range(start, len(sizes))), sizes)

    def cells(self, word: int) -> int:
        """Number of values of a word."""
        first = self.words[word][0]
        return self.sizes[first] * self.strides[first]

    def unpack(self, words: list[NDArray[np.int64]]) -> Iterator[NDArray[Any]]:
        """The codes of each column in order, unsigned [k], from words int64[k]."""
        for columns, packed in zip(self.words, words, strict=True):
            left = packed
            for column in columns:
                codes = left // self.strides[column]
                left = left - codes * self.strides[column]
                yield codes.astype(smallest_unsigned(self.sizes[column]))
