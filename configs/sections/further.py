"""What a config says of what is published besides a product, whatever its mechanism."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from configs.models.products import ProductConfig
from configs.models.release import ReleaseConfig
from mechanisms.base.kind import Kind
from mechanisms.errors import ConfigError
from mechanisms.planning.registry import KINDS, REGISTRY


def further_of(kind: Kind, product: Any) -> Any:
    """What the config says of what is published besides a product; None if it says nothing.

    Raises:
        ConfigError: Nothing can be said of a product of this kind.
    """
    own = {f.name for f in fields(kind.further)} if kind.further else set()
    said = product.model_fields_set - ProductConfig.model_fields.keys() - {"kind", "mechanism"}
    named = REGISTRY.get(product.mechanism)
    knobs: Any = kind.left_open if named is None else named.knobs
    foreign = said - own - {f.name for f in fields(knobs)}
    for name in sorted(foreign):  # of another kind that the same model serves
        able = ", ".join(k.name for k in KINDS.values() if k.further)
        raise ConfigError(f"'{name}' is a key of products of kind {able}.", where=name)
    if not said & own or kind.further is None:
        return None
    return kind.further(**{name: getattr(product, name) for name in own})


def may_have_nulls(config: ReleaseConfig, product: Any) -> bool:
    """Whether the checks let pass values that count as the lowest of a column of the product."""
    return any(
        check.missing_at_most
        or check.unreadable_at_most
        or (check.outside_at_most and config.domain[name].type in ("categorical", "ordinal"))
        for name in product.columns
        if (check := config.checks.get(name))
    )
