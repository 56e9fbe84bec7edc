"""Figures that a series tracks from period to period: shares of values, and estimates.

A kind of product gives them by ``ProductKind.tracked``, from the public files of a bundle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

from statpress.mechanisms.domain.columns import Column, labels
from statpress.tasks.products.distributions import cell_names

SHARE, WEIGHTED = "share", "weighted share"
CONFIDENCE = 0.95
"""Of the intervals of shares."""
REACH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors on either side of a normal interval."""
MOST_CELLS = 1000
"""Cells of one column up to which their shares are tracked."""
MOST_PAIR_CELLS = 60
"""Cells of two columns of a table up to which their joint shares are tracked."""


class Reading(NamedTuple):
    """A figure with its interval; None where a number is not known or infinite."""

    value: float | None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None

    @classmethod
    def of(cls, *numbers: float | None) -> Reading:
        """The numbers, without those that are not finite."""
        return cls(*(float(x) if x is not None and math.isfinite(x) else None for x in numbers))


@dataclass(frozen=True)
class TrackedFigure:
    """A figure of one release.

    Attributes:
        name: ``share``, ``weighted share`` by the survey weights of records, or what is estimated.
        cell: Of a share its columns, each with its value as published; empty of an estimate.
        label: The value in words, or what is estimated.
        reading: The figure.
        confidence: Of its interval; None where none is known, as of a biased figure.
        of: Whether the interval is about the ``records`` or the ``population`` that they are of.
    """

    name: str
    cell: tuple[tuple[str, str], ...]
    label: str
    reading: Reading
    confidence: float | None
    of: str


def tracked_shares(
    columns: Sequence[Column],
    fields: Sequence[Mapping[str, Any]],
    read: Callable[[tuple[int, ...]], Reading],
    confidence: float | None = CONFIDENCE,
    name: str = SHARE,
) -> Iterator[TrackedFigure]:
    """The shares of all cells of some columns, of the records that are missing in none of them.

    Args:
        columns: One, or several for their joint shares.
        fields: The same as the data package describes them.
        read: Gives the share of the cell with these codes.
        confidence: Of their intervals; None where none is known.
        name: Of the figure.
    """
    values = [labels(column) for column in columns]
    words = [cell_names(*each) for each in zip(columns, fields, strict=True)]
    for codes in itertools.product(*(range(each.size - each.missing) for each in columns)):
        cell = tuple(
            (column.name, str(listed[code]))
            for column, listed, code in zip(columns, values, codes, strict=True)
        )
        label = " · ".join(names[code] for names, code in zip(words, codes, strict=True))
        yield TrackedFigure(name, cell, label, read(codes), confidence, "records")
