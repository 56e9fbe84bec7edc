"""What a released function is of: a learner with its columns and its public parameters.

Nothing is inferred from the data. Columns are scaled to [0, 1] by their declared ranges, and a
bandwidth is a share of that range; where it is left out, the normal reference rule of a
variable spread evenly over its range stands in, 0.3 n^(-1/(l + 4)) for l variables (Scott
1992; 1.06 / sqrt 12 = 0.31), and 0.5 for the two kernel classifiers.
"""

from __future__ import annotations

import math

from mechanisms.base.user_defined import UserDefined
from mechanisms.bernstein.learner import DeclaredFunction, Evaluation, Learner
from mechanisms.bernstein.polynomials import MOST_DIMENSIONS
from mechanisms.bernstein.unit_cube import Axis, axes_of
from mechanisms.domain.columns import Column
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.functions.empirical_risk import EmpiricalRisk
from mechanisms.functions.kernel_density import KernelDensity
from mechanisms.functions.kernels import ProductKernel
from mechanisms.functions.knobs import FunctionKnobs
from mechanisms.functions.naive_bayes import NaiveBayes
from mechanisms.functions.priestley_chao import PriestleyChao
from mechanisms.functions.risk_solver import RiskLoss

MOST_VALUES = 20_000
"""Of one column; a kernel is evaluated around every one."""

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


def learner_of(knobs: FunctionKnobs, domain: Domain, n_records: int) -> Learner:
    """The learner that a product declares.

    Args:
        knobs: As declared.
        domain: The variables in their order, then the label or response.
        n_records: n, public.

    Raises:
        ConfigError: The columns do not suit.
    """
    names = [name for name in domain.names if name not in knobs.columns_beside]
    if not 1 <= len(names) <= MOST_DIMENSIONS:
        raise ConfigError(
            f"A function has from 1 to {MOST_DIMENSIONS} variables, and here {len(names)}.",
            where="columns",
        )
    if len(names) > 1 and (knobs.monotone or knobs.unimodal):
        raise ConfigError("Only a function of one variable is fitted as a curve.", where="columns")
    for column in domain.columns:
        if column.n_values > MOST_VALUES:
            raise ConfigError(
                f"Column '{column.name}' has more than {MOST_VALUES:,} values, too many for a "
                "function.",
                where="columns",
                next_step="Declare fewer bins or a larger width.",
            )
    axes = axes_of(domain, names)
    if knobs.function is not None:
        return _declared(knobs, axes)
    if knobs.target in _LOSSES:
        return _risk(knobs, axes, domain, n_records)
    kernel = ProductKernel(knobs.kernel or "gaussian", axes, _bandwidths(knobs, axes, n_records))
    if knobs.target == "kde":
        return KernelDensity(kernel, n_records)
    if knobs.target == "naive_bayes":
        return NaiveBayes(kernel, _declared_column(knobs.label, domain), n_records)
    return _regression(knobs, kernel, Axis.of(_declared_column(knobs.response, domain)))


def words_of(knobs: FunctionKnobs, learner: Learner) -> str:
    """What is released, in words that a reader of the bundle knows."""
    if knobs.target is None:
        return f"the function {knobs.function}"
    said = _WORDS[knobs.target]
    if knobs.columns_beside:
        said += f" of {knobs.columns_beside[0]}"
    if isinstance(learner, EmpiricalRisk):
        if learner.width is not None:
            said += f", gaussian kernel of bandwidth {learner.width:.6g}"
        chosen = " by default" if knobs.cost is None else ""
        return f"{said}, C = {learner.cost:.6g}{chosen}"
    assert isinstance(learner, (KernelDensity, NaiveBayes, PriestleyChao))
    shares = ", ".join(f"{b:.6g}" for b in learner.kernel.bandwidths)
    return f"{said}, {learner.kernel.shape} kernel of bandwidth {shares}"


def unit_factor(knobs: FunctionKnobs, learner: Learner) -> float:
    """A density on the unit cube times this is one in the columns' own units; else 1."""
    if knobs.target == "kde" or knobs.normalise:
        return 1 / math.prod(axis.width for axis in learner.axes)
    return 1.0


def _declared_column(name: str | None, domain: Domain) -> Column:
    assert name is not None
    return domain[name]


def _bandwidths(knobs: FunctionKnobs, axes: tuple[Axis, ...], n_records: int) -> tuple[float, ...]:
    if isinstance(knobs.bandwidth, tuple):
        return knobs.bandwidth
    if knobs.bandwidth is not None:
        return (knobs.bandwidth,) * len(axes)
    return (_REFERENCE * n_records ** (-1 / (len(axes) + 4)),) * len(axes)


def _regression(knobs: FunctionKnobs, kernel: ProductKernel, label: Axis) -> PriestleyChao:
    if len(kernel.axes) != 1:
        raise ConfigError(
            "The target regression has one variable.",
            where="columns",
            next_step="Use the target ridge, or leave columns out.",
        )
    gap = knobs.widest_gap
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
