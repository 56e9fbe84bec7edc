"""All mechanisms by name. A new one is one module, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.bootstrap import Bootstrap
from mechanisms.mechanism import Mechanism
from mechanisms.perturbed import GaussianTable, LaplaceTable

REGISTRY: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        Bootstrap.name: Bootstrap,
        LaplaceTable.name: LaplaceTable,
        GaussianTable.name: GaussianTable,
    }
)
