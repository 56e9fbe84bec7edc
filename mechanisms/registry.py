"""All mechanisms by name. A new one is one module, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.bootstrap import Bootstrap
from mechanisms.mechanism import Mechanism

REGISTRY: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        Bootstrap.name: Bootstrap,
    }
)
