"""YAML 1.2 text to plain values with the place of each, and findings at those places.

Decimals stay exact (``decimal.Decimal``), a repeated key is an error, and tags that would
build objects are refused. So values are built from ruamel.yaml's nodes, not by its round-trip
constructor, which rounds floats to doubles and knows places only of keys and items.

Findings are collected, so that all faults of a config are named at once.
"""

from __future__ import annotations

import datetime
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scanner import RoundTripScanner

from statpress.mechanisms.errors import (
    ConfigError,
    ConfigNotFoundError,
    DuplicateColumnError,
    InfeasibleBudgetError,
    StatpressError,
    UnknownKeyError,
    YamlError,
    together,
)

Place = tuple[str | int, ...]
LONGEST = 64_000_000
"""Bytes of the longest config, and of the longest file that is read into one."""

_LONGEST_KEPT = 100_000  # characters of a text whose nodes are kept
_MOST_VALUES = 1_000_000
_MOST_REPEATED = 100_000  # values that stand for an alias
_DEEPEST = 50
_TOO_DEEP = "The YAML is nested too deeply."
_LONGEST_NUMBER = 400  # digits on either side of the point


MARK = "FILL IN"
"""How the comment begins that 'statpress init' leaves in place of a value."""


@dataclass(frozen=True)
class Document:
    """A parsed file.

    Attributes:
        value: Mappings, lists, text, int, Decimal, bool, date or None.
        places: Line and column (from 1) of every value, by its path of keys; of a
            key's value, the place of the key.
        name: The file's name for messages.
        text: What was parsed.
        root: The node of the whole text, with its comments.
        origins: By path what set the values that are not the file's.
    """

    value: Any
    name: str
    places: dict[Place, tuple[int, int]] = field(repr=False)
    text: str = field(repr=False)
    root: Node = field(repr=False)
    origins: Mapping[Place, str] = field(default_factory=dict)

    @property
    def blanks(self) -> list[Place]:
        """The places that are marked to be filled in, of a document as it was parsed."""
        lines = dict(enumerate(self.text.splitlines(), 1))
        marked = (p for p, (line, _) in self.places.items() if f"# {MARK}: " in lines.get(line, ""))
        return [path for path in marked if path and self.at(path) is None]

    def at(self, path: Place) -> Any:
        """The value at a place."""
        value = self.value
        for key in path:
            value = value[key]
        return value

    def where(self, path: Place) -> str:
        """``file:line:column: a.b.c`` for the nearest value on the path that exists.

        Of a value that is not the file's the place is what set it, and for which file.
        """
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                origin, dotted = self.origins[path[:length]], ".".join(map(str, path))
                place = f"{origin} (for {self.name})"
                return place if origin.endswith(f" {dotted}") else f"{place}: {dotted}"
        known = path
        while known and known not in self.places:
            known = known[:-1]
        line, column = self.places.get(known, (1, 1))
        dotted = ".".join(map(str, path))
        place = f"{self.name}:{line}:{column}" + (f": {dotted}" if dotted else "")
        within = [origin for at, origin in self.origins.items() if path and at[: len(path)] == path]
        return f"{place} (with {', '.join(within)})" if within else place


def parse(text: str, name: str, most_repeated: int = _MOST_REPEATED) -> Document:
    """Parse one YAML document, whose aliases may repeat so many values.

    Depth is bounded as the text is scanned, before anything is built from it, since the parser's
    time for what lies within brackets grows with the square of their depth.

    Raises:
        YamlError: Not YAML, more than one document, a tag a config may not use, too long, nested
            too deeply, or with aliases that repeat too much.
        DuplicateColumnError: A key occurs twice in one mapping.
    """
    if len(text) > LONGEST:
        raise YamlError(f"The text is longer than {LONGEST // 10**6} MB.", where=name)
    try:
        root = _composed(text) if len(text) <= _LONGEST_KEPT else _composed.__wrapped__(text)
        problem = None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        said = error.problem or error.context
        deep = said == _TOO_DEEP
        problem = YamlError(said if deep else f"This is not YAML: {said}.", where=place)
    except (YAMLError, ValueError) as error:
        problem = YamlError(f"This is not YAML: {str(error).splitlines()[0]}.", where=name)
    except RecursionError:
        problem = YamlError(_TOO_DEEP, where=name)
    if problem is not None:
        raise problem
    if root is None:
        raise YamlError("The file is empty.", where=name)
    builder = _Builder(name, most_repeated)
    return Document(builder.build(root, ()), name, builder.places, text, root)


@functools.lru_cache(maxsize=8)
def _composed(text: str) -> Node | None:
    """The nodes of a text, which nobody changes; a run reads its config several times."""
    yaml = YAML(typ="rt", pure=True)
    yaml.Scanner = _Scanner
    root: Node | None = yaml.compose(text)
    return root


class _Scanner(RoundTripScanner):
    """Refuses brackets and indentation that nest more deeply than any config."""

    def fetch_flow_collection_start(self, *args: Any, **kwargs: Any) -> None:
        self._check_depth()
        super().fetch_flow_collection_start(*args, **kwargs)

    def add_indent(self, column: int) -> bool:
        added = bool(super().add_indent(column))
        if added:
            self._check_depth()
        return added

    def _check_depth(self) -> None:
        if len(self.indents) + self.flow_level > _DEEPEST:
            raise MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.reader.get_mark())


class _Builder:
    """Turns a node tree into plain values and notes where each one stands."""

    def __init__(self, name: str, most_repeated: int) -> None:
        self.name, self._most_repeated = name, most_repeated
        self.places: dict[Place, tuple[int, int]] = {}
        self._built: set[int] = set()
        self._repeated = 0

    def build(self, node: Node, path: Place) -> Any:
        self.places.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        if len(self.places) > _MOST_VALUES:
            raise YamlError("The file has more than a million values.", where=self.name)
        self._repeated += id(node) in self._built
        self._built.add(id(node))
        if self._repeated > self._most_repeated:
            said = f"Its aliases repeat more than {self._most_repeated:,} values."
            raise YamlError(said, where=self.name)
        if len(path) > _DEEPEST:
            raise YamlError(_TOO_DEEP, where=self._where(node))
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        assert isinstance(node, SequenceNode)
        return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]

    def _mapping(self, node: MappingNode, path: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.value == "<<":
                raise YamlError("A key must be plain text.", where=self._where(key_node))
            key = str(key_node.value)
            if key in result:
                raise DuplicateColumnError(f"'{key}' is given twice.", where=self._where(key_node))
            mark = key_node.start_mark
            self.places[(*path, key)] = (mark.line + 1, mark.column + 1)
            result[key] = self.build(value_node, (*path, key))
        return result

    def _scalar(self, node: ScalarNode) -> Any:
        tag = str(node.tag).rpartition(":")[2]
        # In folded text ruamel.yaml marks its folds with BEL, which YAML does not allow there.
        text = str(node.value).replace("\a", "") if node.style == ">" else str(node.value)
        plain = text.replace("_", "")
        try:
            match tag:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return text.lower() in ("true", "yes", "on")
                case "int":
                    sign, digits = (plain[0], plain[1:]) if plain[0] in "+-" else ("", plain)
                    base = 0 if digits[:2].lower() in ("0x", "0o", "0b") else 10
                    return int(sign + digits, base)
                case "float":
                    number = Decimal(plain.lower().replace(".inf", "inf").replace(".nan", "nan"))
                    if number.is_finite() and abs(number.adjusted()) > _LONGEST_NUMBER:
                        raise ValueError("too long")
                    return number
                case "timestamp":
                    return datetime.date.fromisoformat(text)
        except (ValueError, InvalidOperation):
            pass
        raise YamlError(f"This {tag} cannot be read.", where=self._where(node))

    def _where(self, node: Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


_MOST_LISTED = 10_000


def as_value(lines: Sequence[str]) -> list[str] | str:
    """The lines of a file in a config: a list, or one text where a list would be read slowly."""
    return list(lines) if len(lines) <= _MOST_LISTED else "\n".join([*lines, ""])


def lines_of(text: str) -> list[str] | None:
    """The lines of a text that ``as_value`` made; None for a path, which has one line."""
    return text.splitlines() if "\n" in text else None


def read_text(path: Path, where: str) -> str:
    """UTF-8 text with line feeds, without a byte order mark.

    Args:
        path: Of the file.
        where: What to call it in errors.

    Raises:
        ConfigNotFoundError: It cannot be read, is too long, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            longer = os.fstat(file.fileno()).st_size > LONGEST  # and is not held
            content = b"" if longer else file.read(LONGEST + 1)
        if not longer and len(content) <= LONGEST:
            text = content.decode("utf-8-sig")
            return text.replace("\r\n", "\n").replace("\r", "\n")
        problem = f"The file is longer than {LONGEST // 10**6} MB. No config is; is this the data?"
    except UnicodeDecodeError:
        problem = "The file is not UTF-8 text."
    except ValueError:
        problem = "This is not a path."
    except FileNotFoundError:
        problem = "There is no such file."
    except OSError as error:
        problem = f"The file cannot be read ({error.strerror})."
    raise ConfigNotFoundError(problem, where=where)


class Findings:
    """Errors that do not keep the rest from being checked."""

    def __init__(self) -> None:
        self.errors: list[StatpressError] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an error of the config for later."""
        try:
            yield
        except (ConfigError, InfeasibleBudgetError) as error:
            self.errors.append(error)

    def settle(self) -> None:
        """Raise what was found: unknown keys, then the rest, each in the order of the file.

        Raises:
            StatpressError: The first, with the others.
        """
        once: dict[tuple[str, str], StatpressError] = {}
        for error in self.errors:
            for each in (error, *error.also):
                once.setdefault((each.where, each.what), each)
        for each in once.values():
            each.also = ()
        if once:
            raise together(sorted(once.values(), key=_order))


def _order(error: StatpressError) -> tuple[bool, float, float]:
    """Where an error stands among others; last if it is of no line, as one of an override."""
    found = re.match(r".*?:(\d+):(\d+)(?:: |$)", error.where)
    line, column = map(int, found.groups()) if found else (math.inf, math.inf)
    return not isinstance(error, UnknownKeyError), line, column


@contextmanager
def placed(document: Document, keys: Place) -> Iterator[None]:
    """Give errors of the core the place in the file where they arose.

    What they call their place is a key below ``keys``, or several with dots between them, where
    items of lists are counted from 0; the last of them may begin with a section of the file.
    """
    try:
        yield
        return
    except (ConfigError, InfeasibleBudgetError) as error:
        found: StatpressError = error
    if document.name not in found.where:
        found.where = document.where(_below(document, keys, found.where))
    raise found


def _below(document: Document, keys: Place, dotted: str) -> Place:
    """Where a dotted path below some keys leads to, as far as the document has it."""
    steps = [int(each) if each.isdecimal() else each for each in dotted.split(".")]
    parts = [dotted] if (*keys, dotted) in document.places else steps
    whole, *shorter = [(*keys, *parts[:n]) for n in range(len(parts), -1, -1)]
    of_sections = [tuple(parts[n:]) for n in range(len(parts) - 1)]
    return next((each for each in (whole, *of_sections, *shorter) if each in document.places), keys)
