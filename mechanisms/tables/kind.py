"""The kinds of product that are counts of cells: microdata and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from mechanisms.base.kind import Kind, Variant
from mechanisms.base.mechanism import Mechanism

Criterion = Literal["total_variation", "kolmogorov_smirnov", "cell_sd"]


@dataclass(frozen=True, kw_only=True)
class AutoKnobs:
    """What a config may say where it leaves the mechanism open.

    Attributes:
        minimise: The expected error that decides: ``total_variation`` of the projected
            counts, ``kolmogorov_smirnov`` for ordered cells, or ``cell_sd``, the
            standard deviation of an average cell's estimate.
    """

    minimise: Criterion = "total_variation"


class CountsKind(Kind):
    """Microdata or tables: what their mechanisms give are counts of cells."""

    left_open = AutoKnobs
    may_omit = False
    criteria = MappingProxyType(
        {
            "cell_sd": "sd of a cell, average",
            "total_variation": "total variation, projected",
            "kolmogorov_smirnov": "KS distance",
        }
    )
    compared = MappingProxyType(
        {
            "cell_sd_average": "expected sd of a cell, average",
            "projected_total_variation": "expected total variation, projected",
            "kolmogorov_smirnov": "expected KS distance",
        }
    )

    def __init__(self, name: str) -> None:
        self.name = name

    def criterion(self, knobs: Any) -> str:
        minimise: str = getattr(knobs, "minimise", AutoKnobs.minimise)
        return minimise

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        for mechanism in serving:
            yield mechanism.name, mechanism, mechanism.knobs()

    def draws(self, mechanism: Any, n_cells: int) -> int:
        return int(mechanism.describe().get("records", n_cells))

    def objection(self, mechanism: Any) -> str:
        if mechanism.unbiased:
            return ""
        return "Its estimates are biased, by an amount that depends on the data."

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        yield from error.rows()
        if not mechanism.unbiased:
            yield "bias of the estimates", "depends on the data, and comes on top"


MICRODATA = CountsKind("microdata")
TABLE = CountsKind("table")
