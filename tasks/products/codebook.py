"""What the config says of columns in words, as the data package of a bundle has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.domain.domain import Domain
from tasks.products.kind import Field

if TYPE_CHECKING:
    from configs.models.domain import ColumnConfig


def codebook(declared: Mapping[str, ColumnConfig], domain: Domain) -> dict[str, Field]:
    """By column its words, of those that have any.

    Args:
        declared: The config's section ``domain``.
        domain: What it declares.

    Returns:
        Per column, as far as they are given, ``title``, ``description``, ``unit`` and
        ``categories`` with the ``label`` of each ``value``: names of Frictionless Table Schema,
        except for ``unit``, which it leaves to us.
    """
    found = {}
    for name, column in declared.items():
        words: Field = {"title": column.label, "description": column.description}
        words["unit"] = column.unit
        labels = getattr(column, "value_labels", None)
        if labels is not None:
            values = domain[name].decode(np.arange(len(labels))).tolist()
            words["categories"] = [
                {"value": value, "label": label}
                for value, label in zip(values, labels, strict=True)
            ]
        words = {key: said for key, said in words.items() if said is not None}
        if words:
            found[name] = words
    return found


def with_words(
    resources: Iterable[Mapping[str, Any]], words: Mapping[str, Field]
) -> list[dict[str, Any]]:
    """The resources of a data package, with the words of their declared columns."""
    return [
        {**resource, "schema": {"fields": fields_with_words(resource["schema"]["fields"], words)}}
        if "schema" in resource
        else dict(resource)
        for resource in resources
    ]


def fields_with_words(fields: Iterable[Field], words: Mapping[str, Field]) -> list[Field]:
    """The columns of a table, with the words of those that are declared."""
    return [_field(field, words) for field in fields]


def _field(field: Field, words: Mapping[str, Field]) -> Field:
    """A field with its words; figures that a mechanism adds have none of the config's."""
    if "declared" not in field or field["name"] not in words:
        return field
    first = {"name": field["name"], "type": field["type"]}
    return first | words[field["name"]] | field
