"""All mechanisms by name. A new one is one module, one line here and one test.

A mechanism is imported when it is asked for, so that a command takes no time over those that its
config does not name. The kinds of product follow: they are those that some mechanism serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import TypeVar

from statpress.mechanisms.mechanism import Kind, Mechanism

Value = TypeVar("Value")
_COUNTS, _RECORDS, _ESTIMATE, _FUNCTION = "microdata table", "microdata", "estimate", "function"
_MECHANISMS = {
    "bootstrap": ("tables.bootstrap:Bootstrap", _COUNTS),
    "laplace": ("tables.perturbed:LaplaceTable", _COUNTS),
    "gaussian": ("tables.perturbed:GaussianTable", _COUNTS),
    "two_resolutions": ("tables.two_resolutions:TwoResolutions", _COUNTS),
    "marginals": ("marginals.marginals:Marginals", _RECORDS),
    "smoothed_histogram": ("tables.density:SmoothedHistogram", _COUNTS),
    "density": ("tables.density:Density", _COUNTS),
    "exponential_ks": ("tables.exponential_ks:ExponentialKS", _COUNTS),
    "sample_resample": ("tables.sample_resample:SampleResample", _COUNTS),
    "joint_moments": ("estimates.joint_moments:MeanEstimate", _ESTIMATE),
    "pair_moments": ("estimates.pair_moments:PairEstimate", _ESTIMATE),
    "noisy_quantile": ("estimates.noisy_quantile:QuantileOfCells", _ESTIMATE),
    "subsample_split": ("estimates.subsample_split:SplitEstimate", _ESTIMATE),
    "dp_bootstrap": ("estimates.dp_bootstrap:BootstrapEstimate", _ESTIMATE),
    "bernstein": ("functions.bernstein:FunctionRelease", _FUNCTION),
}
"""By name the place of a class, and the names of the kinds that it serves, as it says itself."""

_SERVED = {name: tuple(served.split()) for name, (_, served) in _MECHANISMS.items()}
_IMPORTED: dict[str, type[Mechanism]] = {}


class _Mechanisms(Mapping[str, type[Mechanism]]):
    """Imports a mechanism when it is looked up."""

    def __getitem__(self, name: str) -> type[Mechanism]:
        if name not in _IMPORTED:
            place, _ = _MECHANISMS[name]
            _IMPORTED[name] = resolve_name(f"statpress.mechanisms.{place}")
        return _IMPORTED[name]

    def __contains__(self, name: object) -> bool:
        return name in _SERVED

    def __iter__(self) -> Iterator[str]:
        return iter(_SERVED)

    def __len__(self) -> int:
        return len(_SERVED)


class _Kinds(Mapping[str, Kind]):
    """Imports the first mechanism of a kind when the kind is looked up."""

    def __getitem__(self, name: str) -> Kind:
        first = next((each for each, served in _SERVED.items() if name in served), None)
        if first is None:
            raise KeyError(name)
        return next(kind for kind in REGISTRY[first].kinds if kind.name == name)

    def __contains__(self, name: object) -> bool:
        return any(name in served for served in _SERVED.values())

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for served in _SERVED.values() for name in served))

    def __len__(self) -> int:
        return len([*iter(self)])


REGISTRY: Mapping[str, type[Mechanism]] = _Mechanisms()
"""Mechanisms by name."""

KINDS: Mapping[str, Kind] = _Kinds()
"""All kinds of product by name."""


def register(mechanism: type[Mechanism]) -> None:
    """Add a mechanism; one from outside the package before ``configs`` is imported.

    Raises:
        ValueError: There is another of this name, or of a kind of this name.
    """
    if mechanism.name in REGISTRY:
        raise ValueError(f"there is a mechanism '{mechanism.name}' already")
    for kind in mechanism.kinds:
        if KINDS.get(kind.name, kind) is not kind:
            raise ValueError(f"there is a kind of product '{kind.name}' already")
    _IMPORTED[mechanism.name] = mechanism
    _SERVED[mechanism.name] = tuple(kind.name for kind in mechanism.kinds)


def served_by(mechanism: str) -> tuple[str, ...]:
    """Names of the kinds of product that a mechanism serves, without importing it."""
    return _SERVED[mechanism]


def serving(kind: Kind) -> list[type[Mechanism]]:
    """The mechanisms that serve a kind of product."""
    return [REGISTRY[name] for name, served in _SERVED.items() if kind.name in served]


def kinds() -> dict[str, Kind]:
    """All kinds of product by name."""
    return dict(KINDS)
