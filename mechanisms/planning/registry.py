"""All mechanisms by name. A new one is one module, one line here and one test.

The kinds of product follow: they are those that some mechanism serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Mechanism
from mechanisms.estimates.dp_bootstrap import BootstrapEstimate
from mechanisms.estimates.joint_moments import MeanEstimate
from mechanisms.estimates.noisy_quantile import QuantileOfCells
from mechanisms.estimates.pair_moments import PairEstimate
from mechanisms.estimates.subsample_split import SplitEstimate
from mechanisms.functions.bernstein import FunctionRelease
from mechanisms.marginals.marginals import Marginals
from mechanisms.tables.drawn.bootstrap import Bootstrap
from mechanisms.tables.drawn.density import Density
from mechanisms.tables.drawn.exponential_ks import ExponentialKS
from mechanisms.tables.drawn.sample_resample import SampleResample
from mechanisms.tables.drawn.smoothed_histogram import SmoothedHistogram
from mechanisms.tables.gaussian import GaussianTable
from mechanisms.tables.laplace import LaplaceTable
from mechanisms.tables.two_resolutions import TwoResolutions

_MECHANISMS: tuple[type[Mechanism], ...] = (
    Bootstrap,
    LaplaceTable,
    GaussianTable,
    TwoResolutions,
    Marginals,
    SmoothedHistogram,
    Density,
    ExponentialKS,
    SampleResample,
    MeanEstimate,
    PairEstimate,
    QuantileOfCells,
    SplitEstimate,
    BootstrapEstimate,
    FunctionRelease,
)
_BY_NAME: dict[str, type[Mechanism]] = {}
REGISTRY: Mapping[str, type[Mechanism]] = MappingProxyType(_BY_NAME)
"""Mechanisms by name."""


def register(mechanism: type[Mechanism]) -> None:
    """Add a mechanism; one from outside the package before ``configs`` is imported.

    Raises:
        ValueError: There is another of this name, or of a kind of this name.
    """
    known = kinds()
    if mechanism.name in _BY_NAME:
        raise ValueError(f"there is a mechanism '{mechanism.name}' already")
    for kind in mechanism.kinds:
        if known.get(kind.name, kind) is not kind:
            raise ValueError(f"there is a kind of product '{kind.name}' already")
    _BY_NAME[mechanism.name] = mechanism


def serving(kind: Kind) -> list[type[Mechanism]]:
    """The mechanisms that serve a kind of product."""
    return [mechanism for mechanism in REGISTRY.values() if kind in mechanism.kinds]


def kinds() -> dict[str, Kind]:
    """All kinds of product by name."""
    return {kind.name: kind for mechanism in REGISTRY.values() for kind in mechanism.kinds}


for each in _MECHANISMS:
    register(each)
