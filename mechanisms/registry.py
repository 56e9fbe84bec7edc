"""All mechanisms by name. A new one is one module, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.bootstrap import Bootstrap
from mechanisms.bootstrap_estimate import BootstrapEstimate
from mechanisms.density import Density
from mechanisms.exponential_ks import ExponentialKS
from mechanisms.function_release import FunctionRelease
from mechanisms.mean_estimate import MeanEstimate
from mechanisms.mechanism import Mechanism
from mechanisms.pair_estimate import PairEstimate
from mechanisms.perturbed import GaussianTable, LaplaceTable
from mechanisms.quantile_estimate import QuantileOfCells
from mechanisms.sample_resample import SampleResample
from mechanisms.smoothed_histogram import SmoothedHistogram
from mechanisms.split_estimate import SplitEstimate
from mechanisms.two_resolutions import TwoResolutions

REGISTRY: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        Bootstrap.name: Bootstrap,
        LaplaceTable.name: LaplaceTable,
        GaussianTable.name: GaussianTable,
        TwoResolutions.name: TwoResolutions,
        SmoothedHistogram.name: SmoothedHistogram,
        Density.name: Density,
        ExponentialKS.name: ExponentialKS,
        SampleResample.name: SampleResample,
        MeanEstimate.name: MeanEstimate,
        PairEstimate.name: PairEstimate,
        QuantileOfCells.name: QuantileOfCells,
        SplitEstimate.name: SplitEstimate,
        BootstrapEstimate.name: BootstrapEstimate,
        FunctionRelease.name: FunctionRelease,
    }
)
