"""What is asked of a run: a config, and the values that differ from it this once.

``--set budget.epsilon=0.5`` and ``STATPRESS__BUDGET__EPSILON=0.5`` mean one thing; the command line
wins over the environment, and that over the file. An override changes a value: it neither adds nor
removes columns, products or checks.

Overrides are put into the text of the config, so that the bundle holds the config as it was used.
Text is changed by ruamel.yaml's round trip of nodes; constructed values would round floats to
doubles. Comments, the order of keys and how each value is written stay; indentation and line breaks
become ruamel.yaml's, and anchors are written out, so that a change is one of a single place. Only
comments within brackets and behind the mark of folded text are lost.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import difflib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.emitter import RoundTripEmitter
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from statpress.configs.declared_columns import Section
from statpress.configs.release_config import ReleaseConfig
from statpress.configs.yaml_text import Document, Place, parse
from statpress.mechanisms.errors import ConfigError, UnknownKeyError, YamlError

PREFIX = "STATPRESS__"


@dataclass(frozen=True)
class Override:
    """One value that differs from the file.

    Attributes:
        key: As given: ``budget.epsilon``, or of the environment ``BUDGET__EPSILON``.
        value: As YAML 1.2.
        place: What set it: ``--set budget.epsilon`` or the variable's name.
        separator: Between the keys.
    """

    key: str
    value: Any
    place: str
    separator: str = "."

    @property
    def by_environment(self) -> bool:
        """Whether a variable set it."""
        return self.place.startswith(PREFIX)


@dataclass(frozen=True)
class Order:
    """What is asked of a run.

    Attributes:
        path: The config.
        overrides: Values that differ from the file, the later over the earlier.
        folder: Where the config's paths go from; by default its own folder.
        supersedes: Seal of the bundle that this release follows.
    """

    path: Path
    overrides: tuple[Override, ...] = ()
    folder: Path | None = None
    supersedes: str | None = None

    def at_period(self, period: str) -> Order:
        """The order for one period of the config's series."""
        chosen = Override("series.current", period, "--period")
        return replace(self, overrides=(*self.overrides, chosen))


def from_environment(environment: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides among environment variables, by name.

    Raises:
        ConfigError: A variable names no key, or its value is not a YAML scalar or flow value.
    """
    return tuple(
        _override(name.removeprefix(PREFIX), environment[name], name, "__")
        for name in sorted(environment)
        if name.startswith(PREFIX)
    )


def from_options(options: Iterable[str]) -> tuple[Override, ...]:
    """The overrides that ``--set KEY=VALUE`` gives, in order.

    Raises:
        ConfigError: One has no key or no ``=``, or its value is not a YAML scalar or flow value.
    """
    found = []
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise ConfigError(
                "There is no '=' in it.",
                where=f"--set {key[:100]}",
                next_step="Give --set KEY=VALUE, such as --set budget.epsilon=0.5.",
            )
        found.append(_override(key.strip(), text, f"--set {key.strip()[:100]}", "."))
    return tuple(found)


def _override(key: str, text: str, place: str, separator: str) -> Override:
    if not all(key.split(separator)):
        raise ConfigError(
            "This names no key.",
            where=place,
            next_step=f"Put '{separator}' between keys: {separator.join(('budget', 'epsilon'))}.",
        )
    value, opening = None, text.lstrip()[:1]
    if opening:
        value = parse(text, place).value
    block = isinstance(value, dict | list) and opening not in ("{", "[")
    if not opening:
        raise YamlError("There is no value.", where=place, next_step="Write null for no value.")
    if block:
        raise YamlError(
            "The value is neither a scalar nor a flow list or mapping.",
            where=place,
            next_step="Quote text that holds ': '; write null for no value.",
        )
    return Override(key, value, place, separator)


_WORDS = "true|false|null|yes|no|on|off|y|n"
_PLAIN = re.compile(rf"(?i:(?!({_WORDS})$)[a-z][a-z0-9_]*)(?:[./-][A-Za-z0-9_]+)*")
"""Text that every YAML reads as text without quotes."""

_TAG = "tag:yaml.org,2002:"


def with_values(
    document: Document,
    changes: Mapping[Place, Any],
    *,
    where: str,
    written: Callable[[Node], str] | None = None,
) -> Document:
    """The document with some values changed, each in its place.

    Args:
        document: Stays as it is.
        changes: Per path the new value; of the path all but the last key exist. A new key
            comes first in its mapping.
        where: What asks for the changes, for messages.
        written: Writes YAML of nodes, by default as ruamel.yaml does.

    Raises:
        ConfigError: The changed text would not have exactly these values.
    """
    if not changes:
        return document
    root, expected = _written_out(document.root), document.value
    for path, value in changes.items():
        root, expected = _changed(root, path, _node(value)), _with(expected, path, value)
    found = None
    with contextlib.suppress(ConfigError):
        found = parse((written or _text)(root), document.name)
    if found is None or repr(found.value) != repr(expected):
        raise ConfigError(
            "The file is laid out such that this value cannot be changed in place.",
            where=where,
            next_step="Change it in the file, or write the file without unusual YAML.",
        )
    return found


def flow_text(value: Any) -> str:
    """A parsed value in YAML's flow style, on one line; ``parse`` gives it back.

    >>> flow_text({"formats": ["csv"], "share": Decimal("0.50"), "name": "7"})
    '{formats: [csv], share: 0.50, name: "7"}'
    """
    return _text(_node([value])).strip()[1:-1]  # in a list, for no scalar to end a document


def _node(value: Any) -> Node:
    """The node of a parsed value, in flow style."""
    if isinstance(value, dict):
        pairs = [(_node(key), _node(each)) for key, each in value.items()]
        return MappingNode(f"{_TAG}map", pairs, flow_style=True)
    if isinstance(value, list):
        return SequenceNode(f"{_TAG}seq", [_node(each) for each in value], flow_style=True)
    if isinstance(value, str):
        quotes = None if _PLAIN.fullmatch(value) else '"'
        return ScalarNode(f"{_TAG}str", value, style=quotes)
    if value is None or isinstance(value, bool):
        tag, text = ("null", "null") if value is None else ("bool", str(value).lower())
    elif isinstance(value, Decimal):
        tag, text = "float", _decimal_text(value)
    else:
        tag = "timestamp" if isinstance(value, datetime.date) else "int"
        text = str(value)
    return ScalarNode(f"{_TAG}{tag}", text)


def _decimal_text(number: Decimal) -> str:
    """Such that YAML 1.2 reads a float of the same value."""
    if not number.is_finite():
        return ".nan" if number.is_nan() else f"{'-' * number.is_signed()}.inf"
    text = str(number)
    return text if "." in text or "E" in text else f"{text}."


def _text(root: Node) -> str:
    """The text of a node tree; long lines are not folded."""
    yaml = YAML(typ="rt", pure=True)
    yaml.Emitter = _Emitter
    yaml.width = 2**31
    yaml.brace_single_entry_mapping_in_flow_sequence = True  # '[{a: 1}]', not '[a: 1]'
    stream = io.StringIO()
    yaml.serialize(root, stream)
    return stream.getvalue()


class _Emitter(RoundTripEmitter):
    """Writes every key before a colon: those of a config are scalars."""

    def check_simple_key(self) -> bool:
        return True


def _written_out(node: Node) -> Node:
    """A copy of a tree in which no two places share a node, nor a comment."""
    node = copy.copy(node)
    node.anchor, node.comment = None, copy.deepcopy(node.comment)  # writing uses comments up
    if isinstance(node, MappingNode):
        node.value = [(_written_out(key), _written_out(value)) for key, value in node.value]
    elif isinstance(node, SequenceNode):
        node.value = [_written_out(item) for item in node.value]
    elif (
        isinstance(node, ScalarNode) and node.style == ">"
    ):  # see yaml_text; ruamel.yaml loses line breaks of it on the way
        node.value, node.style = node.value.replace("\a", ""), '"'
    return node


def _changed(node: Node, path: Place, new: Node) -> Node:
    """The tree with one value changed; changes its collections."""
    if not path:
        comment = _last(node).comment
        new.comment = [comment[0], None] if comment else None  # what follows the value
        return new
    key, rest = path[0], path[1:]
    if isinstance(node, SequenceNode):
        assert isinstance(key, int)
        node.value[key] = _changed(node.value[key], rest, new)
        return node
    keys = [str(name.value) for name, _ in node.value]
    if key in keys:
        place = keys.index(str(key))
        name, value = node.value[place]
        node.value[place] = (name, _changed(value, rest, new))
    else:
        node.value.insert(0, (_node(key), new))
    return node


def _with(value: Any, path: Place, new: Any) -> Any:
    """A copy of a plain value with one value changed, as ``_changed`` does it."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_with(each, rest, new) if i == key else each for i, each in enumerate(value)]
    if key not in value:
        return {key: new} | value
    return {name: _with(each, rest, new) if name == key else each for name, each in value.items()}


def _last(node: Node) -> Node:
    """Where ruamel.yaml keeps the comments that follow a value: a block ends with its last."""
    if isinstance(node, CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _last(last[1] if isinstance(last, tuple) else last)
    return node


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

    path: Place
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


def _place(value: Any, override: Override) -> tuple[Place, Any]:
    """The keys that an override leads to, and what to put there.

    A section that may be left out, and is, comes with its first key.
    """
    keys = override.key.split(override.separator)
    section = keys[0].lower() if override.by_environment else keys[0]
    if len(keys) == 2 and section in _OPTIONAL and isinstance(value, dict) and section not in value:
        key = keys[1].lower() if override.by_environment else keys[1]
        return (section,), {key: override.value}
    return _path(value, override), override.value


def _path(value: Any, override: Override) -> Place:
    """The keys that an override leads to; the last may be new."""
    rest = override.key.split(override.separator)
    path: Place = ()
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
    value: dict[str, Any] | list[Any], path: Place, key: str, rest: list[str], override: Override
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


def _dotted(path: Place) -> str:
    return ".".join(map(str, path))
