"""What every kind of product has to do: the files of a tiny release by each of its mechanisms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coded import CodesInMemory
from contract_cases import SERVED, case, planned
from estimating import seeded

from configs.models.formats import FORMATS
from configs.models.release import PublishConfig
from mechanisms.domain.counted import Counted
from mechanisms.planning.registry import REGISTRY, kinds
from tasks.products.files import profile_product, resources_of, write_product
from tasks.products.kind import TableForm
from tasks.products.registry import KINDS, families, kind_named, kind_of

PUBLISH = PublishConfig(directory="releases", formats=list(FORMATS), plots=False)
EACH = pytest.mark.parametrize(("name", "kind"), SERVED)


def released(name: str, kind: str) -> tuple[Any, Any, Any]:
    """A planned product, what its mechanism drew, and what follows from it."""
    (product,) = planned(name, kind).products
    table = case(name).table
    private = kind_of(product).private_input(product, Counted((table,), CodesInMemory.of(table)))
    raw = product.mechanism.release(private, seeded(4))
    return product, raw, kind_of(product).postprocess(product, raw, case(name).n_records)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_kind_that_the_planner_knows(name: str) -> None:
    kind = KINDS[name]
    assert kind.core is kinds()[kind.core.name]
    assert name == kind.core.name if not kind.only else set(kind.only) <= set(REGISTRY)
    assert kind.family


def test_every_kind_that_a_mechanism_serves_can_be_published() -> None:
    assert set(kinds()) == {name for name, kind in KINDS.items() if not kind.only}


def test_a_kind_for_one_mechanism_is_found_by_its_name_only() -> None:
    assert kind_named("microdata", "marginals") is KINDS["microdata by marginals"]
    assert kind_named("microdata", "bootstrap") is KINDS["microdata"]
    assert kind_named("table", "gaussian") is KINDS["table"]


@EACH
def test_its_files_are_whole(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    product, raw, derived = released(name, kind)
    assert kind_of(product).core.name == kind
    kind_of(product).rehearse(tmp_path, product, PUBLISH)
    assert files(tmp_path) == set()  # nothing is left of it
    written: list[int] = []
    write_product(tmp_path, product, derived, PUBLISH, written.append)
    profiles, rows = profile_product(tmp_path, product, derived, PUBLISH)
    assert (
        set(profiles)
        == set(rows)
        == {
            form.path(tmp_path, suffix).name
            for form in kind_of(product).forms(product)
            for suffix in FORMATS
        }
    )
    for file, profile in profiles.items():
        assert profile.pop("rows") == rows[file]
        assert profile
        assert not any(profile.values()), f"{file}: {profile}"
    resources = resources_of(product, PUBLISH)
    data = {path for path in files(tmp_path) if path.startswith("data/")}
    assert {each["path"] for each in resources} == data
    assert len({each["name"] for each in resources}) == len(resources)
    json.dumps([resources, kind_of(product).stated(product, raw)], allow_nan=False)


@EACH
def test_a_changed_file_is_seen(name: str, kind: str, tmp_path: Path) -> None:
    """Twins: a row too many, and a value that is not declared or was not derived."""
    (tmp_path / "data").mkdir()
    product, _, derived = released(name, kind)
    write_product(tmp_path, product, derived, PUBLISH, lambda rows: None)
    form = kind_of(product).forms(product)[0]
    path = form.path(tmp_path, "csv")
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)

    def seen(text: str) -> bool:
        path.write_text(text)
        try:
            profile = kind_of(product).profile_table(form, product, derived, path)
        except (KeyError, ValueError):  # the gate stops at it
            return True
        return profile.pop("rows") != kind_of(product).rows(form, product, derived) or any(
            profile.values()
        )

    assert not seen(whole)
    assert seen(whole + lines[-1])
    assert seen(whole.replace(lines[0], lines[0].upper()))
    values = lines[1].rstrip("\n").split(",")
    changed = [[*values[:i], "987654", *values[i + 1 :]] for i in range(len(values))]
    assert any(seen("".join([lines[0], ",".join(row) + "\n", *lines[2:]])) for row in changed)


@EACH
def test_a_reader_is_told_of_it(name: str, kind: str, tmp_path: Path) -> None:
    plan = planned(name, kind)
    (product,) = plan.products
    advice = kind_of(product).advice(product, plan)
    assert advice.startswith("- `p`")
    assert "\n" not in advice
    assert all(note.strip() for note in kind_of(product).notes([product]))
    assert kind_of(product).size(product) > 0
    assert kind_of(product).excerpt(tmp_path, "p") is None or not files(tmp_path)
    ((family, members),) = families([product])
    assert family.family == kind_of(product).family
    assert members == [product]
    forms: list[TableForm] = list(kind_of(product).forms(product))
    assert len({form.stem for form in forms}) == len(forms)
    assert all(form.fields and form.stem.startswith("p") for form in forms)
