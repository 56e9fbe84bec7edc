"""Products of the kind ``function``: a whole function, released once, evaluated for ever.

The mechanism is statpress.mechanisms.functions.lattice_release: noisy values on a lattice of the
declared ranges. Here it is a product: a learner from the config, parameters from the budget, and a
description from which its loss and its evaluation follow without the learner.

The sensitivity follows from the learner and all of the declared cells, so a description states
it, in steps of the grid, and the loss is recomputed from what is stated.

``FunctionRelease.exact_function`` gives the values on the confidential records, without noise, for
the curator's report; they are private.

The cost of a classifier whose config leaves it open
----------------------------------------------------
It is chosen from public quantities only. With a small C the term |w|^2 / 2 wins: the score hardly
depends on the variables, and may have one sign everywhere. What one record can change grows in
proportion to C, and the noise with it, while the score grows ever slower. The best C lies between,
and depends on the data, which stay private.

In their place stand two *reference populations*, spread evenly over the cube, that a plane
divides: at x the second class has the probability eta(x) = 1/(1 + exp(-20 sum(x_i - t) / sqrt(d))),
with t = 1/2, and t = 1/5 for classes of unequal size. For each C the minimiser f of a population's
own risk, C E[L] + |w|^2 / 2, goes through the operator of the release; the noise has at x the
deviation s(x) that it will have. Assigning by the sign then is wrong with probability

    E[eta Phi(-f/s) + (1 - eta) Phi(f/s)],

its sampling error apart. C is the power of 2 from 1 on at which this is least, on average over
both. No guarantee depends on it: the noise is calibrated to whatever C is.

Measured over n = 1000 to 100,000, epsilon = .1 to 3 and populations that are not the references
(tests/benchmarks/test_default_cost.py): the share of records assigned wrongly is on average 2 to
6 % above that of the best C in hindsight; at C = 1 it is twice that for linear log odds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.functions.function_targets import FunctionKnobs, words_of
from statpress.mechanisms.functions.kernels import KernelDensity
from statpress.mechanisms.functions.lattice_release import (
    BernsteinMechanism,
    NoisyLattice,
    integer_sensitivity,
    integer_values,
    lattice_loss,
)
from statpress.mechanisms.functions.learner import Learner, Noise
from statpress.mechanisms.functions.polynomials import Floats, iterated_basis, lattice
from statpress.mechanisms.functions.released_function import FunctionShape, ReleasedFunction
from statpress.mechanisms.functions.risk import EmpiricalRisk, RiskLoss, Rows, minimiser
from statpress.mechanisms.mechanism import (
    ALDA_RUBINSTEIN,
    CANONNE_KAMATH_STEINKE,
    PROOF,
    Citation,
    Kind,
    Mechanism,
    Needs,
    NoiseFigure,
    Target,
    Variant,
    check_frame,
    in_words,
)
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    of_noise,
)

LARGEST_ERROR = "largest_error"
"""What decides between kinds of noise for a function."""


_EXPONENTS = range(17)


class FunctionKind(Kind):
    """Densities, regressions and classifiers, released as polynomials."""

    name = "function"
    left_open = FunctionKnobs
    may_omit = True
    user_defined = "function"
    criteria = MappingProxyType({LARGEST_ERROR: "largest error"})
    compared = MappingProxyType({"sup_error": "expected largest error"})

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        for mechanism in serving:
            for noise in ("laplace", "gaussian"):
                yield _label(mechanism.name, noise), mechanism, replace(knobs, noise=noise)

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """What noise adds to the largest error, as a share of what the function can be."""
        del target
        share = min(error.noise / mechanism.magnitude, 1.0)
        words = "expected error from noise, as a share of the largest value that it can have"
        return NoiseFigure(words, share)

    def label(self, mechanism: Any) -> str:
        return _label(mechanism.name, mechanism.noise)


def _label(name: str, noise: str) -> str:
    return f"{name}, {noise} noise"


FUNCTION = FunctionKind()


@dataclass(frozen=True, kw_only=True)
class ExpectedFunction:
    """What an analyst can expect of a function before any data is read; in its own units.

    Attributes:
        sup_error: About the mean largest error over the declared ranges, for a reference.
        bias: Of that the error of the polynomial.
        noise: And that of the noise.
        bound_95: A level that the largest error passes with probability 5 % at most, whatever
            the data; None where nothing is known of the function's smoothness.
        least_error: No release that is as private (of this pure epsilon, or this mu) errs by
            less for all data; None if no bound is known.
        noise_sd_middle: Standard deviation of the noise in the middle of the ranges.
    """

    sup_error: float
    bias: float
    noise: float
    bound_95: float | None
    least_error: float | None
    noise_sd_middle: float

    def deciding(self, criterion: str) -> float:
        """The largest error."""
        return self.sup_error

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and values."""
        parts = f"{self.bias:.4g} of the polynomial, {self.noise:.4g} of the noise"
        yield "expected largest error", f"{self.sup_error:.5g} ({parts})"
        yield "the same with 95 %, at most", _known(self.bound_95)
        yield "no release errs less for all data", _known(self.least_error)
        yield "sd of the noise in the middle", f"{self.noise_sd_middle:.4g}"

    def summary(self) -> str:
        """All that is known."""
        return in_words(self.rows())


def _known(figure: float | None) -> str:
    return "not known" if figure is None else f"{figure:.5g}"


_BETA, _LOOKED_AT = 0.05, 1 << 16
_LARGEST_FACTOR = 1e100
"""Its square, times the noise, is a double."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A column as a variable of the function, with its declared range."""

    name: str
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class FunctionRelease:
    """The release at fixed parameters; all of them are public.

    Attributes:
        words: What is released.
        variables: One to four.
        degree: k.
        order: h.
        noise: Its kind.
        scale: Of the noise, in steps of the grid.
        sensitivity: Of the integers: L1 norm, or for Gaussian noise the square of the L2 norm.
        step_bits: The grid's step is 2 to minus this.
        n_records: n, for which the sensitivity holds.
        factor: From values on the unit cube to the function's own units.
        shape: Imposed on what is released.
        mechanism: With the learner; None where this was rebuilt from its description.
    """

    name: ClassVar[str] = "bernstein"
    citations: ClassVar[tuple[Citation, ...]] = (
        ALDA_RUBINSTEIN.at("Algorithm 1"),
        CANONNE_KAMATH_STEINKE.at("Theorem 4"),
        PROOF.at("Theorem 6.1"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (FUNCTION,)
    needs: ClassVar[Needs] = "joint"
    knobs: ClassVar[type] = FunctionKnobs
    pure: ClassVar[bool] = False

    words: str
    variables: tuple[Variable, ...]
    degree: int
    order: int
    noise: Noise
    scale: Fraction
    sensitivity: int
    step_bits: int
    n_records: int
    factor: float
    shape: FunctionShape
    mechanism: BernsteinMechanism | None = dataclasses.field(
        default=None, compare=False, repr=False
    )

    @classmethod
    def calibrate(cls, knobs: FunctionKnobs, target: Target) -> Self:
        """The noise, k and h of least expected error that meet the target.

        Raises:
            ConfigError: The columns do not suit, or a unit has several records.
            InfeasibleBudgetError: The budget does not allow this noise.
        """
        if target.domain is None:
            raise ConfigError(f"The mechanism '{cls.name}' needs the columns of its table.")
        if target.unit_records != 1 or target.domain.absent:
            raise ConfigError(
                f"The mechanism '{cls.name}' counts no unit more than once.",
                where="per",
                next_step="Write 'per: unit': one record of each unit is drawn at random.",
            )
        mechanism = _fitted(knobs, target.domain, target)
        learner = mechanism.learner
        return cls(
            words=words_of(knobs, learner),
            variables=tuple(
                Variable(name=axis.name, lower=axis.lower, upper=axis.upper)
                for axis in learner.axes
            ),
            degree=mechanism.degree,
            order=mechanism.order,
            noise=mechanism.noise,
            scale=mechanism.scale,
            sensitivity=int(integer_sensitivity(learner, mechanism.degree, mechanism.noise)),
            step_bits=mechanism.step_bits,
            n_records=target.n_records,
            factor=unit_factor(knobs, learner),
            shape=knobs.shape,
            mechanism=mechanism,
        )

    @property
    def points(self) -> int:
        """Number of lattice points (k + 1)^l."""
        return int((self.degree + 1) ** len(self.variables))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise on a lattice point, in the function's own units."""
        scale = math.ldexp(float(self.scale), -self.step_bits) * self.factor
        return scale * (math.sqrt(2) if self.noise == "laplace" else 1.0)

    @property
    def magnitude(self) -> float:
        """Bound on the function's values for all data, in its own units."""
        assert self.mechanism is not None
        return self.factor * self.mechanism.learner.magnitude

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the whole lattice; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        if n_records != self.n_records or unit_records != 1:
            raise ConfigError(
                "A function's loss is known for its own size and units of one record."
            )
        return lattice_loss(self.noise, self.scale, Fraction(self.sensitivity))

    def rehearse(self, domain: Domain) -> None:
        """See that values can be written, and evaluate the learner on a table without data.

        Raises:
            ConfigError: A user-defined function fails, or a range is too narrow or too wide.
        """
        assert self.mechanism is not None
        if not 1 / _LARGEST_FACTOR <= abs(self.factor) <= _LARGEST_FACTOR:
            raise ConfigError(
                "The declared range is too narrow or too wide: values of the function would pass "
                "what a number in a file can be.",
                next_step="Declare the column in a unit in which its range is nearer to 1.",
            )
        places = np.arange(min(domain.n_cells, _LOOKED_AT))
        cell = places[domain.is_possible(places)][:1]
        table = ContingencyTable(domain, cell, np.full(len(cell), self.n_records))
        try:
            integer_values(self.mechanism.learner, table, self.degree)
        except Exception as error:
            raise ConfigError(
                f"The function fails on a table of one cell ({type(error).__name__}).",
                next_step="It is called with a table and points float64[m, l] of the unit cube, "
                "and returns float64[m].",
            ) from None

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> NoisyLattice:
        """Add the noise."""
        assert self.mechanism is not None
        return self.mechanism.release(table, rng)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by the values on the lattice."""
        assert self.mechanism is not None
        exact = [self.release(table, NoNoise()).counts for table in (one, other)]
        scale, laplace = float(self.mechanism.scale), self.mechanism.noise == "laplace"
        ratio = of_noise(exact, scale, laplace=laplace)
        return lambda release: ratio(release.counts)

    def function(self, drawn: NoisyLattice) -> ReleasedFunction:
        """What anyone can evaluate: free post-processing of what was drawn."""
        return ReleasedFunction.shaped(drawn.function(), self.shape, self.factor)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedFunction:
        """From public quantities only; shapes are not counted on."""
        assert self.mechanism is not None
        learner, bound = self.mechanism.learner, self.mechanism.error_bound(_BETA)
        total, bias = self.mechanism.expected_sup_error(), learner.bias(self.degree, self.order)
        least = None
        if isinstance(learner, KernelDensity):
            loss = self.loss(n_records=n_records, n_cells=n_cells)
            if self.noise == "laplace":
                least = least_error(learner.shift, loss.pure_epsilon.upper, n_records)
            else:
                mu = math.sqrt(2 * loss.rho.upper)
                least = least_gaussian_error(learner.shift, mu, n_records)
            least *= self.factor
        middle = iterated_basis(self.degree, self.order, np.array([0.5]))
        spread = float(np.sqrt((middle**2).sum())) ** len(self.variables)
        return ExpectedFunction(
            sup_error=self.factor * total,
            bias=self.factor * bias,
            noise=self.factor * (total - bias),
            bound_95=self.factor * bound if math.isfinite(bound) else None,
            least_error=least,
            noise_sd_middle=self.noise_sd * spread,
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild loss and evaluation."""
        description: dict[str, str | int] = {
            "mechanism": self.name,
            "function": self.words,
            "noise": self.noise,
            "degree": self.degree,
            "order": self.order,
            "scale": str(self.scale),
            "sensitivity": str(self.sensitivity),
            "step_bits": self.step_bits,
            "n_records": self.n_records,
            "factor": repr(self.factor),
            "shape": ", ".join(self.shape.names) or "as it is",
        }
        for i, variable in enumerate(self.variables, 1):
            description |= {
                f"variable_{i}": variable.name,
                f"lower_{i}": repr(variable.lower),
                f"upper_{i}": repr(variable.upper),
            }
        return description

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``, without its learner."""
        texts = {name: str(value) for name, value in description.items()}
        variables: list[Variable] = []
        while f"variable_{len(variables) + 1}" in texts:
            i = len(variables) + 1
            lower, upper = float(texts[f"lower_{i}"]), float(texts[f"upper_{i}"])
            variables.append(Variable(name=texts[f"variable_{i}"], lower=lower, upper=upper))
        return cls(
            words=texts["function"],
            variables=tuple(variables),
            degree=int(texts["degree"]),
            order=int(texts["order"]),
            noise="gaussian" if texts["noise"] == "gaussian" else "laplace",
            scale=Fraction(texts["scale"]),
            sensitivity=int(texts["sensitivity"]),
            step_bits=int(texts["step_bits"]),
            n_records=int(texts["n_records"]),
            factor=float(texts["factor"]),
            shape=FunctionShape.of(tuple(texts["shape"].split(", "))),
        )

    def exact_function(self, table: ContingencyTable) -> OnGrid:
        """The function that was estimated, on a grid finer than its lattice; private.

        Values beyond the declared magnitude are clipped, and a value that is not a number is 0, as
        they were before the noise.
        """
        assert self.mechanism is not None
        learner, variables = self.mechanism.learner, self.variables
        steps = max(FINEST[len(variables)], self.degree)
        values = np.nan_to_num(learner.values(table, steps), nan=0.0)
        bounded = np.clip(values, -learner.magnitude, learner.magnitude)
        shares = np.linspace(0, 1, steps + 1)
        axes = tuple(np.minimum(v.lower + (v.upper - v.lower) * shares, v.upper) for v in variables)
        return OnGrid(axes, self.factor * bounded)


def unit_factor(knobs: FunctionKnobs, learner: Learner) -> float:
    """A density on the unit cube times this is one in the columns' own units; else 1."""
    if knobs.target == "kde" or knobs.normalise:
        return 1 / math.prod(axis.width for axis in learner.axes)
    return 1.0


def _fitted(knobs: FunctionKnobs, domain: Domain, target: Target) -> BernsteinMechanism:
    """The release of what the knobs say, at its default cost where they leave that open."""

    def at(cost: float | None) -> BernsteinMechanism:
        with_cost = dataclasses.replace(knobs, cost=cost)
        return _best(knobs, with_cost.learner(domain, target.n_records), target)

    return at_default_cost(at) if knobs.cost_is_open else at(knobs.cost)


def at_default_cost(at: Callable[[float], BernsteinMechanism]) -> BernsteinMechanism:
    """The release at the cost of the least expected error.

    Every second power of 2 is tried, then those next to the best. ``at`` gives the release at a
    cost, calibrated to its budget.
    """
    tried: dict[int, tuple[float, BernsteinMechanism]] = {}

    def attempt(exponent: int) -> None:
        if exponent not in _EXPONENTS or exponent in tried:
            return
        try:
            mechanism = at(2.0**exponent)
        except ConfigError:
            if exponent == _EXPONENTS[0]:
                raise
            return  # no accuracy can be proven for so large a cost
        tried[exponent] = expected_wrong(mechanism), mechanism

    for exponent in _EXPONENTS[::2]:
        attempt(exponent)
    best = min(tried, key=lambda exponent: tried[exponent][0])
    for exponent in (best - 1, best + 1):
        attempt(exponent)
    return min(tried.values(), key=lambda entry: entry[0])[1]


def _best(knobs: FunctionKnobs, learner: Learner, target: Target) -> BernsteinMechanism:
    """The kind of noise that was asked for, or that is expected to err less."""
    fit = functools.partial(
        BernsteinMechanism.calibrate,
        learner,
        target=target,
        degree=knobs.degree,
        order=knobs.order,
    )
    if knobs.noise != "auto":
        return fit(noise=knobs.noise)
    laplace = fit(noise="laplace")
    try:
        gaussian = fit(noise="gaussian")
    except InfeasibleBudgetError:
        return laplace
    return min(laplace, gaussian, key=BernsteinMechanism.expected_sup_error)


FINEST = {1: 200, 2: 40, 3: 16, 4: 8}
"""Steps along each variable of the grid on which functions are compared, by their number."""


class OnGrid(NamedTuple):
    """A function on a grid of equal steps over the declared ranges."""

    axes: tuple[Floats, ...]  # of each variable the places float64[m], in its own units
    values: Floats  # float64 of as many sides as there are variables, in the function's own units

    @property
    def points(self) -> Floats:
        """float64[values.size, variables], the last variable fastest."""
        sides = np.meshgrid(*self.axes, indexing="ij")
        return np.stack([side.ravel() for side in sides], axis=1)


def least_error(shift: float, epsilon: float, n_records: int) -> float:
    """A lower bound on the expected error of any epsilon-private release, for some data.

    Every further record adds the shift to the change at one point, so that moving m records changes
    the function there by m times the shift. The answers to the two tables have likelihood ratios up
    to exp(m epsilon), so one of them is nearer to the other's value with probability at least 1 /
    (1 + exp(m epsilon)), and then in error by m shift / 2 (the paper's Proposition 8 in a form with
    constants).
    """
    best = max(1, min(n_records, round(1.278 / epsilon)))  # where m / (1 + e^(m eps)) peaks
    return max(
        m * shift / 2 / (1 + math.exp(min(m * epsilon, 700.0)))
        for m in {1, best, min(best + 1, n_records)}
    )


def least_gaussian_error(shift: float, mu: float, n_records: int) -> float:
    """A lower bound on the expected error of any mu-GDP release, for some data.

    As in ``least_error``, but tables m records apart are m mu-GDP apart (Dong, Roth and Su 2022,
    doi 10.1111/rssb.12454, Theorem 2.14), so one of the two answers is nearer to the other's value
    with probability at least Phi(-m mu / 2).
    """
    best = max(1, min(n_records, round(1.504 / mu)))  # where m Phi(-m mu / 2) peaks
    return max(
        m * shift / 2 * NormalDist().cdf(-m * mu / 2) for m in {1, best, min(best + 1, n_records)}
    )


_BOUNDARIES, _STEEPNESS = (0.2, 0.5), 20.0

_SIDE = {1: 31, 2: 9, 3: 5, 4: 4}  # places of the reference along each variable

_TOLERANCE = 1e-6  # of the minimisers, times C

_ERFC = np.vectorize(math.erfc, otypes=[np.float64])  # SciPy's takes longer to import than all


def expected_wrong(mechanism: BernsteinMechanism) -> float:
    """Expected share of the references that the sign of a released classifier assigns wrongly."""
    learner = mechanism.learner
    assert isinstance(learner, EmpiricalRisk) and learner.loss != "squared"
    d, side = len(learner.axes), _SIDE[len(learner.axes)]
    basis = iterated_basis(mechanism.degree, mechanism.order, _middles(side))
    one = np.sqrt((basis**2).sum(axis=0))
    spread = functools.reduce(np.multiply.outer, [one] * d).ravel()
    laplace = mechanism.noise == "laplace"
    sd = spread * mechanism.noise_scale * (math.sqrt(2) if laplace else 1.0)
    around = _kernel(_grid(lattice(mechanism.degree), d), _grid(_middles(side), d), learner.width)
    wrong = []
    for boundary in _BOUNDARIES:
        values = around @ _minimiser(learner.loss, learner.width, d, learner.cost, boundary)
        values = values.reshape((mechanism.degree + 1,) * d)
        for _ in range(d):  # each product moves the axis it contracts to the end
            values = np.tensordot(values, basis, axes=(0, 0))
        second, eta = _ERFC(-values.ravel() / (sd * math.sqrt(2))) / 2, _second_class(d, boundary)
        wrong.append(float((eta * (1 - second) + (1 - eta) * second).mean()))
    return float(np.mean(wrong))


def _middles(side: int) -> Floats:
    return (np.arange(side) + 0.5) / side


def _grid(points: Floats, d: int) -> Floats:
    """All combinations of the points, float64[m**d, d]."""
    grids = np.meshgrid(*[points] * d, indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)


def _second_class(d: int, boundary: float) -> Floats:
    """The second class's probability at the places of a reference."""
    along = (_grid(_middles(_SIDE[d]), d) - boundary).sum(axis=1) / math.sqrt(d)
    share: Floats = 1 / (1 + np.exp(-_STEEPNESS * along))
    return share


def _kernel(one: Floats, two: Floats, width: float | None) -> Floats:
    """K between points float64[m, d] and float64[l, d]."""
    if width is None:
        return np.asarray(one @ two.T + 1.0)
    squares = ((one[:, None] - two) ** 2).sum(axis=2)
    return np.asarray(np.exp(-squares / (2 * width**2)))


@functools.lru_cache(maxsize=512)
def _minimiser(loss: RiskLoss, width: float | None, d: int, cost: float, boundary: float) -> Floats:
    """Coefficients of the minimiser of a reference's risk, one for each of its places."""
    places, eta = _grid(_middles(_SIDE[d]), d), _second_class(d, boundary)
    twice = np.concatenate([places, places])
    rows = Rows(
        gram=_kernel(twice, twice, width),
        labels=np.repeat([1.0, -1.0], len(places)),
        weights=np.concatenate([eta, 1 - eta]) * (cost / len(places)),
    )
    coefficients = minimiser(rows, loss, _TOLERANCE * cost)
    return np.asarray(coefficients[: len(places)] + coefficients[len(places) :])
