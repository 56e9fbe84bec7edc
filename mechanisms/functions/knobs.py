"""What a config says of a function, checked as far as it can be without its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mechanisms.base.user_defined import UserDefined
from mechanisms.bernstein.accuracy import Shape
from mechanisms.bernstein.polynomials import MOST_DEGREE
from mechanisms.bernstein.released_function import FunctionShape
from mechanisms.errors import ConfigError

TargetName = Literal[
    "kde", "regression", "naive_bayes", "logistic", "ridge", "svm", "kernel_logistic"
]
NoiseChoice = Literal["auto", "laplace", "gaussian"]

_CLASSIFIERS = ("naive_bayes", "logistic", "svm", "kernel_logistic")
_TAKEN_BY = {
    "label": (*_CLASSIFIERS, None),
    "response": ("regression", "ridge", None),
    "bandwidth": ("kde", "regression", "naive_bayes", "ridge", "svm", "kernel_logistic"),
    "kernel": ("kde", "regression", "naive_bayes"),
    "cost": ("logistic", "ridge", "svm", "kernel_logistic"),
    "widest_gap": ("regression",),
    "normalise": ("kde", None),
    "sensitivity": (None,),
    "magnitude": (None,),
    "feature_width": (None,),
}  # None is a user-defined function
_ABOVE_0 = ("cost", "widest_gap", "sensitivity", "magnitude", "feature_width")


@dataclass(frozen=True, kw_only=True)
class FunctionKnobs:
    """What a config says of a function.

    Attributes:
        target: What is released as a function of the product's columns.
        function: Instead, a user-defined one, which a config names as ``module:name``; called
            with the table and points float64[m, l] of the unit cube, and declared with
            ``sensitivity`` and ``magnitude``.
        label: For classifiers: a column of two values, the second of them positive.
        response: For regressions: the column of numbers that is explained.
        kernel: Of densities, ``regression`` and ``naive_bayes``.
        bandwidth: As a share of the declared range, one for all variables or one for each. A
            ``ridge`` is linear without it, and has a Gaussian kernel with it.
        cost: C of the regularised risk (C/n) sum of losses + |w|^2 / 2; by default 1 for ``ridge``,
            and for a classifier what mechanisms.functions.default_cost chooses.
        widest_gap: For ``regression``: what a gap between values counts at most, as a share of
            the range; by default the least distance between two.
        degree: k; the lattice has k + 1 points along each variable.
        order: h of the iterated Bernstein operator.
        noise: Laplace is pure, Gaussian needs a delta; by default what errs less.
        non_negative: Release the larger of the function and 0.
        normalise: And divide by the integral over the declared range.
        monotone: Release the nearest curve that rises, or falls.
        unimodal: Release the nearest curve that rises and then falls.
        sensitivity: Of a user-defined function: the most that replacing a record changes a value.
        magnitude: Of a user-defined function: the most that a value can be, either side of 0.
        feature_width: Of a user-defined function: the width of what it varies by, as a share
            of the range; only guides k and h.
    """

    target: TargetName | None = None
    function: UserDefined | None = None
    label: str | None = None
    response: str | None = None
    kernel: Shape | None = None
    bandwidth: float | tuple[float, ...] | None = None
    cost: float | None = None
    widest_gap: float | None = None
    degree: int | None = None
    order: int | None = None
    noise: NoiseChoice = "auto"
    non_negative: bool = False
    normalise: bool = False
    monotone: Literal["increasing", "decreasing"] | None = None
    unimodal: bool = False
    sensitivity: float | None = None
    magnitude: float | None = None
    feature_width: float | None = None

    def __post_init__(self) -> None:
        if (self.target is None) == (self.function is None):
            raise ConfigError("A function needs either a 'target' or a user-defined 'function'.")
        for name, targets in _TAKEN_BY.items():
            if getattr(self, name) and self.target not in targets:
                known = " or ".join(f"'{each}'" for each in targets if each is not None)
                goes = f", but with the target {known}" if known else ""
                raise ConfigError(f"'{name}' does not go with {self.named}{goes}.", where=name)
        for name in ("label", "response"):
            needed = self.target is not None and self.target in _TAKEN_BY[name]
            if needed and getattr(self, name) is None:
                raise ConfigError(f"{self.named.capitalize()} needs a '{name}'.", where="target")
        bandwidths = self.bandwidth if isinstance(self.bandwidth, tuple) else (self.bandwidth,)
        if not all(b is None or 0 < b < math.inf for b in bandwidths):
            raise ConfigError("A bandwidth must be above 0.", where="bandwidth")
        for name in _ABOVE_0:
            number = getattr(self, name)
            if number is not None and not 0 < number < math.inf:
                raise ConfigError(f"'{name}' must be above 0 and finite.", where=name)
        if self.degree is not None and not 1 <= self.degree <= MOST_DEGREE:
            raise ConfigError(f"The degree k must be from 1 to {MOST_DEGREE}.", where="degree")
        if self.order is not None and not 1 <= self.order <= MOST_DEGREE:
            raise ConfigError(f"The order h must be from 1 to {MOST_DEGREE}.", where="order")
        if self.monotone is not None and self.unimodal:
            raise ConfigError("A function is fitted as monotone or as unimodal.", where="unimodal")
        if self.function is not None:
            self._check_declared()

    def _check_declared(self) -> None:
        """Refuse a user-defined function that declares too little."""
        if self.sensitivity is None:
            raise ConfigError(
                "The function has no sensitivity.",
                where="function",
                next_step="Declare 'sensitivity', the most that replacing one record can change "
                "a value by.",
            )
        if self.magnitude is None:
            raise ConfigError(
                "The function has no magnitude.",
                where="function",
                next_step="Declare 'magnitude', the most that a value can be, either side of 0.",
            )

    @property
    def named(self) -> str:
        """What is released, in words."""
        return f"the target {self.target}" if self.target else f"the function {self.function}"

    @property
    def cost_is_open(self) -> bool:
        """Whether this is a classifier whose cost is chosen by its budget."""
        return self.cost is None and self.target in _TAKEN_BY["cost"] and self.target != "ridge"

    @property
    def columns_beside(self) -> tuple[str, ...]:
        """Columns that it uses in addition to its variables."""
        return tuple(name for name in (self.label, self.response) if name is not None)

    @property
    def shape(self) -> FunctionShape:
        """What is known of the function and imposed on it."""
        return FunctionShape(
            non_negative=self.non_negative or self.normalise,
            normalise=self.normalise,
            monotone=self.monotone,
            unimodal=self.unimodal,
        )
