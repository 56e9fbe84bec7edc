"""The files of any product in the folder of a bundle, in every format that the config names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from configs.models import formats
from mechanisms.errors import ConfigError
from mechanisms.planning.plan import PlannedProduct
from tasks.formats.stat_tables import MOST_VALUES
from tasks.formats.writing import Progress
from tasks.products.codebook import fields_with_words
from tasks.products.kind import Field
from tasks.products.registry import kind_of

if TYPE_CHECKING:
    from configs.models.release import PublishConfig

NO_WORDS: Mapping[str, Field] = MappingProxyType({})
Profile = tuple[dict[str, dict[str, int]], dict[str, int]]
"""By file its profile, see ``ProductKind.profile_table``, and the rows it should have."""


def write_product(
    folder: Path,
    product: PlannedProduct[Any],
    derived: Any,
    publish: PublishConfig,
    advance: Progress,
    words: Mapping[str, Field] = NO_WORDS,
) -> None:
    """Write all files of a product.

    Args:
        folder: Of the bundle, with its subfolder ``data``.
        product: As planned.
        derived: What its kind made of what was released.
        publish: Which formats.
        advance: Called with the number of records written since the last call.
        words: What the config says of columns, see ``codebook``.
    """
    kind = kind_of(product)
    for plain in kind.forms(product):
        form = replace(plain, fields=fields_with_words(plain.fields, words))
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


def check_size(product: PlannedProduct[Any], publish: PublishConfig, where: str) -> None:
    """Refuse before a charge files that are written whole and may not fit into memory.

    Raises:
        ConfigError: The product may have more values than files of Stata or SPSS are written of.
    """
    whole = [form for form in publish.formats if form in formats.STAT]
    values = kind_of(product).size(product)
    if whole and values > MOST_VALUES:
        raise ConfigError(
            f"The product may have {values:,} values; files of Stata and SPSS are written in one "
            f"piece, of at most {MOST_VALUES:,}.",
            where=where,
            next_step=f"Leave {' and '.join(map(repr, whole))} out of publish.formats.",
        )
