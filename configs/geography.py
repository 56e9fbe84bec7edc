"""The section ``geography``: which column has places, and the public files of who lies in whom.

A file of places has a header and a line for each place, in one of two forms. Its header is the
names of the levels, from below the root down, and a line has the codes of a place without places in
it and of those that it lies in; a place that ends further up leaves the last values blank. Or its
header is ``place,within``, and a line has a code and that of the place that it lies in, blank for
the root. A file of names has the header ``place,name``, one of sizes ``place,size`` with whole
numbers for all places without places in them. One of boundaries has a tile for each place of a
level, ``place,row,column`` and perhaps ``label``, or an outline, ``place,outline``; or it is
GeoJSON or TopoJSON, which becomes lines of outlines (mechanisms.places.outlines).

What these files hold is published with the config, whose text takes their lines in.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictStr

from statpress.configs.declared_columns import Name, Section
from statpress.configs.yaml_text import Document, Findings, Place, as_value, lines_of, read_text
from statpress.mechanisms.domain.columns import Categorical, Column, Ordinal
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.places.outlines import LONGEST, Outlines, Ring, is_path, simplified, tile
from statpress.mechanisms.places.tree import Geography, Tree

TextFile = StrictStr | Annotated[list[StrictStr], Field(min_length=1)]
"""A path from the config's folder, or the lines of the file themselves: a list, or one text."""

FILES = ("file", "names", "sizes", "boundaries")
_CSV, _FEATURES = ".csv", (".geojson", ".topojson")
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
    boundaries: TextFile | None = Field(
        default=None,
        description="GeoJSON or TopoJSON file of the places of one level, or a CSV file of tiles, "
        "or its lines, for a map in the report.",
    )
    known_totals: bool = Field(
        default=False,
        description="The sizes are the exact numbers of records, and public: estimates meet them.",
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a file, with what a message names it by."""

    values: Sequence[str]
    file: str
    number: int
    unit: str = "line"

    @property
    def where(self) -> str:
        """The file and the line, or the feature of GeoJSON."""
        return f"{self.file}, {self.unit} {self.number}"


def geographies(
    config: Mapping[str, GeographyConfig],
    columns: Mapping[str, Column],
    document: Document,
    path_of: Callable[[str, str, Sequence[str]], Path],
    findings: Findings,
) -> tuple[dict[str, Geography], dict[Place, list[str] | str]]:
    """The geographies that are in order, by column, and the lines of their files by place.

    Args:
        config: The section, as far as it is valid.
        columns: Those that are in order.
        document: Places of the values, for messages.
        path_of: From what a key says, its place for messages and the endings that its file may
            have, to the path of a public file.
        findings: Take what is wrong.
    """
    found: dict[str, Geography] = {}
    texts: dict[Place, list[str] | str] = {}
    for name, section in config.items():
        with findings.noting():
            lines: dict[str, list[_Line]] = {}
            codes = {str(code): str(code) for code in getattr(columns.get(name), "categories", ())}
            for key in FILES:
                if (given := getattr(section, key)) is None:
                    continue
                where = document.where(("geography", name, key))
                written, label, features = given, where, False
                if isinstance(given, str) and (text_itself := lines_of(given)) is not None:
                    written = text_itself
                elif isinstance(given, str):
                    label = f"{where}: {given}"
                    endings = (_CSV, *_FEATURES) if key == "boundaries" else (_CSV,)
                    path = path_of(given, where, endings)
                    text = read_text(path, label)
                    features = path.suffix in _FEATURES
                    written = _outlined(text, label) if features else text.splitlines()
                    texts["geography", name, key] = as_value(written)
                lines[key] = list(_parsed(written, label, codes, features=features))
            found[name] = _geography(name, section, columns, lines, document)
    return found, texts


def _parsed(
    written: Sequence[str], label: str, codes: dict[str, str], *, features: bool = False
) -> Iterator[_Line]:
    """The lines that are not empty, the header first; or those that features became.

    ``codes`` has by text the one string that stands for it in memory; it gets further ones.
    """
    for number, text in enumerate(written, 0 if features else 1):
        if text.strip():
            try:
                (values,) = csv.reader([text], strict=True)
            except (csv.Error, ValueError):
                raise ConfigError(
                    "The line is not one of a CSV file.", where=f"{label}, line {number}"
                ) from None
            shared = tuple(codes.setdefault(value, value) for value in values)
            yield _Line(shared, label, number, "feature" if features else "line")


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
        outlines=_outlines(lines["boundaries"], tree) if "boundaries" in lines else None,
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
            problem = "lies in itself" + f", by way of '{parent}'" * (parent != code)
            next_step = "Say in which larger place it lies; a blank is the root."
        elif at:
            problem = f"lies in '{at}', which is not in the file"
            next_step = "Give that place a line of its own."
        elif depth >= len(levels):
            problem = f"lies {depth} levels below the root, and {len(levels) - 1} are named"
            next_step = "Name them all in 'levels', or leave the place out."
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
            raise ConfigError(
                f"There is no place '{code}' in the geography.",
                where=line.where,
                next_step="Use the codes of the file of places.",
            )
        if code in seen:
            raise ConfigError(
                f"The place '{code}' is listed twice.",
                where=line.where,
                next_step="Leave one of its lines out.",
            )
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
                f"The place '{code}' has others in it, and its size is theirs.",
                where=line.where,
                next_step="Leave the line out.",
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


_TILES, _OUTLINE = ("row", "column"), ("outline",)
_MOST_TILES = 200
_MOST_OUTLINES = 500_000


def _outlines(lines: Sequence[_Line], tree: Tree) -> Outlines:
    """The outlines of all places of one level, by a file of tiles or of outlines."""
    header, *rest = lines
    kinds = [[_PLACE, *each] for each in (_TILES, (*_TILES, "label"), _OUTLINE)]
    if list(header.values) not in kinds:
        raise ConfigError(
            f"The header of a file of boundaries is {_either(kinds)}.",
            where=header.where,
            next_step="A file of GeoJSON is named .geojson, one of TopoJSON .topojson.",
        )
    tiles = len(header.values) > 2
    listed: dict[str, _Line] = {}
    for line in rest:
        if len(line.values) != len(header.values):
            raise ConfigError(_TOO_FEW, where=line.where)
        code, *drawn = line.values
        if code in listed:
            raise ConfigError(f"The place '{code}' is listed twice.", where=line.where)
        whole = all(each.isascii() and each.isdigit() for each in drawn[:2])
        if tiles and not (whole and all(1 <= int(each[:5]) <= _MOST_TILES for each in drawn[:2])):
            raise ConfigError(
                f"Row and column of '{code}' are not whole numbers from 1 to {_MOST_TILES}.",
                where=line.where,
            )
        if not tiles and not (len(drawn[0]) <= LONGEST and is_path(drawn[0])):
            raise ConfigError(
                f"The outline of '{code}' is not a path of whole numbers, such as "
                f"'M0 0l20 0 0 20 -20 0z', of at most {LONGEST:,} bytes.",
                where=line.where,
            )
        listed[code] = line
    level = max(range(len(tree.levels)), key=lambda k: len(listed.keys() & set(tree.codes[k])))
    name, codes = tree.levels[level], tree.codes[level]
    for code, line in listed.items():
        if code not in codes:
            raise ConfigError(
                f"The level '{name}' has no place '{code}'.",
                where=line.where,
                next_step="The places of a file of boundaries are those of one level.",
            )
    lacking = next((code for code in codes if code not in listed), None)
    if lacking is not None:
        raise ConfigError(
            f"The place '{lacking}' of the level '{name}' has no boundary.",
            where=header.file,
            next_step=f"Give the boundaries of all places of the level '{name}'.",
        )
    found = [listed[code].values for code in codes]
    if not tiles and (length := sum(len(each[1]) for each in found)) > _MOST_OUTLINES:
        raise ConfigError(
            f"The outlines take {length:,} bytes, and a map has at most {_MOST_OUTLINES:,}.",
            where=header.file,
            next_step="Give the boundaries of a level with fewer places.",
        )
    if not tiles:
        return Outlines(level, tuple(each[1] for each in found), ("",) * len(codes))
    return Outlines(
        level,
        tuple(tile(int(each[1]) - 1, int(each[2]) - 1) for each in found),
        tuple((each[3] if len(each) > 3 else each[0]).strip() for each in found),
    )


def _either(kinds: Sequence[Sequence[str]]) -> str:
    return " or ".join(f"'{','.join(each)}'" for each in kinds)


def _outlined(text: str, label: str) -> list[str]:
    """Lines of outlines, from GeoJSON (RFC 7946) or TopoJSON with the codes of places."""
    features: Any = None
    with suppress(ValueError, KeyError, TypeError, IndexError, RecursionError):
        given = json.loads(text)
        features = _of_topology(given) if given["type"] == "Topology" else given["features"]
    if not isinstance(features, list) or not features:
        raise ConfigError(
            "The file is not a feature collection of GeoJSON, or a topology with one object.",
            where=label,
            next_step="Write one whose features have the code of a place as 'id', or as their "
            "property 'place'.",
        )
    rings: dict[str, list[Ring]] = {}
    for number, feature in enumerate(features, 1):
        where = f"{label}, feature {number}"
        try:
            code = feature["id"] if "id" in feature else feature["properties"][_PLACE]
            shape = feature["geometry"]
            polygons = {"Polygon": [shape["coordinates"]], "MultiPolygon": shape["coordinates"]}
            own: list[Ring] = [
                [(float(point[0]), float(point[1])) for point in ring]
                for polygon in polygons[shape["type"]]
                for ring in polygon
            ]
        except (ValueError, KeyError, TypeError, IndexError):
            raise ConfigError(
                "The feature is not a polygon or multipolygon with the code of a place.",
                where=where,
                next_step="The code is the feature's 'id', or its property 'place'.",
            ) from None
        if str(code) in rings:
            raise ConfigError(f"The place '{code}' is listed twice.", where=where)
        if not own or not all(len(ring) > 3 for ring in own):
            raise ConfigError(f"The place '{code}' has a ring of less than 4 points.", where=where)
        if not all(
            math.isfinite(x) and abs(x) <= 360 and abs(y) <= 90 for ring in own for x, y in ring
        ):
            raise ConfigError(
                f"The place '{code}' has points that are not longitude and latitude in degrees.",
                where=where,
                next_step="Write the file in WGS 84, as GeoJSON asks for.",
            )
        rings[str(code)] = own
    rows = [[_PLACE, *_OUTLINE], *([code, path] for code, path in simplified(rings).items())]
    return [_csv_line(row) for row in rows]


def _of_topology(given: Any) -> list[dict[str, Any]]:
    """The features of a topology with one object; one without polygons has no coordinates."""
    transform = given.get("transform", {"scale": [1, 1], "translate": [0, 0]})
    scale, shift = np.array(transform["scale"]), np.array(transform["translate"])
    arcs = [np.array(arc, dtype=np.float64)[:, :2] for arc in given["arcs"]]
    if "transform" in given:  # whole steps, each from the point before
        arcs = [np.cumsum(arc, axis=0) * scale + shift for arc in arcs]

    def ring(places: Sequence[int]) -> list[Any]:
        parts = [arcs[k] if k >= 0 else arcs[~k][::-1] for k in places]
        return [parts[0][0].tolist(), *(point for part in parts for point in part[1:].tolist())]

    def polygons(shape: Any) -> Any:
        if shape["type"] == "Polygon":
            return [ring(each) for each in shape["arcs"]]
        return [[ring(each) for each in polygon] for polygon in shape["arcs"]]

    (collection,) = given["objects"].values()
    return [
        {**each, "geometry": {"type": each["type"], "coordinates": polygons(each)}}
        if each["type"] in ("Polygon", "MultiPolygon")
        else {"geometry": each}
        for each in collection["geometries"]
    ]


def _csv_line(values: Sequence[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(values)
    return written.getvalue()
