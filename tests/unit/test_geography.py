"""The section ``geography`` of a config: files of places, and every fault by its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statpress.configs.loading import load
from statpress.configs.requests import ProductRequest
from statpress.mechanisms.errors import ConfigError, StatpressError
from statpress.mechanisms.places import outlines
from statpress.mechanisms.places.outlines import extent
from statpress.mechanisms.places.tree import Geography

CONFIG = """\
title: t
dataset: d
source: {path: people.csv}
privacy: {adjacency: replace_one, unit: record, n_records: 1000}
budget: {epsilon: 1, delta: 1e-6}
domain:
  place: {type: categorical, categories: [A1, A2, B1, C]}
  sex: {type: categorical, categories: [f, m]}
geography:
  place: {levels: [state, tract], file: places.csv}
products:
  people: {kind: table, at: {state: [[sex]], tract: [[sex]]}}
publish: {directory: releases}
"""
WIDE = "state,tract\nA,A1\nA,A2\nB,B1\nC,\n"
PAIRS = "place,within\nA,\nA1,A\nA2,A\nB,\nC,\nB1,B\n"


def request_of(folder: Path, text: str = CONFIG, **files: str) -> ProductRequest:
    for name, lines in {"places": WIDE, **files}.items():
        (folder / f"{name}.csv").write_text(lines)
    path = folder / "release.yaml"
    path.write_text(text)
    (request,) = load(path).requests
    return request


def geography_of(folder: Path, text: str = CONFIG, **files: str) -> Geography:
    found: Any = request_of(folder, text, **files).knobs.geography
    assert isinstance(found, Geography)
    return found


@pytest.mark.parametrize("lines", [WIDE, PAIRS, WIDE.replace("A,A2", '"A", A2 ') + "\n\n"])
def test_both_forms_say_which_place_lies_in_which(tmp_path: Path, lines: str) -> None:
    """A state without tracts is an only child at their level."""
    found = geography_of(tmp_path, places=lines)
    assert found.tree.levels == ("nation", "state", "tract")
    assert found.tree.codes[1] == ("A", "B", "C")
    assert found.tree.codes[2] == ("A1", "A2", "B1", "C")
    assert found.tree.parents[1].tolist() == [0, 0, 1, 2]
    assert found.leaves.tolist() == [0, 1, 2, 3]
    assert (found.sizes, found.exact) == (None, False)


def test_names_sizes_root_and_places_without_records(tmp_path: Path) -> None:
    section = "file: places.csv, root: land, names: names.csv, sizes: sizes.csv, known_totals: true"
    found = geography_of(
        tmp_path,
        CONFIG.replace("file: places.csv", section),
        places=WIDE + "D,D1\n",
        names="place,name\nA,Alpha\nA1,Alpha East\n",
        sizes="place,size\nA1,300\nA2,0\nB1,500\nC,200\nD1,0\n",
    )
    assert found.names[0] == ("land",)
    assert found.names[1] == ("Alpha", "B", "C", "D")
    assert found.names[2][0] == "Alpha East"
    assert found.sizes is not None and found.sizes.tolist() == [300, 0, 500, 200, 0]
    assert found.exact and found.leaves.tolist() == [0, 1, 2, 3]


def test_lines_may_stand_in_the_config_and_are_published_with_it(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    (tmp_path / "places.csv").write_text(WIDE)
    path.write_text(CONFIG)
    release = load(path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "release.yaml").write_text(release.text)  # without the file
    again = load(other / "release.yaml")
    assert again.text == release.text and "A,A1" in release.text
    one, two = (each.requests[0].knobs.geography for each in (release, again))
    assert one.tree.codes == two.tree.codes


def test_columns_with_a_list_of_levels(tmp_path: Path) -> None:
    request = request_of(
        tmp_path,
        CONFIG.replace("{kind: table, at: {state: [[sex]], tract: [[sex]]}}",
                       "{kind: table, columns: [sex], at: [nation, tract]}"),
    )  # fmt: skip
    assert request.mechanism == "place_tables"
    assert request.columns == ("sex", "place")


FAULTS = {
    "two parents": (WIDE + "B,A1\n", "line 6", "'A1' lies in 'B' here and in 'A' on line 2"),
    "listed twice": (WIDE + "A,A2\n", "line 6", "'A2' is listed twice"),
    "blank code": (WIDE + ",A3\n", "line 6", "code is blank"),
    "blank line of values": (WIDE + ",\n", "line 6", "code is blank"),
    "too few values": (WIDE + "A\n", "line 6", "as many values"),
    "a quote": (WIDE + 'A,"x\n', "line 6", "not one of a CSV file"),
    "header": ("state;tract\nA;A1\n", "line 1", "header of a file of places is 'state,tract'"),
    "nothing": ("", "geography.place.file", "header"),
    "no places": ("state,tract\n", "line 1", "no places"),
    "the root": (WIDE + "nation,x\nnation,\n", "line 7", "is the name of the root"),
    "a cycle": ("place,within\nA,B\nB,A\n", "line 2", "'A' lies in itself, by way of 'B'"),
    "itself": (PAIRS + "D,D\n", "line 8", r"'D' lies in itself\. Say in which larger place"),
    "not there": (PAIRS + "D,E\n", "line 8", "'E', which is not in the file"),
    "too deep": (PAIRS + "A11,A1\n", "line 8", "3 levels below the root, and 2 are named"),
    "category not there": (WIDE.replace("B1", "B2"), "release.yaml:7:51", "'B1' of the column"),
    "category with places": (PAIRS + "C1,C\n", "line 6", "a place with others in it"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_file_is_named_by_its_line(tmp_path: Path, fault: str) -> None:
    lines, where, problem = FAULTS[fault]
    with pytest.raises(ConfigError, match=problem) as refused:
        request_of(tmp_path, places=lines)
    assert where in refused.value.where


OTHER_FILES = {
    "unknown name": ("names", "place,name\nX,x\n", "line 2", "no place 'X'"),
    "blank name": ("names", "place,name\nA, \n", "line 2", "blank name"),
    "name twice": ("names", "place,name\nA,x\nA,y\n", "line 3", "listed twice"),
    "header of names": ("names", "code,name\n", "line 1", "place,name"),
    "size of a state": ("sizes", "place,size\nA,3\n", "line 2", "has others in it"),
    "no number": ("sizes", "place,size\nA1,3.5\n", "line 2", "whole number"),
    "below 0": ("sizes", "place,size\nA1,-3\n", "line 2", "whole number"),
    "a size is missing": ("sizes", "place,size\nA1,3\n", "sizes.csv", "'A2' has no size"),
    "all are 0": ("sizes", "place,size\nA1,0\nA2,0\nB1,0\nC,0\n", "geography.place", "are 0"),
}


@pytest.mark.parametrize("fault", OTHER_FILES)
def test_a_fault_of_names_and_sizes_is_named_by_its_line(tmp_path: Path, fault: str) -> None:
    key, lines, where, problem = OTHER_FILES[fault]
    text = CONFIG.replace("file: places.csv", f"file: places.csv, {key}: {key}.csv")
    with pytest.raises(ConfigError, match=problem) as refused:
        request_of(tmp_path, text, **{key: lines})
    assert where in refused.value.where


SECTIONS = {
    "not a column": ("  place: {levels", "  town: {levels", "'town' is not one"),
    "with other": ("[A1, A2, B1, C]}", "[A1, A2, B1, C], other: true}", "without 'other'"),
    "with missing": ("[A1, A2, B1, C]}", "[A1, A2, B1, C], missing: true}", "'missing'"),
    "level twice": ("[state, tract]", "[state, state]", "same name"),
    "level of the root": ("[state, tract]", "[nation, tract]", "same name"),
    "level as a column": ("[state, tract]", "[sex, tract]", "name of another column"),
    "not csv": ("file: places.csv", "file: release.yaml", "is not a .csv file"),
    "elsewhere": ("file: places.csv", "file: ../places.csv", "is not a .csv file"),
    "the source": ("path: people.csv", "path: places.csv", "is the private source"),
    "totals of nothing": ("file: places.csv", "file: places.csv, known_totals: true", "sizes"),
    "unknown key": ("file: places.csv", "file: places.csv, level: x", "no key 'level'"),
    "no level": ("at: {state: [[sex]]", "at: {county: [[sex]]", "no level 'county'"),
    "no geography": ("at: {state", "geography: town, at: {state", "no geography 'town'"),
    "undeclared": ("state: [[sex]]", "state: [[sex, ag]]", "declares no column 'ag'"),
    "reserved column": ("at: {state: [[sex]], tract: [[sex]]}",
                        "at: [state], columns: [upper]", "column of every table of places"),
    "no at": ("at: {state: [[sex]], tract: [[sex]]}", "mechanism: place_tables, columns: [sex]",
              "need a geography"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SECTIONS)
def test_a_fault_of_the_config_is_named_by_its_place(tmp_path: Path, fault: str) -> None:
    old, new, problem = SECTIONS[fault]
    assert old in CONFIG
    (tmp_path / "places.csv").write_text(WIDE)
    path = tmp_path / "release.yaml"
    path.write_text(CONFIG.replace(old, new))
    with pytest.raises(StatpressError, match=problem) as refused:
        load(path).plan()
    assert "release.yaml" in refused.value.where


def test_a_product_without_a_geography_is_told_what_to_declare(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    (section,) = [line for line in CONFIG.splitlines() if "levels" in line]
    path.write_text(CONFIG.replace(f"geography:\n{section}\n", ""))
    with pytest.raises(ConfigError, match="need a geography") as refused:
        load(path).plan()
    assert refused.value.next_step is not None and "geography" in refused.value.next_step


def test_files_of_levels_are_no_other_products(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text(WIDE)
    path = tmp_path / "release.yaml"
    other = "  people_tract: {kind: table, mechanism: laplace, columns: [sex]}\n"
    path.write_text(CONFIG.replace("publish:", f"{other}publish:"))
    with pytest.raises(ConfigError, match="written to the same file"):
        load(path)
    path.write_text(path.read_text().replace("people_tract", "people_tracts"))
    assert len(load(path).requests) == 2


def test_a_level_that_would_be_a_column_of_every_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text(WIDE.replace("state", "raw"))
    path = tmp_path / "release.yaml"
    path.write_text(CONFIG.replace("[state, tract]", "[raw, tract]").replace("{state:", "{raw:"))
    with pytest.raises(ConfigError, match="column of every table of places"):
        load(path)


TILES = "place,row,column,label\nA1,1,1,\nA2,1,2,two\nB1,2,1,b\nC,2,2,c\n"
BOUNDED = CONFIG.replace("file: places.csv", "file: places.csv, boundaries: b.csv")


def feature(code: object, x: float = 0, **more: object) -> dict[str, object]:
    ring = [[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]
    geometry = {"type": "Polygon", "coordinates": [ring]} | more
    return {"type": "Feature", "id": code, "geometry": geometry}


def bounded(folder: Path, *features: object, name: str = "b.geojson") -> Geography:
    text = json.dumps({"type": "FeatureCollection", "features": features})
    (folder / name).write_text(text)
    return geography_of(folder, BOUNDED.replace("b.csv", name))


def test_tiles_are_the_outlines_of_a_level(tmp_path: Path) -> None:
    drawn = geography_of(tmp_path, BOUNDED, b=TILES).outlines
    assert drawn is not None and drawn.level == 2
    assert drawn.labels == ("", "two", "b", "c")
    assert [extent(path)[:2] for path in drawn.paths] == [(0, 0), (20, 0), (0, 20), (20, 20)]
    named = geography_of(tmp_path, BOUNDED, b="place,row,column\nA,1,1\nB,1,2\nC,1,3\n").outlines
    assert named is not None and (named.level, named.labels) == (1, ("A", "B", "C"))


def test_boundaries_of_geojson_are_published_as_outlines(tmp_path: Path) -> None:
    """A config with the lines that were published gives the same outlines."""
    features: list[dict[str, Any]] = [feature("C", 3), feature("B", 1), feature("A")]
    features[1] |= {"properties": {"place": "B"}}
    del features[1]["id"]
    found = bounded(tmp_path, *features)
    assert found.outlines is not None and found.outlines.level == 1
    lefts = [extent(path)[0] for path in found.outlines.paths]
    assert lefts == [0, outlines.WIDEST // 4, 3 * outlines.WIDEST // 4]
    release = load(tmp_path / "release.yaml")
    assert "place,outline" in release.text and "coordinates" not in release.text
    other = tmp_path / "other"
    other.mkdir()
    (other / "release.yaml").write_text(release.text)
    again: Any = load(other / "release.yaml").requests[0].knobs.geography
    assert again.outlines == found.outlines


def test_a_topology_gives_the_outlines_of_its_features(tmp_path: Path) -> None:
    """Two squares with a common arc, which one of them has backwards, and one of two parts."""
    square = [[[8, 4], [2, 0], [0, 2], [-2, 0], [0, -2]]]
    topology = {
        "type": "Topology",
        "transform": {"scale": [0.5, 0.5], "translate": [0, 0]},
        "arcs": [[[2, 0], [0, 2]], [[2, 2], [-2, 0], [0, -2], [2, 0]],
                 [[2, 2], [2, 0], [0, -2], [-2, 0]], [[5, 0], [1, 0], [0, 1], [-1, -1]], *square],
        "objects": {"states": {"type": "GeometryCollection", "geometries": [
            {"type": "Polygon", "id": "A", "arcs": [[0, 1]]},
            {"type": "Polygon", "properties": {"place": "B"}, "arcs": [[2, 0]]},
            {"type": "MultiPolygon", "id": "C", "arcs": [[[3]], [[-5]]]},
        ]}},
    }  # fmt: skip
    (tmp_path / "b.topojson").write_text(json.dumps(topology))
    drawn = geography_of(tmp_path, BOUNDED.replace("b.csv", "b.topojson")).outlines
    whole = [
        feature("A"), feature("B", 1),
        feature("C", type="MultiPolygon", coordinates=[
            [[[2.5, 0], [3, 0], [3, 0.5], [2.5, 0]]],
            [[[4, 2], [5, 2], [5, 3], [4, 3], [4, 2]]],
        ]),
    ]  # fmt: skip
    same = bounded(tmp_path, *whole).outlines
    assert drawn is not None and same is not None
    assert [corners(path) for path in drawn.paths] == [corners(path) for path in same.paths]
    topology["objects"] = {}
    (tmp_path / "b.topojson").write_text(json.dumps(topology))
    with pytest.raises(ConfigError, match="a topology with one object"):
        geography_of(tmp_path, BOUNDED.replace("b.csv", "b.topojson"))


def corners(path: str) -> list[set[tuple[int, int]]]:
    return [set(ring) for ring in outlines.rings_of(path)]


BOUNDARY_FAULTS = {
    "another code": (TILES + "D,3,3,d\n", "line 6", "level 'tract' has no place 'D'"),
    "two levels": (TILES + "A,3,3,d\n", "line 6", "level 'tract' has no place 'A'"),
    "a place without": (TILES.replace("B1,2,1,b\n", ""), "b.csv", "'B1' of the level 'tract'"),
    "twice": (TILES + "A1,3,3,d\n", "line 6", "'A1' is listed twice"),
    "no row": (TILES.replace("B1,2", "B1,x"), "line 4", "Row and column of 'B1'"),
    "row 0": (TILES.replace("B1,2", "B1,0"), "line 4", "Row and column of 'B1'"),
    "too few": (TILES + "D\n", "line 6", "as many values"),
    "header": ("place;row\n", "line 1", "header of a file of boundaries is 'place,row,column' or"),
    "too long": (f"place,outline\nA1,M0 0l{'1 1 ' * 9000}1 1z\n", "line 2", "32,000 bytes"),
    "a script": ('place,outline\nA1,"M0 0l1 1 2 2z""/><script>"\n', "line 2", "not a path"),
}


@pytest.mark.parametrize("fault", BOUNDARY_FAULTS)
def test_faults_of_boundaries(tmp_path: Path, fault: str) -> None:
    text, where, problem = BOUNDARY_FAULTS[fault]
    with pytest.raises(ConfigError) as caught:
        geography_of(tmp_path, BOUNDED, b=text)
    assert problem in str(caught.value) and where in caught.value.where


GEOJSON_FAULTS: dict[str, tuple[list[object], str, str]] = {
    "another code": ([feature("A"), feature("D", 2)], "feature 2", "has no place 'D'"),
    "no code": ([feature("A"), {"geometry": None}], "feature 2", "not a polygon"),
    "a point": ([feature("A", type="Point")], "feature 1", "not a polygon"),
    "twice": ([feature("A"), feature("A", 2)], "feature 2", "'A' is listed twice"),
    "metres": ([feature("A", 500_000)], "feature 1", "not longitude and latitude"),
    "a line": ([feature("A", coordinates=[[[0, 0], [1, 1]]])], "feature 1", "less than 4 points"),
    "nothing": ([], "b.geojson", "not a feature collection"),
    "lacking": ([feature("A"), feature("B", 2)], "b.geojson", "'C' of the level 'state'"),
}


@pytest.mark.parametrize("fault", GEOJSON_FAULTS)
def test_faults_of_geojson(tmp_path: Path, fault: str) -> None:
    features, where, problem = GEOJSON_FAULTS[fault]
    with pytest.raises(ConfigError) as caught:
        bounded(tmp_path, *features)
    assert problem in str(caught.value) and where in caught.value.where


def test_boundaries_lie_in_files_of_a_known_ending(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.csv or \.geojson or \.topojson file"):
        bounded(tmp_path, feature("A"), name="b.json")


@pytest.mark.system
def test_outlines_that_files_of_stata_cannot_hold_are_refused(tmp_path: Path) -> None:
    """Before the charge: the file would be refused when it is written."""
    lines = ["place,outline", f"A,M0 0l{'1 1 ' * 500}1 1z", "B,M0 0l1 0 0 1z", "C,M0 0l1 0 0 1z"]
    text = BOUNDED.replace("{directory: releases}", "{directory: releases, formats: [FORMAT]}")
    b = "\n".join(lines)
    assert geography_of(tmp_path, text.replace("FORMAT", "sav"), b=b).outlines is not None
    with pytest.raises(ConfigError, match=r"2,00\d bytes.*Stata at most 2,000"):
        geography_of(tmp_path, text.replace("FORMAT", "dta"), b=b)


def test_two_tables_of_a_product_with_one_file_are_refused(tmp_path: Path) -> None:
    """A level 'places' would have the file of who lies in whom."""
    text = CONFIG.replace("tract", "places")
    with pytest.raises(ConfigError, match="Two tables of this product would be written") as refused:
        request_of(tmp_path, text, places=WIDE.replace("tract", "places"))
    assert "products.people" in refused.value.where
