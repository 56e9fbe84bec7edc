"""The parts of a faulty config that are in order, so that their own faults are found as well."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from configs.models.release import ReleaseConfig
from configs.yaml_text import Document
from mechanisms.errors import ConfigError

_NAMED = ("domain", "products", "checks")
_STAND_INS: dict[str, Any] = {
    "title": "-",
    "about": {},
    "dataset": "-",
    "source": {"path": "-"},
    "privacy": {"adjacency": "replace_one", "unit": "record", "n_records": 1},
    "budget": {"epsilon": 1, "delta": 0},
    "publish": {"directory": "-"},
    "resources": {},
}
"""For sections at fault. Nothing comes of them: a config with a fault is never returned."""


def rest_of(document: Document) -> ReleaseConfig | None:
    """The config without the columns, products, checks and sections that are at fault.

    Returns:
        None if too little is left to be checked.
    """
    if not isinstance(document.value, dict):
        return None
    value = dict(document.value)
    try:
        return ReleaseConfig.model_validate(value)
    except ValidationError as error:
        places = [detail["loc"] for detail in error.errors(include_url=False)]
    except ConfigError:
        return None
    for part, *inner in places:
        if part in _NAMED and inner and isinstance(value.get(part), dict):
            value[part] = {k: v for k, v in value[part].items() if k != inner[0]}
        elif part in _STAND_INS:
            value[part] = _STAND_INS[part]
        else:
            value.pop(part, None)
    try:
        return ReleaseConfig.model_validate(value)
    except (ValidationError, ConfigError):
        return None


def declared_columns(document: Document) -> frozenset[str]:
    """Names of all columns of the domain, those at fault as well."""
    section = document.value.get("domain") if isinstance(document.value, dict) else None
    return frozenset(section) if isinstance(section, dict) else frozenset()
