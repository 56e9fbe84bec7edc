"""What the report's explorer is fed, and the relations that its front tells."""

from __future__ import annotations

import datetime
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coded import CodesInMemory, WithoutNoise, domain_of
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric, Ordinal
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import NoisyMarginals
from statpress.mechanisms.mechanism import Target
from statpress.tasks.bundle.rows import code_rows, write_rows
from statpress.tasks.pages.blocks import Explorer, HeatMap, Page, Section
from statpress.tasks.pages.charts import svg
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products import explorer as module
from statpress.tasks.products.distributions import Distribution, display_order, joint_chart
from statpress.tasks.products.explorer import read_codes

COLUMNS: tuple[Column, ...] = (
    Categorical(name="sort", categories=("a", "b"), other=True, missing=True),
    Integer(name="age", lower=0, upper=29, width=10, special=(7,)),
    Numeric(name="pay", edges=(0.0, 1.5, 9.0, 20.0), missing=True),
    Date(name="born", first=datetime.date(2001, 1, 1), last=datetime.date(2004, 12, 31), by="year"),
)
N = 40_000


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("spread", [False, True])
def test_codes_of_records_are_read_back(suffix: str, spread: bool, tmp_path: Path) -> None:
    domain, rng = Domain(COLUMNS), np.random.default_rng(3)
    codes = [rng.integers(0, column.size, 500) for column in COLUMNS]
    within = (lambda: np.random.default_rng(1)) if spread else None
    path = tmp_path / f"people.{suffix}"
    write_rows(code_rows(domain, codes, within), path)
    for every in (1, 7):
        found = read_codes(path, domain, spread=spread, every=every)
        assert [each.tolist() for each in found] == [own[::every].tolist() for own in codes]


def test_charts_have_the_declared_order_or_that_of_sizes() -> None:
    counts = np.array([1.0, 5.0, 3.0, 9.0])
    same: dict[str, Any] = {"name": "c", "missing": True}

    def order(column: Column) -> list[int]:
        return display_order(Distribution(column, {}, counts, None))

    assert order(Categorical(categories=("a", "b", "c"), **same)) == [1, 2, 0, 3]
    assert order(Ordinal(categories=("a", "b", "c"), **same)) == [0, 1, 2, 3]
    assert order(Categorical(categories=(1994, 1996, 1998), **same)) == [0, 1, 2, 3]
    assert order(Integer(lower=0, upper=2, **same)) == [0, 1, 2, 3]
    assert order(Categorical(categories=("a", "b"), other=True, **same)) == [1, 0, 2, 3]


def survey(sizes: tuple[int, ...], *, noise: bool = True, groups: Any = ()) -> NoisyMarginals:
    """Tables of records whose second column follows the first for half of them."""
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, k, N) for k in sizes]).astype(np.uint8)
    follow = rng.random(N) < 0.5
    codes[1, follow] = codes[0, follow] % sizes[1]
    domain = domain_of(sizes)
    target = Target(epsilon=1.0, delta=1e-6, n_records=N, n_cells=2, domain=domain)
    mechanism = Marginals.calibrate(MarginalsKnobs(screen="no"), target)
    from estimating import seeded

    table = CodesInMemory(domain, N, tuple(codes))
    return mechanism.release(table, seeded(5) if noise else WithoutNoise())


def fields_of(release: NoisyMarginals, **labels: str) -> dict[str, dict[str, Any]]:
    return {name: {"name": name, "label": labels.get(name)} for name in release.domain.names}


def test_the_relation_that_there_is_is_told_with_the_interval_of_a_query() -> None:
    release = survey((2, 3, 4))
    residuals = release.residuals()
    found = module.relations(
        release, residuals, fields=fields_of(release, c0="Sex & age"), columns=["c0", "c1", "c2"]
    )
    assert found is not None
    (relation,) = found.rows  # and no other, though three pairs were measured
    assert relation.address == "cols=c1,c0"
    match = re.fullmatch(
        r"Where Sex &amp; age is <em>(\d)</em>, c1 is <em>(\d)</em> for <strong>(.*)</strong>; "
        r"where it is <em>(\d)</em>, for (.*)\.",
        str(relation.sentence),
    )
    assert match
    group, value, share, other, rest = match.groups()
    assert {group, other} == {"0", "1"} and group == value
    analyses = Analyses(domain=release.domain, residuals=residuals)
    for code, words, bar in zip((group, other), (share, rest), relation.shares, strict=True):
        interval = analyses.share("c1", [int(value)], {"c0": [int(code)]})
        assert words == module._in_words(interval)
        assert (bar.value, bar.lower, bar.upper) == (interval.value, interval.lower, interval.upper)
    assert analyses.share("c1", [int(value)], {"c0": [int(group)]}).value > 0.6


def test_nothing_is_told_of_columns_that_have_nothing_to_do_with_each_other() -> None:
    release = survey((2, 3, 4))
    found = module.relations(
        release, release.residuals(), fields=fields_of(release), columns=["c0", "c2"]
    )
    assert found is None


def fed(release: NoisyMarginals, tmp_path: Path, **changes: Any) -> Explorer:
    residuals = release.residuals()
    names = release.domain.names
    people = tmp_path / "people.csv"
    codes: list[NDArray[Any]] = [np.arange(50) % column.size for column in release.domain.columns]
    people.unlink(missing_ok=True)
    write_rows(code_rows(release.domain, codes), people)
    given: dict[str, Any] = {
        "fields": fields_of(release),
        "stated": {"n_records": N, "published_records": 0, "score_scale": None},
        "pairs": [
            {"column_1": a, "column_2": b, "relation": "assumed independent"}
            for a, b in itertools.combinations(names, 2)
        ],
        "columns": {
            name: Distribution(column, {}, residuals.table((place,)), None)
            for place, (name, column) in enumerate(zip(names, release.domain.columns, strict=True))
        },
        "records": people,
    }
    found = module.explorer("people", release, residuals, **given | changes)
    assert found is not None
    return found


def test_tables_have_the_variances_that_their_errors_follow_from(tmp_path: Path) -> None:
    release = survey((2, 3, 4))
    residuals = release.residuals()
    data = fed(release, tmp_path).data
    assert data["tables"].keys() == {"", "0", "1", "2", "0,1", "0,2", "1,2"}
    assert data["unmeasured"] == {}
    for key, cells in data["tables"].items():
        group = tuple(int(each) for each in key.split(",") if each)
        assert cells == pytest.approx(residuals.table(group).ravel().tolist(), abs=1e-5)
        assert data["variances"][key] == residuals.variances[group]
    assert [len(each) for each in data["records"]] == [50] * 3
    assert data["scale"] == N / 50


def test_what_a_page_has_no_room_for_is_said(tmp_path: Path) -> None:
    release = survey((2, 3, 41))
    data = fed(release, tmp_path).data
    assert data["left"] == ["c2"] and [each["name"] for each in data["columns"]] == ["c0", "c1"]
    release = survey((2, 3, 4))
    data = fed(release, tmp_path, most_cells=18).data  # of (2), (3), (4), the sum, and one pair
    assert "0,1" in data["tables"] and "0,2" not in data["tables"]
    assert data["unmeasured"] == {"0,2": "large", "1,2": "large"}
    apart = replace(release, tables=release.tables[:1])
    rows = [
        {"column_1": "c0", "column_2": "c2", "relation": "measured elsewhere"},
        {"column_1": "c1", "column_2": "c2", "relation": "assumed independent"},
    ]
    data = fed(apart, tmp_path, pairs=rows).data
    assert data["unmeasured"] == {"0,2": "elsewhere", "1,2": "assumed"}
    assert data["origins"].keys() >= {"measured", "pairs", *data["unmeasured"].values()}


def test_many_records_are_thinned(tmp_path: Path) -> None:
    data = fed(survey((2, 3, 4)), tmp_path, most_codes=3 * N // 10).data
    assert [len(each) for each in data["records"]] == [5] * 3
    assert data["scale"] == N / 5


def test_colours_tell_more_records_from_fewer_than_of_unrelated_columns() -> None:
    sides = [
        Distribution(Categorical(name=name, categories=("a", "b")), {"name": name}, half, None)
        for name, half in (("x", np.array([50.0, 50.0])), ("y", np.array([60.0, 40.0])))
    ]
    counts = np.array([[35.0, 15.0], [25.0, 25.0]])
    chart = joint_chart(*sides, counts, signed=True)
    assert chart is not None and isinstance(chart.drawing, HeatMap)
    assert chart.drawing.values == [[5.0, -5.0], [-5.0, 5.0]]
    assert chart.data.rows[0] == ("a", "a", "35")
    drawn, plain = svg(chart.drawing, number=1), joint_chart(*sides, counts)
    assert "var(--series-1)" in drawn and "var(--series-2)" in drawn
    assert plain is not None and "var(--series-2)" not in svg(plain.drawing, number=1)


def test_no_text_of_the_data_can_end_its_element() -> None:
    data = {"title": "</script><script>alert(1)</script>"}
    page = Page("Title", [Section("a", "A", [Explorer(data, "Nothing.")])])
    shown = rendered(page)
    assert "</script><script>" not in shown.replace("</script>\n<script>", "")
    assert "\\u003c/script>" in shown
    assert "<script" not in rendered(page, pictures=False)
