"""What is stated of a mechanism's estimates, apart from its noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self


class Span(Protocol):
    """The declared range of a column, in its own units."""

    @property
    def lower(self) -> float:
        """What is scaled to 0."""

    @property
    def upper(self) -> float:
        """What is scaled to 1."""


Spans = Sequence[Span]
"""Of a statistic's columns in their order, then of the group if it has one."""


@dataclass(frozen=True)
class Scale:
    """From a figure of columns in [0, 1] to the units of the declaration."""

    shift: float = 0.0
    factor: float = 1.0

    def value(self, scaled: float) -> float:
        """The figure in its own units."""
        return self.shift + self.factor * scaled


@dataclass(frozen=True)
class Terms:
    """What is stated of a mechanism's estimates, apart from its noise.

    Attributes:
        quantities: What is estimated, in words.
        scales: Of each from figures of columns in [0, 1] to its own units.
        confidence: Level of the intervals.
    """

    quantities: tuple[str, ...]
    scales: tuple[Scale, ...]
    confidence: float

    def describe(self) -> dict[str, str | int]:
        """As part of a mechanism's description."""
        found: dict[str, str | int] = {"confidence": repr(self.confidence)}
        for i, (quantity, scale) in enumerate(zip(self.quantities, self.scales, strict=True), 1):
            found |= {
                f"quantity_{i}": quantity,
                f"shift_{i}": repr(scale.shift),
                f"factor_{i}": repr(scale.factor),
            }
        return found

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Read back what ``describe`` wrote."""
        quantities: list[str] = []
        scales: list[Scale] = []
        while (quantity := description.get(f"quantity_{len(scales) + 1}")) is not None:
            i = len(scales) + 1
            shift, factor = (float(str(description[f"{name}_{i}"])) for name in ("shift", "factor"))
            quantities.append(str(quantity))
            scales.append(Scale(shift, factor))
        return cls(tuple(quantities), tuple(scales), float(str(description["confidence"])))
