"""The kind of product that is a whole function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mechanisms.base.kind import Kind, NoiseFigure, Variant
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.functions.knobs import FunctionKnobs

LARGEST_ERROR = "largest_error"
"""What decides between kinds of noise for a function."""


class FunctionKind(Kind):
    """Densities, regressions and classifiers, released as polynomials."""

    name = "function"
    left_open = FunctionKnobs
    may_omit = True
    user_defined = "function"
    criteria = MappingProxyType({LARGEST_ERROR: "largest error"})
    compared = MappingProxyType({"sup_error": "expected largest error"})

    def criterion(self, knobs: Any) -> str:
        return LARGEST_ERROR

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        for mechanism in serving:
            for noise in ("laplace", "gaussian"):
                yield _label(mechanism.name, noise), mechanism, replace(knobs, noise=noise)

    def draws(self, mechanism: Any, n_cells: int) -> int:
        return 0

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """What noise adds to the largest error, as a share of what the function can be."""
        del target
        share = min(error.noise / mechanism.magnitude, 1.0)
        words = "expected error from noise, as a share of the largest value that it can have"
        return NoiseFigure(words, share)

    def label(self, mechanism: Any) -> str:
        return _label(mechanism.name, mechanism.noise)

    def extra_columns(self, knobs: Any) -> tuple[str, ...]:
        columns: tuple[str, ...] = knobs.columns_beside
        return columns


def _label(name: str, noise: str) -> str:
    return f"{name}, {noise} noise"


FUNCTION = FunctionKind()
