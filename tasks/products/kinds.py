"""All kinds of product by name. A new one is one package here, and one line below.

A kind is imported when it is asked for, so that a plan takes no time over those it does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statpress.mechanisms.planning.plan import PlannedProduct
    from statpress.tasks.products.product_kind import ProductKind


if TYPE_CHECKING:
    AnyKind = ProductKind[Any, Any, Any]

_KINDS = {
    "microdata": "count_product:Microdata",
    "microdata by marginals": "marginal_product:MarginalMicrodata",
    "table": "count_product:Table",
    "estimate": "estimate_product:EstimateProduct",
    "function": "function_product:FunctionProduct",
}
_IMPORTED: dict[str, AnyKind | None] = dict.fromkeys(_KINDS)


class _Kinds(Mapping[str, "AnyKind"]):
    """Imports a kind when it is looked up."""

    def __getitem__(self, key: str) -> AnyKind:
        kind = _IMPORTED[key]
        if kind is None:
            kind = _IMPORTED[key] = resolve_name(f"statpress.tasks.products.{_KINDS[key]}")()
        return kind

    def __contains__(self, key: object) -> bool:
        return key in _IMPORTED

    def __iter__(self) -> Iterator[str]:
        return iter(_IMPORTED)

    def __len__(self) -> int:
        return len(_IMPORTED)


KINDS: Mapping[str, AnyKind] = _Kinds()
"""Kinds of product by name; of those limited to some mechanisms the name has these in it."""


def register(kind: AnyKind) -> None:
    """Add a kind of product.

    Raises:
        ValueError: There is another of this name.
    """
    key = key_of(kind)
    if key in KINDS:
        raise ValueError(f"there is a kind of product '{key}' already")
    _IMPORTED[key] = kind


def key_of(kind: AnyKind) -> str:
    """The name of a kind in ``KINDS``."""
    return kind.core.name + (f" by {' or '.join(kind.only)}" if kind.only else "")


def kind_of(product: PlannedProduct[Any]) -> AnyKind:
    """The kind of a planned product."""
    return kind_named(product.kind.name, product.mechanism.name)


def kind_named(name: str, mechanism: str) -> AnyKind:
    """The kind of a product by what a privacy statement says of it."""
    for key in KINDS:
        core, _, only = key.partition(" by ")
        if core == name and mechanism in only.split(" or "):
            return KINDS[key]
    return KINDS[name]


def families(
    products: Sequence[PlannedProduct[Any]],
) -> list[tuple[AnyKind, list[PlannedProduct[Any]]]]:
    """The products by the family of their kinds, in order, with one kind of each family."""
    found: dict[str, tuple[AnyKind, list[PlannedProduct[Any]]]] = {}
    for product in products:
        kind = kind_of(product)
        found.setdefault(kind.family, (kind, []))[1].append(product)
    return list(found.values())
