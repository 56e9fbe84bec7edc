"""The section ``geography``: which column has places, and the public files of who lies in whom.

A file of places has a header and a line for each place, in one of two forms. Its header is the
names of the levels, from below the root down, and a line has the codes of a place without places in
it and of those that it lies in; a place that ends further up leaves the last values blank. Or its
header is ``place,within``, and a line has a code and that of the place that it lies in, blank for
the root. A file of names has the header ``place,name``, one of sizes ``place,size`` with whole
numbers for all places without places in them.

What these files hold is published with the config, whose text takes their lines in.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictStr

from statpress.configs.columns import Name, Section
from statpress.configs.yaml_text import Document, Findings, Place, read_text
from statpress.mechanisms.domain.columns import Categorical, Column, Ordinal
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.places.geography import Geography
from statpress.mechanisms.places.tree import Tree

TextFile = StrictStr | Annotated[list[StrictStr], Field(min_length=1)]
"""A path from the config's folder, or the lines of the file themselves."""

FILES = ("file", "names", "sizes")
_PLACE, _WITHIN = "place", "within"
_MOST_SIZE = 10**15
_TOO_FEW = "The line does not have as many values as the header."


class GeographyConfig(Section):
    """A column of places, of which each lies in another one."""

    levels: Annotated[list[Name], Field(min_length=1)] = Field(
        description="Names of the levels below the root, from the largest places to the smallest."
    )
    root: Name = Field(default="nation", description="Name of the level of one place, all of it.")
    file: TextFile = Field(description="CSV file of who lies in whom, or its lines.")
    names: TextFile | None = Field(default=None, description="CSV file of names, or its lines.")
    sizes: TextFile | None = Field(
        default=None,
        description="CSV file of public sizes, or its lines. Only their proportions matter, to "
        "divide the budget and to say what errors to expect.",
    )
    known_totals: bool = Field(
        default=False,
        description="The sizes are the exact numbers of records, and public: estimates meet them.",
    )


@dataclass(frozen=True)
class _Line:
    """A line of a file, with what a message names it by."""

    values: Sequence[str]
    file: str
    number: int

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.file}, line {self.number}"


def geographies(
    config: Mapping[str, GeographyConfig],
    columns: Mapping[str, Column],
    document: Document,
    path_of: Callable[[str, str], Path],
    findings: Findings,
) -> tuple[dict[str, Geography], dict[Place, list[str]]]:
    """The geographies that are in order, by column, and the lines of their files by place.

    Args:
        config: The section, as far as it is valid.
        columns: Those that are in order.
        document: Places of the values, for messages.
        path_of: From what a key says, and its place for messages, to the path of a public file.
        findings: Take what is wrong.
    """
    found: dict[str, Geography] = {}
    texts: dict[Place, list[str]] = {}
    for name, section in config.items():
        with findings.noting():
            lines: dict[str, list[_Line]] = {}
            for key in FILES:
                if (given := getattr(section, key)) is None:
                    continue
                where = document.where(("geography", name, key))
                written, label = given, where
                if isinstance(given, str):
                    label = f"{where}: {given}"
                    written = read_text(path_of(given, where), label).splitlines()
                    texts["geography", name, key] = written
                lines[key] = list(_parsed(written, label))
            found[name] = _geography(name, section, columns, lines, document)
    return found, texts


def _parsed(written: Sequence[str], label: str) -> Iterator[_Line]:
    """The lines that are not empty, the header first."""
    for number, text in enumerate(written, 1):
        if text.strip():
            try:
                (values,) = csv.reader([text], strict=True)
            except (csv.Error, ValueError):
                raise ConfigError(
                    "The line is not one of a CSV file.", where=f"{label}, line {number}"
                ) from None
            yield _Line(values, label, number)


def _geography(
    name: str,
    section: GeographyConfig,
    columns: Mapping[str, Column],
    lines: Mapping[str, Sequence[_Line]],
    document: Document,
) -> Geography:
    where = document.where(("geography", name))
    column = columns.get(name)
    if not isinstance(column, Categorical | Ordinal) or column.other_code or column.missing:
        raise ConfigError(
            f"A geography is of a column of categories that the domain declares, without 'other' "
            f"and 'missing', and '{name}' is not one.",
            where=where,
            next_step="Give records without a place one of their own, in the file and the column.",
        )
    levels = (section.root, *section.levels)
    if len(set(levels)) < len(levels):
        raise ConfigError("Two levels have the same name.", where=where)
    for level in levels:
        if level in columns and level != name:
            raise ConfigError(
                f"The level '{level}' has the name of another column.",
                where=where,
                next_step="Rename the level: files have a column of its name.",
            )
    above = _above(levels, lines["file"], document.where(("geography", name, "file")))
    tree = _tree(levels, above)
    leaf = {code: at for at, code in enumerate(tree.codes[-1])}
    containing = {parent for parent, _ in above.values()}
    places = []
    for at, category in enumerate(column.categories):
        code = str(category)
        if code not in leaf or code in containing:
            what, place = (
                "is not in the file of places",
                document.where(("domain", name, "categories", at)),
            )
            if code in containing:
                what = "is a place with others in it"
                place = f"{lines['file'][0].file}, line {above[code][1]}"
            raise ConfigError(
                f"The category '{code}' of the column '{name}' {what}.",
                where=place,
                next_step="The column's categories are the places of the file that have no others "
                "in them.",
            )
        places.append(leaf[code])
    names = {}
    for line in _pairs(lines.get("names", ()), "name", above):
        if not line.values[1].strip():
            raise ConfigError(f"The place '{line.values[0]}' has a blank name.", where=line.where)
        names[line.values[0]] = line.values[1]
    sizes = _sizes(section, lines, above, containing, leaf, where)
    return Geography(
        column=name,
        tree=tree,
        leaves=np.array(places, dtype=np.int64),
        names=tuple(tuple(names.get(code, code) for code in codes) for codes in tree.codes),
        sizes=sizes,
        exact=section.known_totals,
    )


Above = dict[str, tuple[str, int]]
"""By code that of the place it lies in, blank for the root, and the number of its line."""


def _above(levels: Sequence[str], lines: Sequence[_Line], where: str) -> Above:
    """Who lies in whom, in the order of the file."""
    below = list(levels[1:])
    if not lines or list(lines[0].values) not in (below, [_PLACE, _WITHIN]):
        raise ConfigError(
            f"The header of a file of places is '{','.join(below)}' or '{_PLACE},{_WITHIN}'.",
            where=lines[0].where if lines else where,
        )
    header, *rest = lines
    wide = list(header.values) == below
    above: Above = {}
    listed: set[str] = set()
    for line in rest:
        path = [value.strip() for value in line.values]
        if len(path) != len(header.values):
            raise ConfigError(_TOO_FEW, where=line.where)
        if wide:
            while path and not path[-1]:
                path.pop()
            steps = list(zip(["", *path], path, strict=False))
        else:
            steps = [(path[1], path[0])]
        if not steps or not all(code for _, code in steps):
            raise ConfigError(
                "A code is blank.",
                where=line.where,
                next_step="Only the levels below a place that has no others in it stay blank.",
            )
        for parent, code in steps:
            known, number = above.setdefault(code, (parent, line.number))
            if known != parent:
                inside = [f"'{each}'" if each else "the root" for each in (parent, known)]
                raise ConfigError(
                    f"The place '{code}' lies in {inside[0]} here and in {inside[1]} on line "
                    f"{number}.",
                    where=line.where,
                    next_step="Each place lies in one other; give two places two codes.",
                )
        if code in listed:
            raise ConfigError(f"The place '{code}' is listed twice.", where=line.where)
        listed.add(code)
        if code == levels[0]:
            raise ConfigError(
                f"The code '{code}' is the name of the root.",
                where=line.where,
                next_step="Name the root something else, with 'root'.",
            )
    if not above:
        raise ConfigError("The file has no places.", where=header.where)
    _check_depths(levels, above, header.file)
    return above


def _check_depths(levels: Sequence[str], above: Above, file: str) -> None:
    """Refuse places in unknown ones, cycles, and more levels than are named."""
    for code, (parent, number) in above.items():
        depth, at = 1, parent
        while at in above and depth <= len(above):
            depth, at = depth + 1, above[at][0]
        problem, next_step = "", ""
        if at in above:
            problem = f"lies in itself, by way of '{parent}'"
        elif at:
            problem = f"lies in '{at}', which is not in the file"
            next_step = "Give that place a line of its own."
        elif depth >= len(levels):
            problem = f"lies {depth} levels below the root, and {len(levels) - 1} are named"
        if problem:
            raise ConfigError(
                f"The place '{code}' {problem}.",
                where=f"{file}, line {number}",
                next_step=next_step,
            )


def _tree(levels: Sequence[str], above: Above) -> Tree:
    """The places by level; a place that ends further up is an only child at each level below."""
    containing = {parent for parent, _ in above.values()}
    codes: list[list[str]] = [[levels[0]]]
    within: list[dict[str, str]] = []
    for level in range(1, len(levels)):
        before = set(codes[-1])
        own = {
            code: parent or levels[0]
            for code, (parent, _) in above.items()
            if (parent or levels[0]) in before and (parent or level == 1)
        }
        if level > 1:
            own |= {code: code for code in codes[-1] if code not in containing}
        codes.append(list(own))
        within.append(own)
    return Tree.of(levels, codes, within)


def _pairs(lines: Sequence[_Line], second: str, above: Above) -> Iterator[_Line]:
    """The lines of a file of names or sizes, each of a place of its own."""
    if not lines:
        return
    header, *rest = lines
    if list(header.values) != [_PLACE, second]:
        raise ConfigError(f"The header of the file is '{_PLACE},{second}'.", where=header.where)
    seen: set[str] = set()
    for line in rest:
        if len(line.values) != 2:
            raise ConfigError(_TOO_FEW, where=line.where)
        code = line.values[0]
        if code not in above:
            raise ConfigError(f"There is no place '{code}' in the geography.", where=line.where)
        if code in seen:
            raise ConfigError(f"The place '{code}' is listed twice.", where=line.where)
        seen.add(code)
        yield line


def _sizes(
    section: GeographyConfig,
    lines: Mapping[str, Sequence[_Line]],
    above: Above,
    containing: set[str],
    leaf: Mapping[str, int],
    where: str,
) -> NDArray[np.float64] | None:
    """Public sizes of the places of the last level."""
    if "sizes" not in lines:
        if section.known_totals:
            raise ConfigError(
                "Known totals are those of a file of sizes.",
                where=where,
                next_step="Name it under 'sizes', or leave 'known_totals' out.",
            )
        return None
    sizes = np.full(len(leaf), np.nan)
    for line in _pairs(lines["sizes"], "size", above):
        code, written = line.values
        if code in containing:
            raise ConfigError(
                f"The place '{code}' has others in it, and its size is theirs.", where=line.where
            )
        if not (written.isascii() and written.isdigit()) or int(written) > _MOST_SIZE:
            raise ConfigError(
                f"The size of '{code}' is not a whole number of at least 0.", where=line.where
            )
        sizes[leaf[code]] = int(written)
    lacking = next((code for code, at in leaf.items() if np.isnan(sizes[at])), None)
    if lacking is not None:
        raise ConfigError(
            f"The place '{lacking}' has no size.",
            where=lines["sizes"][0].file,
            next_step="Give the sizes of all places without others in them.",
        )
    if not sizes.sum():
        raise ConfigError("All sizes are 0.", where=where)
    return sizes
