"""The files of any product in the folder of a bundle, in every format that the config names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.planning.plan import PlannedProduct
from tasks.formats.writing import Progress
from tasks.products.registry import kind_of

if TYPE_CHECKING:
    from configs.models.release import PublishConfig

Profile = tuple[dict[str, dict[str, int]], dict[str, int]]
"""By file its profile, see ``ProductKind.profile_table``, and the rows it should have."""


def write_product(
    folder: Path,
    product: PlannedProduct[Any],
    derived: Any,
    publish: PublishConfig,
    advance: Progress,
) -> None:
    """Write all files of a product.

    Args:
        folder: Of the bundle, with its subfolder ``data``.
        product: As planned.
        derived: What its kind made of what was released.
        publish: Which formats, and whether with plots.
        advance: Called with the number of records written since the last call.
    """
    kind = kind_of(product)
    for form in kind.forms(product):
        for suffix in publish.formats:
            kind.write_table(form, product, derived, form.path(folder, suffix), advance)
    kind.write_others(folder, product, derived, publish)


def profile_product(
    folder: Path, product: PlannedProduct[Any], derived: Any, publish: PublishConfig
) -> Profile:
    """Profile all tables of a product as they were written."""
    kind = kind_of(product)
    profiles, rows = {}, {}
    for form in kind.forms(product):
        for suffix in publish.formats:
            path = form.path(folder, suffix)
            profiles[path.name] = kind.profile_table(form, product, derived, path)
            rows[path.name] = kind.rows(form, product, derived)
    return profiles, rows


def resources_of(product: PlannedProduct[Any], publish: PublishConfig) -> list[dict[str, Any]]:
    """All files of a product as resources of a data package."""
    kind = kind_of(product)
    forms = kind.forms(product)
    tables = [form.resource(suffix) for suffix in publish.formats for form in forms]
    return tables + kind.other_resources(product, publish)
