"""The small charts of a series' page: scales, gaps, breaks, words; and how large a page gets."""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statpress.mechanisms.domain.columns import Categorical
from statpress.mechanisms.errors import StatpressError
from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.pages.blocks import Page, Section, Trend, Trends
from statpress.tasks.pages.charts import Panel, figures, panels
from statpress.tasks.pages.numbers import share
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.distributions import Reading, TrackedFigure, tracked_shares
from statpress.tasks.products.publication import describe_column
from statpress.tasks.report.series_data import (
    Break,
    SeriesBundle,
    SeriesData,
    changed,
)
from statpress.tasks.report.series_page import series_files, series_page

MOST_BYTES = 3_000_000


def trends(*lines: Trend, n: int = 4, **more: Any) -> Trends:
    return Trends("Title", [f"2026-0{k + 1}" for k in range(n)], lines, share, **more)


def banded(values: list[float | None], reach: float = 0.01) -> Trend:
    lower = [None if v is None else v - reach for v in values]
    upper = [None if v is None else v + reach for v in values]
    return Trend("north", values, lower, upper, banded=[v is not None for v in values])


def paths(panel: Panel) -> dict[str, str]:
    return dict(re.findall(r'<path class="(\w+)" d="([^"]*)"/>', str(panel.drawing)))


def test_a_gap_ends_line_and_band_and_a_lone_value_is_a_dot_with_a_whisker() -> None:
    (panel,) = panels(trends(banded([0.1, 0.2, None, 0.3])))
    drawn = paths(panel)
    assert re.findall(r"[ML](\d+) ", drawn["line"]) == ["5", "15"]
    assert re.findall(r"[ML](\d+) ", drawn["band"]) == ["5", "15", "15", "5"]
    assert re.findall(r"M(\d+) ", drawn["dots"]) == ["5", "15", "35"]
    assert re.findall(r"M(\d+) ", drawn["whiskers"]) == ["35"]
    assert panel.words == "north: 10 % in 2026-01, 30 % in 2026-04; no figure in 2026-03."
    assert panel.latest == "30 %"


def test_a_cut_ends_a_line_and_a_mark_does_not() -> None:
    (cut,) = panels(trends(banded([0.1, 0.2, 0.3, 0.4]), cuts={2}, marks={2, 3}))
    drawn = paths(cut)
    assert re.findall(r"([ML])(\d+) ", drawn["line"]) == [
        ("M", "5"), ("L", "15"), ("M", "25"), ("L", "35"),
    ]  # fmt: skip
    assert drawn["break"] == "M20 0V300M30 0V300"


def test_heights_are_those_of_the_scale() -> None:
    (panel,) = panels(trends(banded([0.1, 0.2, 0.3, 0.4]), most=1.0))
    low, high = (float(text.removesuffix(" %")) / 100 for text in (panel.low, panel.high))
    assert low <= 0.09 and high >= 0.41
    heights = [int(y) for y in re.findall(r"[ML]\d+ (\d+)", paths(panel)["line"])]
    expected = [300 * (high - value) / (high - low) for value in (0.1, 0.2, 0.3, 0.4)]
    assert heights == pytest.approx(expected, abs=0.5)
    ends = [int(y) for y in re.findall(r"[ML]\d+ (\d+)", paths(panel)["band"])]
    assert ends[0] == pytest.approx(300 * (high - 0.11) / (high - low), abs=0.5)


def test_scales_of_shares_are_equally_long_and_stay_possible() -> None:
    shown = panels(trends(banded([0.97, 0.98]), banded([0.02, 0.15]), banded([0.5, 0.5]),
                          n=2, most=1.0))  # fmt: skip
    ends = [[float(t.removesuffix(" %")) for t in (each.low, each.high)] for each in shown]
    assert len({round(high - low, 9) for low, high in ends}) == 1
    assert all(0 <= low < high <= 100 for low, high in ends)
    own = panels(trends(banded([0.97, 0.98]), banded([0.02, 0.15]), n=2, shared=False))
    assert own[0].low != own[1].low and own[0].low >= "95 %"  # each as narrow as it can be


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [None, None], [5e-14, 7e-14], [38.0, 38.0 + 1e-14], [1e300, -1e300]]
)
def test_any_values_have_a_scale(values: list[float | None]) -> None:
    (panel,) = panels(Trends("t", ["a", "b"], [Trend("x", values)], str))
    assert "nan" not in str(panel.drawing) and "inf" not in str(panel.drawing)


def test_an_interval_without_an_end_goes_to_the_edge_and_says_so() -> None:
    line = Trend("x", [1.0, 2.0], [None, 1.5], [1.5, None], banded=[True, True])
    drawn = Trends("t", ["a", "b"], [line], lambda x: f"{x:g}")
    (panel,) = panels(drawn)
    assert paths(panel)["band"].endswith("L5 300Z")
    assert [row[1] for row in figures(drawn).rows] == ["1 (up to 1.5)", "2 (from 1.5)"]


def test_no_word_of_a_config_can_be_markup() -> None:
    evil = '"><script>alert(1)</script>'
    block = Trends(evil, [evil, "b"], [Trend(evil, [0.1, 0.2])], share, note=evil)
    page = rendered(Page("t", [Section("s", "S", [block])]))
    assert "<script" not in page and "script-src" not in page
    assert "&lt;script&gt;" in page


def field(**more: Any) -> dict[str, Any]:
    column = Categorical(name="a", categories=("x", "y"))
    declared = json.loads(json.dumps(describe_column(column)))  # as it is read back
    return {"name": "a", "declared": declared, **more}


def test_what_changed_of_a_column_is_said() -> None:
    assert changed(field(), field()) is None
    assert changed(field(title="A"), field(title="B")) == ("Its title changed.", False)
    assert changed(field(unit="EUR"), field(unit="kEUR")) == (
        'Its unit was "EUR" and is "kEUR".', True,
    )  # fmt: skip
    other = field()
    other["declared"] = {**other["declared"], "categories": ["y", "z"], "missing": True}
    words, cuts = changed(field(), other) or ("", False)
    assert cuts
    assert "New values: 'z'. No longer there: 'x'." in words
    assert "'missing' was false and is true." in words
    turned = field()
    turned["declared"] = {**turned["declared"], "categories": ["y", "x"]}
    one = field()
    one["declared"] = {**one["declared"], "categories": ["x", "y"]}
    assert changed(one, turned) == ("Its values are in another order.", False)
    labels = [{"value": "x", "label": "ex"}], [{"value": "x", "label": "iks"}]
    assert changed(*(field(categories=each) for each in labels)) == (
        "New words for the values 'x'.", False,
    )  # fmt: skip


def made_up(n_periods: int, n_columns: int = 14, n_values: int = 12) -> SeriesData:
    """A series without files: so many columns with so many values each."""
    columns = [
        Categorical(name=f"column{k}", categories=tuple(f"value {v}" for v in range(n_values)))
        for k in range(n_columns)
    ]
    fields = {
        column.name: {"name": column.name, "declared": describe_column(column)}
        for column in columns
    }
    life = {
        "limit": {"epsilon": "10"}, "spent": {"epsilon": "1"}, "remaining": {"epsilon": "9"},
    }  # fmt: skip
    privacy = {
        "products": {"people": {"columns": list(fields)}}, "lifetime": life, "epsilon": "1",
    }  # fmt: skip
    bundles = []
    for number in range(n_periods):
        period = SeriesPeriod.at(24_000 + number, "month")
        publication = SimpleNamespace(
            folder=Path("none"), privacy=privacy, package={"resources": []}, created=None
        )
        manifest = {"dataset": "d", "created": "2026-01-01T00:00:00Z", "seal": "0" * 64}
        config = {
            "title": "T {period}",
            "series": {
                "name": "s",
                "period": {"by": "month", "first": "2000-01"},
                "current": str(period),
            },
        }
        bundle = SeriesBundle(f"{period}/b", period, manifest, config, publication)  # type: ignore[arg-type]
        value = 1 / n_values + 0.001 * (number % 7)
        reading = Reading.of(value, value - 0.0123456, value + 0.0123456, 0.0061728)
        found: list[TrackedFigure] = []
        for column in columns:
            found += tracked_shares([column], [fields[column.name]], lambda _, r=reading: r)
        vars(bundle).update(columns=fields, figures={"people": found})
        bundles.append(bundle)
    return SeriesData(bundles, {bundle.period: [] for bundle in bundles}, {})


def test_two_years_of_fourteen_columns_are_a_small_page() -> None:
    page = series_page(made_up(24), ["series.csv"], pictures=True)
    assert page.count("<svg") == 14 * 12 + 1
    assert len(page.encode()) < MOST_BYTES
    print(f"{len(page.encode()):,} bytes")


def calls(data: SeriesData) -> int:
    """How many functions are called to make the page and the file."""
    count = 0

    def seen(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(seen)
    try:
        series_page(data, ["series.csv"], pictures=True)
        data.csv_text()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_is_linear_in_the_periods() -> None:
    made = {n: made_up(n, 3, 4) for n in (12, 24, 96)}
    calls(made[12])  # templates are read once
    few, twice, many = (calls(made[n]) for n in made)
    assert twice < many
    assert (many - few) / (96 - 12) == pytest.approx((twice - few) / 12, rel=0.1)


def test_a_break_belongs_to_the_period_from_which_it_holds() -> None:
    data = made_up(3, 1, 2)
    later = dict(data.bundles[1].columns["column0"])
    later["declared"] = {**later["declared"], "missing": True}
    for bundle in data.bundles[1:]:
        vars(bundle)["columns"] = {"column0": later}
    (found,) = data.breaks
    assert isinstance(found, Break) and found.period == data.bundles[1].period and found.cuts
    assert [row["definition"] for row in data.rows()] == [1, 1, 2, 2, 2, 2]
    assert datetime.date(2000, 2, 1) == found.period.start


def test_a_line_that_ended_says_when() -> None:
    (panel,) = panels(trends(banded([0.1, 0.2, None, None])))
    assert panel.latest == "20 % in 2026-02"


def test_a_figure_without_an_interval_has_no_band_and_one_without_ends_the_whole_chart() -> None:
    data = made_up(2, 1, 2)
    for bundle, confidence in zip(data.bundles, (None, 0.9), strict=True):
        reading = Reading.of(0.5, float("-inf"), float("inf"), None)
        figure = TrackedFigure("mean", (), "mean", reading, confidence, "population")
        vars(bundle)["figures"] = {"people": [figure]}
    page = series_page(data, ["series.csv"], pictures=True)
    assert '<path class="whiskers" d="M15 300V0"/>' in page and 'class="band"' not in page
    assert "<td>0.5 (without ends)</td>" in page and '<td class="number">0.5</td>' in page
    assert "mean (90 % interval)" in page
    rows = list(data.rows())
    assert [row["confidence"] for row in rows] == [None, 0.9]


def test_a_series_without_such_figures_has_a_page_of_its_budget_and_releases() -> None:
    data = made_up(2, 0)
    data.newest.config["publish"] = {"sdmx": True}  # type: ignore[index]
    files = dict(series_files(data))
    assert list(files) == ["series.csv", "datapackage.json", "series.html"]
    assert files["series.html"].count("<svg") == 1 and "2 of 2" in files["series.html"]


def test_places_without_outlines_are_not_read_for_a_map() -> None:
    """There may be a million of them. The twin has outlines, and is read."""
    stated = {"kind": "table", "mechanism": "place_tables", "geography": {"levels": ["a"]}}
    for fields, is_read in (([{"name": "place"}], False), ([{"name": "outline"}], True)):
        resource = {"product": "p", "schema": {"fields": fields}}
        publication: Any = SimpleNamespace(
            folder=Path("none"),
            privacy={"products": {"p": stated}},
            package={"resources": [{"product": "p"}, resource]},
        )
        bundle = SeriesBundle("b", SeriesPeriod.at(24_000, "month"), {}, {}, publication)
        if is_read:
            with pytest.raises(StatpressError):
                bundle.maps  # noqa: B018
        else:
            assert bundle.maps == {}
