"""All mechanisms by name. A new one is one module, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.base.mechanism import Mechanism
from mechanisms.estimates.dp_bootstrap import BootstrapEstimate
from mechanisms.estimates.joint_moments import MeanEstimate
from mechanisms.estimates.noisy_quantile import QuantileOfCells
from mechanisms.estimates.pair_moments import PairEstimate
from mechanisms.estimates.subsample_split import SplitEstimate
from mechanisms.functions.bernstein_release import FunctionRelease
from mechanisms.tables.bootstrap import Bootstrap
from mechanisms.tables.density import Density
from mechanisms.tables.exponential_ks import ExponentialKS
from mechanisms.tables.perturbed_histogram import GaussianTable, LaplaceTable
from mechanisms.tables.sample_resample import SampleResample
from mechanisms.tables.smoothed_histogram import SmoothedHistogram
from mechanisms.tables.two_resolutions import TwoResolutions

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
