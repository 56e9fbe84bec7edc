"""The kind of product that is an estimate with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from mechanisms.base.kind import Kind, NoiseFigure, Variant
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.estimates.knobs import EstimandKnobs

WIDTH = "interval_width"
"""What decides between mechanisms for an estimate."""


class EstimateKind(Kind):
    """Estimates of a declared statistic."""

    name = "estimate"
    left_open = EstimandKnobs
    may_omit = True
    user_defined = "statistic"
    criteria = MappingProxyType({WIDTH: "width of the interval"})
    compared = MappingProxyType({"width": "expected width of the intervals"})

    def criterion(self, knobs: Any) -> str:
        return WIDTH

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        said = {each.name: getattr(knobs, each.name) for each in fields(EstimandKnobs)}
        asked = said.pop("inference")
        guaranteed = asked == "guaranteed"
        for mechanism in serving:
            if not guaranteed:  # elsewhere 'inference' may mean something else
                yield mechanism.name, mechanism, mechanism.knobs(**said)
            elif mechanism.knobs is EstimandKnobs:
                yield mechanism.name, mechanism, EstimandKnobs(**said, inference=asked)

    def draws(self, mechanism: Any, n_cells: int) -> int:
        return 0

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        yield from error.rows()
        if getattr(mechanism, "expected_cells", None) == 1:
            yield "the interval is", "one cell: only narrower cells would tell more"
        if getattr(mechanism, "inference", None) == "approximate":
            worst, level = mechanism.worst_coverage, mechanism.terms.confidence
            yield (
                "the interval is",
                f"approximate: where rare values decide it may cover with {worst:.3f} in place "
                f"of {level:g}",
            )
        cost = getattr(mechanism, "guarantee_cost", None)
        if cost is not None:
            words = "guaranteed: it is" if mechanism.guaranteed else "a guaranteed one would be"
            yield "width for every population", f"{words} {cost:.2f} times that by approximation"

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """Half the width of the last interval, as a share of what the declared ranges allow."""
        del target
        own: float | None = getattr(mechanism, "span", None)
        span = abs(mechanism.terms.scales[-1].factor) if own is None else own
        share = min(error.deciding(WIDTH) / 2 / span, 1.0)
        return NoiseFigure("half the expected interval, as a share of the declared range", share)

    def check(self, knobs: Any, target: Target) -> None:
        from mechanisms.estimates.mechanism import estimand_for

        estimand_for(knobs, target, "auto")

    def extra_columns(self, knobs: Any) -> tuple[str, ...]:
        columns: tuple[str, ...] = knobs.columns_beside
        return columns


ESTIMATE = EstimateKind()
