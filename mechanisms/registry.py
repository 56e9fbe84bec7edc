"""All mechanisms and kinds of product by name: a new mechanism is one module, one line, one test.

A mechanism is imported when it is looked up, so that a command takes no time over those that its
config does not name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from statpress.mechanisms.mechanism import Kind, Mechanism

Value = TypeVar("Value")


class Registry(Mapping[str, Value]):
    """Values by name, each imported when it is first looked up.

    >>> numbers = Registry[object]({"e": "math:e", "half": "fractions:Fraction"})
    >>> list(numbers), numbers["e"]
    (['e', 'half'], 2.718281828459045)

    Args:
        places: By name the place of a value, ``module:attribute``.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places: dict[str, str | None] = dict(places)
        self._values: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        place = self._places[name]
        if name not in self._values:
            self._values[name] = resolve_name(f"{place}")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def shipped(self) -> list[str]:
        """Names of the values that are the package's own."""
        return [name for name, place in self._places.items() if place]

    def add(self, name: str, value: Value) -> None:
        """Add a value that is there already, after those known."""
        self._places[name] = None
        self._values[name] = value


_CORE = "statpress.mechanisms"
_COUNTS, _RECORDS, _TABLE = "microdata table", "microdata", "table"
_ESTIMATE, _FUNCTION = "estimate", "function"
_MECHANISMS = {
    "bootstrap": ("tables.bootstrap:Bootstrap", _COUNTS),
    "laplace": ("tables.perturbed:LaplaceTable", _COUNTS),
    "gaussian": ("tables.perturbed:GaussianTable", _COUNTS),
    "two_resolutions": ("tables.two_resolutions:TwoResolutions", _COUNTS),
    "marginals": ("marginals.marginals:Marginals", _RECORDS),
    "linked_marginals": ("marginals.linked_marginals:LinkedMarginals", "linked"),
    "place_tables": ("places.place_tables:PlaceTables", _TABLE),
    "smoothed_histogram": ("tables.density:SmoothedHistogram", _COUNTS),
    "density": ("tables.density:Density", _COUNTS),
    "exponential_ks": ("tables.exponential_ks:ExponentialKS", _COUNTS),
    "sample_resample": ("tables.sample_resample:SampleResample", _COUNTS),
    "joint_moments": ("estimates.joint_moments:MeanEstimate", _ESTIMATE),
    "pair_moments": ("estimates.pair_moments:PairEstimate", _ESTIMATE),
    "regression_moments": ("estimates.regression_moments:RegressionEstimate", _ESTIMATE),
    "noisy_quantile": ("estimates.noisy_quantile:QuantileOfCells", _ESTIMATE),
    "subsample_split": ("estimates.subsample_split:SplitEstimate", _ESTIMATE),
    "dp_bootstrap": ("estimates.dp_bootstrap:BootstrapEstimate", _ESTIMATE),
    "bernstein": ("functions.bernstein:FunctionRelease", _FUNCTION),
}
"""By name the place of a class, and the names of the kinds that it serves, as it says itself."""

_SERVED = {name: tuple(served.split()) for name, (_, served) in _MECHANISMS.items()}

REGISTRY: Registry[type[Mechanism]] = Registry(
    {name: f"{_CORE}.{place}" for name, (place, _) in _MECHANISMS.items()}
)
"""Mechanisms of products by name."""

KINDS: Registry[Kind] = Registry(
    {
        "microdata": f"{_CORE}.tables.count_tables:MICRODATA",
        "linked": f"{_CORE}.marginals.linked_marginals:LINKED",
        "table": f"{_CORE}.tables.count_tables:TABLE",
        "estimate": f"{_CORE}.estimates.estimate:ESTIMATE",
        "function": f"{_CORE}.functions.bernstein:FUNCTION",
    }
)
"""All kinds of product by name."""


OF_CHECKS: Registry[type[Mechanism]] = Registry(
    {"noisy_checks": f"{_CORE}.tables.noisy_checks:NoisyChecks"}
)
"""Mechanisms for the checks of the input, by name; no product names one."""


def mechanism_named(name: str) -> type[Mechanism]:
    """The mechanism of a description, of a product or of the checks of the input.

    Raises:
        KeyError: There is none of this name.
    """
    return OF_CHECKS[name] if name in OF_CHECKS else REGISTRY[name]


def register(mechanism: type[Mechanism]) -> None:
    """Add a mechanism and its kinds; one from outside the package before ``configs`` is imported.

    Raises:
        ValueError: There is another of this name, or of a kind of this name.
    """
    if mechanism.name in REGISTRY:
        raise ValueError(f"there is a mechanism '{mechanism.name}' already")
    for kind in mechanism.kinds:
        if KINDS.get(kind.name, kind) is not kind:
            raise ValueError(f"there is a kind of product '{kind.name}' already")
    for kind in mechanism.kinds:
        KINDS.add(kind.name, kind)
    REGISTRY.add(mechanism.name, mechanism)
    _SERVED[mechanism.name] = tuple(kind.name for kind in mechanism.kinds)


def served_by(mechanism: str) -> tuple[str, ...]:
    """Names of the kinds of product that a mechanism serves, without importing it."""
    return _SERVED[mechanism]


def serving(kind: Kind) -> list[type[Mechanism]]:
    """The mechanisms that serve a kind of product."""
    return [REGISTRY[name] for name, served in _SERVED.items() if kind.name in served]
