"""What every kind of product has to do: the files of a tiny release by each of its mechanisms."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from coded import CodesInMemory
from contract_cases import SERVED, case, constant_case, planned
from estimating import seeded

from statpress.configs.formats import FORMATS as KNOWN
from statpress.configs.formats import STAT
from statpress.configs.release_config import PublishConfig
from statpress.mechanisms.domain.contingency_table import Counted
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.registry import KINDS as CORE_KINDS
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.pages.blocks import Page
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.product_kind import KINDS, kind_named, kind_of, private_input
from statpress.tasks.products.true_errors import TrueErrors

FORMATS = [form for form in KNOWN if form not in STAT]
PUBLISH = PublishConfig(directory="releases", formats=FORMATS, plots=False)
EVERY = pytest.mark.parametrize(  # those of Stata and SPSS need an extra
    "formats", [FORMATS, pytest.param(list(STAT), marks=pytest.mark.system)], ids=["core", "stat"]
)
EACH = pytest.mark.parametrize(("name", "kind"), SERVED)


@functools.cache
def released(name: str, kind: str) -> tuple[Any, Any, Any]:
    """A planned product, what its mechanism drew, and what follows from it."""
    (product,) = planned(name, kind).products
    table = case(name).table
    private = private_input(product, Counted((table,), CodesInMemory.of(table)))
    raw = product.mechanism.release(private, seeded(4))
    return product, raw, kind_of(product).postprocess(product, raw, case(name).n_records)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_kind_that_the_planner_knows(name: str) -> None:
    kind = KINDS[name]
    assert kind.core is CORE_KINDS[kind.core.name]
    own = {getattr(mechanism, "published_as", None) for mechanism in REGISTRY.values()}
    assert (name == kind.core.name) is (name not in own)


def test_every_kind_that_a_mechanism_serves_can_be_published() -> None:
    assert set(CORE_KINDS) == {kind.core.name for kind in KINDS.values()}


def test_a_kind_for_one_mechanism_is_found_by_its_name_only() -> None:
    assert kind_named("microdata", "marginals") is KINDS["microdata_by_marginals"]
    assert kind_named("microdata", "bootstrap") is KINDS["microdata"]
    assert kind_named("table", "gaussian") is KINDS["table"]


@EVERY
@EACH
def test_its_files_are_whole(name: str, kind: str, formats: list[str], tmp_path: Path) -> None:
    publish = PublishConfig(directory="releases", formats=formats, plots=False)
    (tmp_path / "data").mkdir()
    product, raw, derived = released(name, kind)
    assert kind_of(product).core.name == kind
    planned_files = kind_of(product).publication(product)
    planned_files.rehearse(tmp_path, publish, "products.p")
    assert files(tmp_path) == set()  # nothing is left of it
    written: list[int] = []
    publication = kind_of(product).publication(product, derived)
    publication.write(tmp_path, publish, written.append)
    profiles, rows = publication.profile(tmp_path, publish)
    assert (
        set(profiles)
        == set(rows)
        == {
            table.path(tmp_path, suffix).name
            for table in planned_files.tables
            for suffix in formats
        }
    )
    for file, profile in profiles.items():
        assert profile.pop("rows") == rows[file]
        assert profile
        assert not any(profile.values()), f"{file}: {profile}"
    assert all(table.expected <= table.most_rows for table in publication.tables)
    resources = planned_files.resources(publish)
    assert resources == publication.resources(publish)
    assert {each["path"] for each in resources} == files(tmp_path)
    assert len({each["name"] for each in resources}) == len(resources)
    json.dumps([resources, kind_of(product).stated(product, raw)], allow_nan=False)


@EACH
def test_more_memory_than_there_is_is_refused(name: str, kind: str) -> None:
    (product,) = planned(name, kind).products
    needed = kind_of(product).working_memory(product)
    needed.check("products.p", there=needed.derive)
    with pytest.raises(ConfigError, match="GiB of memory, for ") as caught:
        needed.check("products.p", there=needed.derive - 1)
    assert caught.value.where == "products.p"
    assert caught.value.next_step.startswith(needed.next_step)


@EACH
def test_a_changed_file_is_seen(name: str, kind: str, tmp_path: Path) -> None:
    """Twins: a row too many, and a value that is not declared or was not derived."""
    (tmp_path / "data").mkdir()
    product, _, derived = released(name, kind)
    publication = kind_of(product).publication(product, derived)
    publication.write(tmp_path, PUBLISH, lambda rows: None)
    table = publication.tables[0]
    path = table.path(tmp_path, "csv")
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)

    def seen(text: str) -> bool:
        path.write_text(text)
        try:
            profile = table.profile(path)
        except (KeyError, ValueError):  # the gate stops at it
            return True
        return profile.pop("rows") != table.expected or any(profile.values())

    assert not seen(whole)
    assert seen(whole + lines[-1])
    assert seen(whole.replace(lines[0], lines[0].upper()))
    values = lines[1].rstrip("\n").split(",")
    changed = [[*values[:i], "987654", *values[i + 1 :]] for i in range(len(values))]
    assert any(seen("".join([lines[0], ",".join(row) + "\n", *lines[2:]])) for row in changed)


@EACH
def test_its_true_errors_are_those_of_what_it_was_given(name: str, kind: str) -> None:
    """Rows and a section for the curator; a twin of them, against all records in one cell."""
    product, _, derived = released(name, kind)

    def against(table: Any) -> TrueErrors | None:
        counted = Counted((table,), CodesInMemory.of(table))
        private = private_input(product, counted)
        return kind_of(product).true_errors(product, derived, private)

    found, twin = against(case(name).table), against(constant_case(name).table)
    if found is None or twin is None:
        assert (found, twin) == (None, None)
        return
    assert found.compared and all(row.what and row.true and row.verdict for row in found.compared)
    assert [row.true for row in found.compared] != [row.true for row in twin.compared]
    assert repr(found) == "TrueErrors()"
    page = rendered(Page("p", [found.section]), pictures=False)
    assert 'id="product-p"' in page


@EACH
def test_a_reader_is_told_of_it(name: str, kind: str, tmp_path: Path) -> None:
    plan = planned(name, kind)
    (product,) = plan.products
    words = kind_of(product).words(product, plan)
    assert words.item.startswith("- `p`")
    assert "\n" not in words.item
    assert all(note.strip() for note in words.notes.values())
    files = kind_of(product).publication(product)
    assert files.most_values > 0
    assert len({table.stem for table in files.tables}) == len(files.tables)
    assert all(table.fields and table.stem.startswith("p") for table in files.tables)


@EVERY
@EACH
def test_its_part_of_the_report_is_made_of_each_format_alone(
    name: str, kind: str, formats: list[str], tmp_path: Path
) -> None:
    """Before anything is drawn, and then from the files of a bundle in one format."""
    plan = planned(name, kind)
    product, raw, derived = released(name, kind)
    its = kind_of(product)
    stated = {
        **product.describe(plan.privacy),
        "columns": list(product.domain.names),
        "expected_error": dataclasses.asdict(product.expected_error),
        **its.stated(product, raw),
    }
    titles = set()
    for form in formats:
        publish = PublishConfig(directory="releases", formats=[form])
        folder = tmp_path / form
        (folder / "data").mkdir(parents=True)
        resources = its.publication(product).resources(publish)
        before = its.part(folder, "p", stated, resources)
        assert before.figure is None and before.words
        its.publication(product, derived).write(folder, publish, lambda rows: None)
        part = its.part(folder, "p", stated, resources)
        titles.add(part.section.title)
        page = rendered(Page("p", [part.section]), pictures=form == formats[0])
        assert part.section.anchor == before.section.anchor and "None" not in page
        blocks = (*part.section.blocks, *(b for each in part.section.parts for b in each.blocks))
        assert blocks
    assert len(titles) == 1
