"""Changes of values in YAML text, by ruamel.yaml's round trip of nodes.

Comments, the order of keys and how each value is written stay; indentation and line breaks
become ruamel.yaml's, and anchors are written out, so that a change is one of a single place.
Only comments within brackets and behind the mark of folded text are lost. Nodes rather than
constructed values, since those would round floats to doubles.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.emitter import RoundTripEmitter
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from configs.yaml_text import Document, Path, parse
from mechanisms.errors import ConfigError

_WORDS = "true|false|null|yes|no|on|off|y|n"
_PLAIN = re.compile(rf"(?i:(?!({_WORDS})$)[a-z][a-z0-9_]*)(?:[./-][A-Za-z0-9_]+)*")
"""Text that every YAML reads as text without quotes."""

_TAG = "tag:yaml.org,2002:"


def with_values(document: Document, changes: Mapping[Path, Any], *, where: str) -> Document:
    """The document with some values changed, each in its place.

    Args:
        document: Stays as it is.
        changes: Per path the new value; of the path all but the last key exist. A new key
            comes first in its mapping.
        where: What asks for the changes, for messages.

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
        found = parse(_text(root), document.name)
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


def _changed(node: Node, path: Path, new: Node) -> Node:
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


def _with(value: Any, path: Path, new: Any) -> Any:
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
