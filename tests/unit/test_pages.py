"""What the pages show is so: links, files, commands, configs, exit codes, sections."""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from cyclopts import CycloptsError, MissingArgumentError, ValidationError
from ruamel.yaml import YAML

from statpress.configs.declared_columns import COLUMNS
from statpress.configs.formats import FORMATS
from statpress.configs.loading import load
from statpress.configs.release_config import ReleaseConfig
from statpress.flows.cli import app
from statpress.flows.reference import PAGE, commands, exit_code_rows, page
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.statistics import STATISTICS
from statpress.mechanisms.functions.function_targets import TargetName
from statpress.mechanisms.registry import REGISTRY

ROOT = Path(__file__).parents[2]
FOLDERS = ("configs", "deploy", "flows", "mechanisms", "tasks", "tests")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
CODE = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
METHODS = (ROOT / "mechanisms" / "README.md").read_text()
CONFIG_PAGE = (ROOT / "configs" / "README.md").read_text()
BASE = """\
title: Test
dataset: test
source: {path: data.csv}
privacy: {adjacency: replace_one, unit: record, n_records: 1000}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  age: {type: integer, lower: 0, upper: 99}
  pay: {type: numeric, lower: 0, upper: 100, bins: 50}
  sex: {type: categorical, categories: [f, male]}
  hired: {type: categorical, categories: ["no", "yes"]}
  marital: {type: categorical, categories: [single, married, widowed]}
  pregnant: {type: categorical, categories: ["no", "yes"]}
products:
  people: {kind: table, mechanism: laplace, columns: [age, sex]}
publish: {directory: releases, formats: [csv]}
"""


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def anchors(name: str) -> frozenset[str]:
    return frozenset(slug(found) for found in re.findall(r"(?m)^#+ (.+)$", text_of(name)))


def yaml_blocks(text: str) -> list[str]:
    return re.findall(r"(?ms)^```yaml\n(.*?)^```$", text)


def spans(text: str) -> Iterator[str]:
    """Code spans, and lines of indented code."""
    plain = re.sub(r"(?ms)^```.*?^```$", "", text)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", plain))
    yield from re.findall(r"(?m)^ {4}(\S.*)$", plain)


def rows(text: str) -> set[str]:
    """All that is code in the first cell of the rows of tables."""
    cells = re.findall(r"(?m)^\| ([^|]+) \|", text)
    return {span for cell in cells for span in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(name)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        assert found.exists(), target
        assert ROOT in found.parents
        if anchor:
            assert anchor in anchors(str(found.relative_to(ROOT))), target


@pytest.mark.parametrize("name", NAMES)
def test_files_and_modules_that_are_named_exist(name: str) -> None:
    for span in spans(text_of(name)):
        if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*", span):
            assert (ROOT / span).exists(), span
        for module in re.findall(r"python -m ([\w.]+)", span):
            root = ROOT if module.startswith("tests.") else ROOT / ".src"
            assert (root / (module.replace(".", "/") + ".py")).exists(), module


@functools.cache
def parses(quoted: str) -> None:
    """Refuse what the command line would, except that arguments may be left out."""
    words = shlex.split(re.split(r" [<>] ", quoted)[0])[1:]
    with contextlib.suppress(MissingArgumentError, ValidationError):
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("name", NAMES)
def test_commands_that_are_shown_parse(name: str) -> None:
    for span in spans(text_of(name)):
        bare = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", span)
        if bare.startswith("statpress ") and "|" not in bare:
            parses(bare)


@pytest.mark.parametrize("wrong", ["pan x.yaml", "ledger verify --heads x", "ledger void --x"])
def test_a_command_that_is_not_there_would_be_found(wrong: str) -> None:
    with pytest.raises(CycloptsError):
        parses(f"statpress {wrong}")


ENGINES = re.compile("engine: (?:postgres|spark)")


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("README.md", False),
        ("configs/README.md", False),
        pytest.param("configs/README.md", True, marks=pytest.mark.system),
    ],
)
def test_configs_that_are_shown_load(name: str, extra: bool, tmp_path: Path) -> None:
    """Those whose engine is an extra are apart."""
    shown = yaml_blocks(text_of(name))
    blocks = [block for block in shown if extra == bool(ENGINES.search(block))]
    assert blocks
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        if "title:" in block:
            path.write_text(block)
        else:
            (key,) = YAML(typ="safe").load(block)
            text = BASE if f"\n{key}:" in BASE else f"{BASE}{key}:\n"
            (old,) = re.findall(rf"(?m)^{key}:.*\n(?:  .*\n)*", text)
            path.write_text(text.replace(old, block))
        assert load(path).requests
        path.write_text(path.read_text().replace("kind:", "kin:"))
        if "kin:" in path.read_text():
            with pytest.raises(ConfigError):
                load(path)


def keys_of_the_config() -> set[str]:
    schema = ReleaseConfig.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    return {key for part in parts for key in part.get("properties", ())}


def test_the_page_of_the_config_has_every_key_mechanism_statistic_and_target() -> None:
    quoted = " ".join([*spans(CONFIG_PAGE), *yaml_blocks(CONFIG_PAGE)])
    words = set(re.findall(r"\w+", quoted))
    assert keys_of_the_config() <= words
    assert set(FORMATS) <= words
    named = rows(CONFIG_PAGE)
    assert {"auto", *REGISTRY, *COLUMNS} - {"bernstein"} <= named
    assert "bernstein" in words  # the only mechanism of its kind
    assert set(STATISTICS) | set(get_args(TargetName)) <= words
    kinds = {kind.name for mechanism in REGISTRY.values() for kind in mechanism.kinds}
    assert kinds <= rows(CONFIG_PAGE.split("## Products")[1].split("###")[0])


def test_the_page_of_methods_has_every_mechanism_and_no_other() -> None:
    table = METHODS.split("| mechanism | kind of product |")[1].split("\n\n")[0]
    found = {
        cells[1].strip(" `"): cells[2]
        for line in table.splitlines()[2:]
        if (cells := line.split("|"))
    }
    assert set(found) == set(REGISTRY)
    for name, mechanism in REGISTRY.items():
        assert found[name].strip() == ", ".join(kind.name for kind in mechanism.kinds)


@pytest.mark.parametrize("package", ["mechanisms", "tasks"])
def test_the_rooms_of_a_package_are_those_on_its_page(package: str) -> None:
    table = text_of(f"{package}/README.md").split("| room | holds |")[1].split("\n\n")[0]
    rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert {span.rstrip("/") for span in rows(table)} == rooms


def test_the_generated_part_of_the_page_of_commands_is_up_to_date() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text(), "run python -m statpress.flows.reference"


def test_every_command_has_help_and_stands_on_the_page() -> None:
    found = dict(commands())
    assert len(found) >= 20
    for words, does in found.items():
        assert does.endswith("."), words
        assert f"`statpress {words}`" in PAGE.read_text()
        assert f"### statpress {words}\n" in PAGE.read_text()


def test_exit_codes_are_distinct_and_have_a_meaning() -> None:
    listed = list(exit_code_rows())
    assert len({code for code, _, _ in listed}) == len(listed) > 30
    assert all(meaning for _, _, meaning in listed)
    for code, kind, meaning in listed:
        assert f"| {code} | `{kind}` | {meaning} |" in PAGE.read_text()


def test_the_readme_is_short_and_has_its_commands_on_a_line_each() -> None:
    readme = text_of("README.md")
    assert len(readme.splitlines()) <= 140
    shown = re.findall(r"(?m)^ {4}(\S.*)$", readme.split("## Set up")[1].split("\n## ")[0])
    assert ["statpress demo" in shown[0], "pytest" in shown[1], len(shown)] == [True, True, 2]


def test_sections_and_theorems_that_the_code_cites_exist() -> None:
    sections = set(re.findall(r"(?m)^## (\d+)\. ", METHODS))
    theorems = set(re.findall(r"\*\*(?:Theorem|Lemma) (\d+\.\d+)", METHODS))
    cited = 0
    for path in CODE:
        text = " ".join(path.read_text().replace("#", " ").split())
        for number in re.findall(r"mechanisms/README\.md, section (\d+)", text):
            assert number in sections, path
            cited += 1
        for number in re.findall(r"mechanisms/README\.md, (?:Theorem|Lemma) ([\d.]*\d)", text):
            assert number in theorems, path
    assert cited > 10


def test_no_document_outside_the_repository_is_named() -> None:
    for path in [*CODE, *PAGES]:
        if path != Path(__file__):
            assert not re.search(r"\(theory|theory\.md|theory section", path.read_text()), path


def test_works_that_are_listed_are_cited_and_works_cited_are_listed() -> None:
    cited, _, listed = METHODS.partition("## References")
    works = {
        (name.split()[0].rstrip(","), year)
        for name, year in re.findall(r"(?m)^\| ([^|]+?) (\d{4}), ", listed)
    }
    assert len(works) > 30
    flat = " ".join(cited.split())
    for name, year in works:
        assert re.search(rf"{name}[^;]{{0,80}}?{year}", flat), (name, year)
    surname = r"[A-ZÉ][\w’'\-]+"
    for name, year in re.findall(
        rf"({surname})(?: et al\.|(?:,? {surname})*(?:,? and {surname}))?,? \(?((?:19|20)\d\d)\b",
        flat,
    ):
        assert (name.removesuffix("'s"), year) in works


def test_numbers_of_papers_in_the_code_are_those_of_the_list() -> None:
    listed = METHODS.split("## References")[1]
    for path in CODE:
        text = path.read_text()
        found = re.findall(
            r"doi\s+(10\.[^\s,;)]+[^\s,;.)])|[Aa]r[Xx]iv[\s:]+(\d{4}\.\d{4,5})", text
        )
        for doi, arxiv in found:
            assert (doi or arxiv) in listed, (path, doi or arxiv)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    wanted = {
        re.split(r"[\[<>=,; ]", each)[0]
        for group in lists
        for each in group
        if isinstance(each, str)
    }
    table = text_of("CONTRIBUTING.md").split("## Why each dependency is there")[1]
    assert wanted - {"statpress"} <= rows(table)
