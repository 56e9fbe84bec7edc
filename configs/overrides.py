"""Overrides put into the text of a config.

Comments survive, and the bundle holds the config as it was used. An override changes a
value: it neither adds nor removes columns, products or checks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from configs.models.domain import Section
from configs.models.release import ReleaseConfig
from configs.order import Override
from configs.yaml_changes import flow_text, with_values
from configs.yaml_text import Document, Path
from mechanisms.errors import ConfigError, UnknownKeyError

NAMED = ("domain", "products", "checks")
"""Sections whose keys are names that only the file gives."""

_OPTIONAL = frozenset(
    name
    for name, field in ReleaseConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    if not field.is_required()
)
"""Sections that a config may leave out."""


@dataclass(frozen=True)
class Applied:
    """An override where it took effect.

    Attributes:
        path: The keys, as the config has them.
        override: What set it.
    """

    path: Path
    override: Override

    def describe(self) -> dict[str, str]:
        """For the record: the key, the value as YAML, and what set it."""
        by = self.override.place if self.override.by_environment else "--set"
        key = ".".join(map(str, self.path))
        return {"key": key, "value": flow_text(self.override.value), "by": by}


def apply(
    document: Document, overrides: Iterable[Override]
) -> tuple[Document, tuple[Applied, ...]]:
    """The document with the overrides in it, the later over the earlier.

    Args:
        document: A config; its places stay those of the file.
        overrides: Of the environment, then of the command line.

    Returns:
        The document, and what took effect, without what a later one replaced.

    Raises:
        UnknownKeyError: An override's key leads nowhere.
        ConfigError: It leads to more than a value, or twice to the same.
    """
    applied: list[Applied] = []
    current = document
    for override in overrides:
        placed = replace(override, place=f"{override.place} (for {document.name})")
        path, value = _place(current.value, placed)
        before = [each for each in applied if each.path == path]
        if override.by_environment and before:
            raise ConfigError(
                f"'{before[0].override.place}' sets the same key.",
                where=placed.place,
                next_step="Keep one of the two variables.",
            )
        current = with_values(current, {path: value}, where=placed.place)
        applied = [each for each in applied if each.path != path]
        applied.append(Applied(path, override))
    origins = {each.path: each.override.place for each in applied}
    added = {path: (1, 1) for path in current.places if path not in document.places}
    places = document.places | added
    return replace(current, places=places, origins=origins), tuple(applied)


def nearest(key: object, known: Iterable[str]) -> str:
    """A hint at the known key that is most like an unknown one; empty if none is."""
    found = difflib.get_close_matches(str(key).lower(), list(known), n=1)
    return f" Is '{found[0]}' meant?" if found else ""


def _place(value: Any, override: Override) -> tuple[Path, Any]:
    """The keys that an override leads to, and what to put there.

    A section that may be left out, and is, comes with its first key.
    """
    keys = override.key.split(override.separator)
    section = keys[0].lower() if override.by_environment else keys[0]
    if len(keys) == 2 and section in _OPTIONAL and isinstance(value, dict) and section not in value:
        key = keys[1].lower() if override.by_environment else keys[1]
        return (section,), {key: override.value}
    return _path(value, override), override.value


def _path(value: Any, override: Override) -> Path:
    """The keys that an override leads to; the last may be new."""
    rest = override.key.split(override.separator)
    path: Path = ()
    while rest:
        if not isinstance(value, (dict, list)):
            raise UnknownKeyError(
                f"'{_dotted(path)}' is {'blank' if value is None else 'a single value'} in the "
                "file and has no keys.",
                where=override.place,
                next_step=f"Set '{_dotted(path)}' to a mapping, such as {{{rest[0]}: ...}}, or "
                "change the file.",
            )
        taken, key = _step(value, rest, override)
        if key is None:
            key = rest[0].lower() if override.by_environment else rest[0]
            _check_new(value, path, key, rest, override)
        path, rest = (*path, key), rest[taken:]
        value = value.get(key) if isinstance(value, dict) else value[int(key)]
    if len(path) == 1 and path[0] in NAMED:
        raise ConfigError(
            f"An override changes a value; only the file adds or removes {path[0]}.",
            where=override.place,
            next_step=f"Change a value in one of the {path[0]}, or change the file.",
        )
    return path


def _step(
    value: dict[str, Any] | list[Any], rest: list[str], override: Override
) -> tuple[int, str | int | None]:
    """How many parts of the key name an entry, and which; a name may hold the separator."""
    if isinstance(value, list):
        number = rest[0]
        inside = number.isdecimal() and len(number) < 8 and int(number) < len(value)
        return 1, int(number) if inside else None
    for taken in range(len(rest), 0, -1):
        named = override.separator.join(rest[:taken])
        if named in value:
            return taken, named
        if override.by_environment:
            alike = [key for key in value if key.casefold() == named.casefold()]
            if len(alike) == 1:
                return taken, alike[0]
    return 1, None


def _check_new(
    value: dict[str, Any] | list[Any], path: Path, key: str, rest: list[str], override: Override
) -> None:
    """Refuse a key that the file does not have, unless it is the last and may be there."""
    here = f"in '{_dotted(path)}'" if path else "in the config"
    known: Iterable[str] = () if isinstance(value, list) else value
    if not path:
        known = ReleaseConfig.model_fields
    if not path and key in known and len(rest) > 1:
        raise UnknownKeyError(
            f"The file has no section '{key}'.",
            where=override.place,
            next_step="Add the section to the file: an override changes values of what is there.",
        )
    fixed = isinstance(value, list) or (len(path) == 1 and path[0] in NAMED)
    if len(rest) > 1 or fixed or (not path and key not in known):
        raise UnknownKeyError(
            f"There is no '{key[:100]}' {here}.{nearest(key, known)}", where=override.place
        )


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
