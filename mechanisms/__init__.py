"""The pure core: domain, table, privacy, accounting, samplers, mechanisms.

Nothing in this package does I/O or reads the clock, the environment or a global
random generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechanisms.registry import REGISTRY

__all__ = ["REGISTRY"]


def __getattr__(name: str) -> Any:
    """Load the registry on first use, so that reading an error class costs nothing."""
    if name == "REGISTRY":
        from mechanisms.registry import REGISTRY

        return REGISTRY
    raise AttributeError(name)
