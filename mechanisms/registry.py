"""All mechanisms by name. A new one is one module, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.bootstrap import Bootstrap
from mechanisms.density import Density
from mechanisms.exponential_ks import ExponentialKS
from mechanisms.mean_estimate import MeanEstimate
from mechanisms.mechanism import Mechanism
from mechanisms.perturbed import GaussianTable, LaplaceTable
from mechanisms.sample_resample import SampleResample
from mechanisms.smoothed_histogram import SmoothedHistogram
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
    }
)
