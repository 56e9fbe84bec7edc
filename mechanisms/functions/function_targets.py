"""What a released function is of: what a config says, and the learner made of it.

Nothing is inferred from the data. Columns are scaled to [0, 1] by their declared ranges, and a
bandwidth is a share of that range; where it is left out, the normal reference rule of a
variable spread evenly over its range stands in, 0.3 n^(-1/(l + 4)) for l variables (Scott
1992; 1.06 / sqrt 12 = 0.31), and 0.5 for the two kernel classifiers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.functions.kernels import (
    KernelDensity,
    NaiveBayes,
    PriestleyChao,
    ProductKernel,
)
from statpress.mechanisms.functions.learner import (
    Axis,
    DeclaredFunction,
    Evaluation,
    Learner,
    Shape,
)
from statpress.mechanisms.functions.polynomials import MOST_DEGREE, MOST_DIMENSIONS
from statpress.mechanisms.functions.released_function import FunctionShape
from statpress.mechanisms.functions.risk import EmpiricalRisk, RiskLoss
from statpress.mechanisms.mechanism import Per, UserDefined

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
            and for a classifier what statpress.mechanisms.functions.risk chooses.
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
        per: Of units with several records what counts one: each unit, of which one record is
            drawn.
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
    per: Per | None = None

    def __post_init__(self) -> None:
        if (self.target is None) == (self.function is None):
            raise ConfigError("A function needs either a 'target' or a user-defined 'function'.")
        for name, targets in _TAKEN_BY.items():
            if getattr(self, name) and self.target not in targets:
                known = " or ".join(f"'{target}'" for target in targets if target is not None)
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

    def learner(self, domain: Domain, n_records: int) -> Learner:
        """The learner that a product declares.

        The domain has the variables in their order, then the label or response.
        """
        names = [name for name in domain.names if name not in self.columns_beside]
        if not 1 <= len(names) <= MOST_DIMENSIONS:
            raise ConfigError(
                f"A function has from 1 to {MOST_DIMENSIONS} variables, and here {len(names)}.",
                where="columns",
            )
        if len(names) > 1 and (self.monotone or self.unimodal):
            raise ConfigError(
                "Only a function of one variable is fitted as a curve.", where="columns"
            )
        for column in domain.columns:
            if column.n_values > MOST_VALUES:
                raise ConfigError(
                    f"Column '{column.name}' has more than {MOST_VALUES:,} values, too many for a "
                    "function.",
                    where="columns",
                    next_step="Declare fewer bins or a larger width.",
                )
        axes = axes_of(domain, names)
        if self.function is not None:
            return _declared(self, axes)
        if self.target in _LOSSES:
            return _risk(self, axes, domain, n_records)
        kernel = ProductKernel(self.kernel or "gaussian", axes, _bandwidths(self, axes, n_records))
        if self.target == "kde":
            return KernelDensity(kernel, n_records)
        if self.target == "naive_bayes":
            return NaiveBayes(kernel, _declared_column(self.label, domain), n_records)
        response = Axis.of(_declared_column(self.response, domain))
        return _regression(self, kernel, response, domain[names[0]])


MOST_VALUES = 20_000
"""Most values of one column; a kernel is evaluated around every one."""

_LOSSES: dict[str, RiskLoss] = {
    "svm": "hinge",
    "logistic": "logistic",
    "kernel_logistic": "logistic",
    "ridge": "squared",
}
_WORDS = {
    "kde": "kernel density estimate",
    "regression": "Priestley-Chao regression",
    "naive_bayes": "naive Bayes score, assigning by its sign",
    "logistic": "logistic regression, log odds",
    "ridge": "ridge regression",
    "svm": "support vector machine, assigning by its sign",
    "kernel_logistic": "kernel logistic regression, log odds",
}
_REFERENCE, _CLASSIFIER_BANDWIDTH = 0.3, 0.5


def axes_of(domain: Domain, names: Iterable[str]) -> tuple[Axis, ...]:
    """The variables that these columns declare."""
    return tuple(Axis.of(domain[name]) for name in names)


def words_of(knobs: FunctionKnobs, learner: Learner) -> str:
    """What is released, in words that a reader of the bundle knows."""
    if knobs.target is None:
        return f"the function {knobs.function}"
    text = _WORDS[knobs.target]
    if knobs.columns_beside:
        text += f" of {knobs.columns_beside[0]}"
    if isinstance(learner, EmpiricalRisk):
        if learner.width is not None:
            text += f", gaussian kernel of bandwidth {learner.width:.6g}"
        chosen = " by default" if knobs.cost is None else ""
        return f"{text}, C = {learner.cost:.6g}{chosen}"
    assert isinstance(learner, (KernelDensity, NaiveBayes, PriestleyChao))
    shares = ", ".join(f"{b:.6g}" for b in learner.kernel.bandwidths)
    return f"{text}, {learner.kernel.shape} kernel of bandwidth {shares}"


def _declared_column(name: str | None, domain: Domain) -> Column:
    assert name is not None
    return domain[name]


def _bandwidths(knobs: FunctionKnobs, axes: tuple[Axis, ...], n_records: int) -> tuple[float, ...]:
    if isinstance(knobs.bandwidth, tuple):
        return knobs.bandwidth
    if knobs.bandwidth is not None:
        return (knobs.bandwidth,) * len(axes)
    return (_REFERENCE * n_records ** (-1 / (len(axes) + 4)),) * len(axes)


def _regression(
    knobs: FunctionKnobs, kernel: ProductKernel, label: Axis, variable: Column
) -> PriestleyChao:
    if len(kernel.axes) != 1:
        raise ConfigError(
            "The target regression has one variable.",
            where="columns",
            next_step="Use the target ridge, or leave columns out.",
        )
    gap = knobs.widest_gap
    if gap is None and isinstance(variable, Ranges) and variable.special:
        raise ConfigError(
            f"The special values of '{variable.name}' lie nearer to its cells than these to each "
            "other, so that there is no default for 'widest_gap'.",
            where="widest_gap",
            next_step="Give it: a share of the range, such as the width of a cell.",
        )
    if gap is None:  # the least that every gap can be
        gap = PriestleyChao(kernel, label, 1.0).least_distance
    return PriestleyChao(kernel, label, gap)


def _risk(
    knobs: FunctionKnobs, axes: tuple[Axis, ...], domain: Domain, n_records: int
) -> EmpiricalRisk:
    width = knobs.bandwidth
    if isinstance(width, tuple):
        raise ConfigError("This target takes one bandwidth for all variables.")
    if width is None and knobs.target in ("svm", "kernel_logistic"):
        width = _CLASSIFIER_BANDWIDTH
    return EmpiricalRisk(
        axes=axes,
        label=_declared_column(knobs.label or knobs.response, domain),
        loss=_LOSSES[str(knobs.target)],
        n_records=n_records,
        cost=knobs.cost or 1.0,
        width=width,
    )


def _declared(knobs: FunctionKnobs, axes: tuple[Axis, ...]) -> DeclaredFunction:
    assert knobs.function is not None and knobs.magnitude is not None
    guide = {} if knobs.feature_width is None else {"feature_width": knobs.feature_width}
    return DeclaredFunction(
        axes=axes,
        function=_callable(knobs.function),
        sensitivity_bound=knobs.sensitivity,
        magnitude=knobs.magnitude,
        **guide,
    )


def _callable(own: UserDefined) -> Evaluation:
    """The user-defined function itself."""
    if not callable(own.value):
        raise ConfigError(f"'{own.name}' is not a function.", where="function")
    evaluation: Evaluation = own.value
    return evaluation
