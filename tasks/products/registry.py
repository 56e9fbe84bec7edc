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
from tasks.products.marginals.product import MarginalMicrodata

AnyKind = ProductKind[Any, Any, Any]
_BY_NAME: dict[str, AnyKind] = {}
KINDS: Mapping[str, AnyKind] = MappingProxyType(_BY_NAME)
"""Kinds of product by name; of those limited to some mechanisms the name has these in it."""


def register(kind: AnyKind) -> None:
    """Add a kind of product.

    Raises:
        ValueError: There is another of this name.
    """
    key = kind.core.name + (f" by {' or '.join(kind.only)}" if kind.only else "")
    if key in _BY_NAME:
        raise ValueError(f"there is a kind of product '{key}' already")
    _BY_NAME[key] = kind


for each in (Microdata(), MarginalMicrodata(), Table(), EstimateProduct(), FunctionProduct()):
    register(each)


def kind_of(product: PlannedProduct[Any]) -> AnyKind:
    """The kind of a planned product."""
    return kind_named(product.kind.name, product.mechanism.name)


def kind_named(name: str, mechanism: str) -> AnyKind:
    """The kind of a product by what a privacy statement says of it."""
    own = (kind for kind in KINDS.values() if kind.core.name == name and mechanism in kind.only)
    return next(own, None) or KINDS[name]


def families(
    products: Sequence[PlannedProduct[Any]],
) -> list[tuple[AnyKind, list[PlannedProduct[Any]]]]:
    """The products by the family of their kinds, in order, with one kind of each family."""
    found: dict[str, tuple[AnyKind, list[PlannedProduct[Any]]]] = {}
    for product in products:
        kind = kind_of(product)
        found.setdefault(kind.family, (kind, []))[1].append(product)
    return list(found.values())
