"""All kinds of product by name. A new one is one package here, and one line below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mechanisms.planning.plan import PlannedProduct
from tasks.products.counts.microdata import Microdata
from tasks.products.counts.table import Table
from tasks.products.estimate.files import EstimateProduct
from tasks.products.function.files import FunctionProduct
from tasks.products.kind import ProductKind

AnyKind = ProductKind[Any, Any, Any]
_BY_NAME: dict[str, AnyKind] = {}
KINDS: Mapping[str, AnyKind] = MappingProxyType(_BY_NAME)
"""Kinds of product by name."""


def register(kind: AnyKind) -> None:
    """Add a kind of product.

    Raises:
        ValueError: There is another of this name.
    """
    if kind.core.name in _BY_NAME:
        raise ValueError(f"there is a kind of product '{kind.core.name}' already")
    _BY_NAME[kind.core.name] = kind


for each in (Microdata(), Table(), EstimateProduct(), FunctionProduct()):
    register(each)


def kind_of(product: PlannedProduct[Any]) -> AnyKind:
    """The kind of a planned product."""
    return KINDS[product.kind.name]


def families(
    products: Sequence[PlannedProduct[Any]],
) -> list[tuple[AnyKind, list[PlannedProduct[Any]]]]:
    """The products by the family of their kinds, in order, with one kind of each family."""
    found: dict[str, tuple[AnyKind, list[PlannedProduct[Any]]]] = {}
    for product in products:
        kind = kind_of(product)
        found.setdefault(kind.family, (kind, []))[1].append(product)
    return list(found.values())
