"""Overrides: where they lead, what they leave as it was, and what is refused."""

from __future__ import annotations

import copy
import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statpress.configs import order
from statpress.configs.loading import Release, load
from statpress.configs.order import flow_text, from_environment, from_options, with_values
from statpress.configs.yaml_text import Place, parse
from statpress.flows.deployed import from_scalars
from statpress.mechanisms import errors

CONFIG = """\
# of the whole file \U0001f4c4
title: Some title  # stays
dataset: d
source: {path: x.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 5}
budget:
  epsilon: 1.00
  # why this delta
  delta: 0.0000001
domain:
  s:
    type: categorical
    categories:
      file: states.txt
    # after the categories
    other: true
  Age.Group: {type: integer, lower: 0, upper: 9}
products:
  p: {kind: microdata, mechanism: bootstrap, columns: [s], share: 1}
publish:
  directory: x
  formats:
  - csv
"""


def changed(
    folder: Path, *options: str, text: str = CONFIG, lines: str = "a\nb\n", **environment: str
) -> Release:
    (folder / "states.txt").write_text(lines)
    (folder / "c.yaml").write_text(text)
    overrides = (*from_environment(environment), *from_options(options))
    return load(folder / "c.yaml", overrides)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    variables = {
        "STATPRESS__BUDGET__EPSILON": "0.5",
        "STATPRESS__Domain__AGE.GROUP__UPPER": "19",
        "STATPRESS__PUBLISH__NAME": "second",  # not in the file
        "STATPRESS_HOME": "/else/where",
    }
    release = changed(tmp_path, "budget.delta=1e-9", **variables)
    assert release.config.budget.epsilon == Decimal("0.5")
    assert release.config.budget.delta == Decimal("1e-9")
    assert release.config.publish.name == "second"
    assert release.domain["Age.Group"].size == 20
    assert [each.describe() for each in release.overrides] == [
        {"key": "budget.epsilon", "value": "0.5", "by": "STATPRESS__BUDGET__EPSILON"},
        {
            "key": "domain.Age.Group.upper",
            "value": "19",
            "by": "STATPRESS__Domain__AGE.GROUP__UPPER",
        },
        {"key": "publish.name", "value": "second", "by": "STATPRESS__PUBLISH__NAME"},
        {"key": "budget.delta", "value": "1E-9", "by": "--set"},
    ]
    won = changed(tmp_path, "budget.epsilon=9", "budget.epsilon=0.7", **variables)
    assert won.config.budget.epsilon == Decimal("0.7")
    assert won.overrides[-1].describe() == {"key": "budget.epsilon", "value": "0.7", "by": "--set"}


def test_only_the_value_changes_in_the_text_and_files_become_part_of_it(tmp_path: Path) -> None:
    options = (
        "budget.epsilon=0.5", "publish.formats=[parquet, csv]", "products.p.records=7",
        "publish.name=n", "domain.Age.Group.missing=true", 'title="a: \\"b\\" # é"',
        "products.p.columns.0=Age.Group", "privacy.unit={column: u, max_records: 2}",
        "privacy.n_units=4", "privacy.n_records=null",
    )  # fmt: skip
    expected = CONFIG
    release = changed(tmp_path, *options, lines='one\n"t: w\u00a0o"\n\U0001f600\n7\n')
    for old, new in {
        "title: Some title  #": r'title: "a: \"b\" # é" #',
        "unit: record, n_records: 5": "unit: {column: u, max_records: 2}, n_records: null",
        "{adjacency": "{n_units: 4, adjacency",
        "1.00": "0.5",
        "\n      file: states.txt": """ [one, "\\"t: w\u00a0o\\"", "😀", "7"]""",
        "{type: integer": "{missing: true, type: integer",
        "{kind": "{records: 7, kind",
        "[s]": "[Age.Group]",
        "  directory": '  name: "n"\n  directory',
        "\n  - csv": " [parquet, csv]",
    }.items():
        assert old in expected
        expected = expected.replace(old, new)
    assert release.text == expected
    assert release.sha256 == hashlib.sha256(release.text.encode()).hexdigest()
    (tmp_path / "states.txt").unlink()
    (tmp_path / "alone.yaml").write_text(release.text, encoding="utf-8")
    again = load(tmp_path / "alone.yaml")
    assert again.text == release.text
    assert again.domain == release.domain
    assert again.requests == release.requests
    assert again.domain["s"].categories == ("one", '"t: w\u00a0o"', "\U0001f600", "7")


def test_without_overrides_the_text_is_the_files(tmp_path: Path) -> None:
    text = CONFIG.replace("categories:\n      file: states.txt", "categories: [a, b]")
    release = changed(tmp_path, text=text)
    assert release.text == text
    assert release.overrides == ()
    with_file = changed(tmp_path)
    assert with_file.text == CONFIG.replace("\n      file: states.txt", " [a, b]")
    assert changed(tmp_path, lines="a\nc\n").sha256 != with_file.sha256


@pytest.mark.parametrize(
    ("option", "kind", "said"),
    [
        ("budget.epsilon=-1", errors.BudgetValueError, "above 0"),
        ("budget.epsilom=1", errors.UnknownKeyError, "Is 'epsilon' meant"),
        ("budgt.epsilon=1", errors.UnknownKeyError, "Is 'budget' meant"),
        ("titel=1", errors.UnknownKeyError, "Is 'title' meant"),
        ("budget.epsilon.x=1", errors.UnknownKeyError, "single value"),
        ("checks.s.missing_at_most=1", errors.UnknownKeyError, "no section 'checks'"),
        ("products.new={}", errors.UnknownKeyError, "no 'new' in 'products'"),
        ("domain.new={type: date}", errors.UnknownKeyError, "no 'new' in 'domain'"),
        ("products={}", errors.ConfigError, "only the file adds"),
        ("products.p.sharee=1", errors.UnknownKeyError, "Is 'share' meant"),
        ("domain.Age.Group.widht=2", errors.UnknownKeyError, "Is 'width' meant"),
        ("products.p.columns.1=s", errors.UnknownKeyError, "no '1'"),
        ("products.p.mechanism=lapace", errors.ConfigError, "no mechanism 'lapace'"),
        ("title=a: b", errors.YamlError, "neither a scalar nor a flow"),
        ("title=", errors.YamlError, "There is no value"),
        ("title=[", errors.YamlError, "not YAML"),
        ("title=!!python/object:os.system x", errors.YamlError, "cannot be read"),
        ("title", errors.ConfigError, "no '='"),
        ("a..b=1", errors.ConfigError, "names no key"),
    ],
)
def test_errors_name_the_override(
    tmp_path: Path, option: str, kind: type[Exception], said: str
) -> None:
    key, _, value = option.partition("=")
    with pytest.raises(kind, match=said) as caught:
        changed(tmp_path, option)
    assert caught.value.where.startswith(f"--set {key}")
    if "=" in option and "." not in key:
        name = f"STATPRESS__{key.upper()}"
        with pytest.raises(kind) as caught:
            changed(tmp_path, **{name: value})
        assert caught.value.where.startswith(name)


OF_UNITS = CONFIG.replace("unit: record, n_records: 5", "unit: {column: id, max_records: 3}")
SET = "--set privacy.n_units (for c.yaml)"
PARTLY = "c.yaml:5:1: privacy (with --set privacy.n_units)"
RANGE, FIX = "Give a number in that range.", "Fix this field and run 'statpress validate'."
COUNT = "The value must be a whole number, 1 or more."


@pytest.mark.parametrize(
    ("text", "value", "where", "what", "next_step"),
    [
        *((OF_UNITS, value, SET, COUNT, RANGE) for value in (
            "abc", "-1", "0", "1.5", "true", "[1]",
        )),
        (OF_UNITS, str(2**62), SET, "max_records times n_units must be below 2**62.", RANGE),
        (CONFIG, "7", SET,
         "Leave out n_units: with 'unit: record' the size is n_records.", FIX),
        (CONFIG.replace("n_records", "n_units"), "null", PARTLY,
         "'n_records' is missing, the public number of records in the source: it goes with "
         "'unit: record'.", FIX),
        (OF_UNITS, "null", PARTLY,
         "'n_units' is missing, the public number of units in the source: it goes with a unit "
         "column.", FIX),
        (CONFIG.replace("privacy:", "# "), "7", SET, "The file has no section 'privacy'.",
         "Add the section to the file: an override changes values of what is there."),
        (CONFIG.replace("privacy:", "privacy: # "), "7", SET,
         "'privacy' is blank in the file and has no keys.",
         "Set 'privacy' to a mapping, such as {n_units: ...}, or change the file."),
        (OF_UNITS, "", "--set privacy.n_units", "There is no value.", "Write null for no value."),
    ],
)  # fmt: skip
def test_a_wrong_number_of_units_is_said_with_file_field_and_next_step(
    tmp_path: Path, text: str, value: str, where: str, what: str, next_step: str
) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        changed(tmp_path, f"privacy.n_units={value}", text=text)
    assert (caught.value.where, caught.value.what) == (where, what)
    assert caught.value.next_step == next_step
    assert not caught.value.also


def test_a_right_number_of_units_is_taken(tmp_path: Path) -> None:
    assert changed(tmp_path, "privacy.n_units=7", text=OF_UNITS).privacy.n_units == 7
    with pytest.raises(errors.ConfigError, match="whole number") as caught:
        changed(tmp_path, text=OF_UNITS, STATPRESS__PRIVACY__N_UNITS="x")
    assert caught.value.where == "STATPRESS__PRIVACY__N_UNITS (for c.yaml): privacy.n_units"


def test_a_fault_that_an_override_has_part_in_names_both(tmp_path: Path) -> None:
    with pytest.raises(errors.BudgetValueError) as caught:
        changed(tmp_path, "products.p.share=0.5", "publish.name=x")
    assert caught.value.where == "c.yaml:18:1: products (with --set products.p.share)"
    with pytest.raises(errors.ConfigError, match="1 or more") as caught:
        changed(tmp_path, "publish.name=x", text=CONFIG.replace("n_records: 5", "n_records: 0"))
    assert caught.value.where == "c.yaml:5:49: privacy.n_records"  # as in the file


def test_two_variables_for_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="sets the same key"):
        changed(tmp_path, STATPRESS__TITLE="a", STATPRESS__title="b")


def test_a_value_behind_an_anchor_is_changed_in_one_place(tmp_path: Path) -> None:
    text = CONFIG.replace("dataset: d", "dataset: &d d").replace("directory: x", "directory: *d")
    assert changed(tmp_path, text=text).text == text.replace(
        "categories:\n      file: states.txt", "categories: [a, b]"
    ).replace("&d ", "").replace("*d", "d")
    for key in ("dataset", "publish.directory"):
        config = changed(tmp_path, f"{key}=e", text=text).config
        assert [config.dataset, config.publish.directory] == (
            ["e", "d"] if key == "dataset" else ["d", "e"]
        )
    shared = CONFIG.replace(
        "  Age.Group: {type: integer, lower: 0, upper: 9}",
        "  a: &x {type: integer, lower: 0, upper: 9}\n  b: *x\n  c: *x",
    )
    domain = changed(tmp_path, "domain.b.upper=4", text=shared).domain
    assert [domain[name].size for name in "abc"] == [10, 5, 10]


def test_several_files_of_categories_become_part_of_the_text(tmp_path: Path) -> None:
    other = "  t: {other: true, type: ordinal, categories: {file: more.txt}}  # t\nproducts:"
    text = CONFIG.replace("products:", other)
    (tmp_path / "more.txt").write_text("x\ny: z\n")
    release = changed(tmp_path, text=text, lines="a\nb\n")
    assert release.text == text.replace("\n      file: states.txt", " [a, b]").replace(
        "{file: more.txt}}  # t", '[x, "y: z"]}       # t'
    )
    anchored = text.replace("\n      file: states.txt", " &c {file: states.txt}")
    aliased = changed(tmp_path, text=anchored.replace("{file: more.txt}", "*c"))
    assert [aliased.domain[name].categories for name in "st"] == [("a", "b"), ("a", "b")]
    assert aliased.text.count("categories: [a, b]") == 2


def test_a_scheduler_gives_scalars_alone() -> None:
    given = from_scalars({"a": 1e-8, "b": True, "c": "0.50", "d": "text"})
    assert [each.value for each in given] == [Decimal("1e-8"), True, Decimal("0.50"), "text"]
    with pytest.raises(errors.ConfigError, match="single value") as caught:
        from_scalars({"publish.formats": "[csv]"})
    assert caught.value.where == "--set publish.formats"


KEYS = st.text().filter(lambda key: key != "<<")
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.dates() | st.text()
    | st.decimals(allow_nan=False, min_value=-(10**50), max_value=10**50),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)  # fmt: skip


LAYOUT = """\
# first

plain: x  # of x

# before folded
folded: >-   # of folded
  some
  text

    indented

  more

# before literal
literal: |+
  # no comment
  text


# before block
block: # of block
  # before a
  a:
    - 1_000  # of 1000
    # before the mapping
    - b: 0x1F
      c: [x, # inside
          "y", 'z']   # of c
    -
      - 1.000000000000000000000000001
    # after the list
  ? complex
  : !!str 7

  # after complex
twin: &t {a: 1, b: ~} # of twin
other: *t
empty:
last: {}
# end
"""
PLACES = [
    ("plain",), ("folded",), ("literal",), ("block",), ("block", "a"), ("block", "a", 0),
    ("block", "a", 1), ("block", "a", 1, "c"), ("block", "a", 1, "c", 0), ("block", "a", 2, 0),
    ("block", "complex"), ("block", "new"), ("twin",), ("twin", "a"), ("other", "b"), ("empty",),
    ("last",), ("last", "new"), ("new",), ("block", "a", 1, "new"),
]  # fmt: skip


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("value", [1, "a: #b\n", [], {}, ["x", {"y": Decimal("0.10")}], None])
def test_any_layout_takes_a_change_and_keeps_the_rest(path: Any, value: Any) -> None:
    document = parse(LAYOUT, "x")
    assert document.value["folded"] == "some text\n\n  indented\n\nmore"
    expected = copy.deepcopy(document.value)
    place = expected
    for key in path[:-1]:
        place = place[key]
    if path[-1] == "new":
        kept = dict(place)
        place.clear()
        place |= {"new": value} | kept
    else:
        place[path[-1]] = value
    found = with_values(document, {path: value}, where="here")
    assert repr(found.value) == repr(expected)
    assert repr(document.value) == repr(parse(LAYOUT, "x").value)
    for comment in ("# first", "# of x", "# before block", "# of twin", "# end"):
        assert comment in found.text


def test_a_document_takes_one_change_after_another() -> None:
    document = parse(LAYOUT + "# before more\nmore:\n  # first\n  - x # c\n  # next\n  - y\n", "x")
    once, twice = (with_values(document, {("new",): 1}, where="here").text for _ in "12")
    assert once == twice
    assert all(f"# {said}\n" in once for said in ("before more", "first", "c", "next", "end"))


@pytest.mark.parametrize("broken", [("n_records: 5", "n_records: 6"), ("n_records", "]")])
def test_a_change_that_would_alter_another_value_is_refused(broken: tuple[str, str]) -> None:
    document = parse("n_records: 5\npublish: {directory: d}\n", "c.yaml")
    change: dict[Place, Any] = {("publish", "directory"): "e"}
    assert with_values(document, change, where="here").value["publish"] == {"directory": "e"}
    with pytest.raises(errors.ConfigError, match="laid out") as caught:
        with_values(
            document, change, where="here", written=lambda root: order._text(root).replace(*broken)
        )
    assert caught.value.where == "here"


@given(VALUES)
@example({"a": None})
@example([{"a": {"b": "0"}}])
def test_flow_text_is_read_back_as_it_was(value: Any) -> None:
    text = flow_text(value)
    assert text[0] == {dict: "{", list: "["}.get(type(value), text[0])
    assert repr(parse(text, "x").value) == repr(value)
    assert repr(parse(f"a:\n  - {text}\n", "x").value["a"][0]) == repr(value)
