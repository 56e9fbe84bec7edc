"""What a report computes from public figures: strengths, trade-offs, bands, names of cells."""

from __future__ import annotations

import datetime
import html
import re
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Date, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.functions.bernstein import FunctionRelease
from statpress.mechanisms.functions.function_targets import FunctionKnobs
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.postprocessing.covariance import strength
from statpress.mechanisms.tables.count_tables import TableMechanism
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.mechanisms.tables.two_resolutions import TwoResolutions
from statpress.tasks.catalogues.data_package import column_facts
from statpress.tasks.pages.blocks import (
    Bars,
    Chart,
    Curves,
    Gallery,
    Grid,
    HeatMap,
    Line,
    Page,
    Section,
    link,
    marked,
)
from statpress.tasks.pages.charts import svg
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.count_product import table_blocks
from statpress.tasks.products.distributions import Distribution, cell_names, places
from statpress.tasks.products.function_product import noise_sd
from statpress.tasks.products.marginal_product import _pairs, list_of_pairs
from statpress.tasks.products.product_kind import ReportPart
from statpress.tasks.products.published_counts import EstimatedTable
from statpress.tasks.release.entropy import SeededRandomness
from statpress.tasks.report.report import PublicWords, columns_grid, contents

RELATED = np.array([[400.0, 100.0, 50.0], [50.0, 300.0, 100.0]])
SD = 12.0


def test_strength_is_that_of_cramer_where_there_is_no_noise() -> None:
    from scipy.stats.contingency import association

    assert strength(RELATED, 0.0) == pytest.approx(association(RELATED.astype(int), "cramer"))
    assert strength(np.diag([10.0, 20.0, 30.0]), 0.0) == pytest.approx(1)
    assert strength(np.outer([10.0, 20.0], [1.0, 2.0, 3.0]), 0.0) == pytest.approx(0, abs=1e-6)
    assert strength(np.ones((1, 4)), 0.0) == strength(-np.ones((2, 2)), 1.0) == 0


def test_noise_by_itself_is_no_relation() -> None:
    rng = np.random.default_rng(5)
    independent = np.outer(RELATED.sum(1), RELATED.sum(0)) / RELATED.sum()
    noisy = [independent + SD * rng.standard_normal((2, 3)) for _ in range(400)]
    taken_off = np.mean([strength(each, SD**2) ** 2 for each in noisy])
    left_on = np.mean([strength(each, 0.0) ** 2 for each in noisy])  # twin
    assert taken_off < 0.3 * left_on
    real = [strength(RELATED + SD * rng.standard_normal((2, 3)), SD**2) for _ in range(400)]
    assert np.mean(real) == pytest.approx(strength(RELATED, 0.0), abs=0.01)


@pytest.mark.parametrize(("rows", "columns", "sd"), [(2, 2, 20.0), (5, 5, 10.0), (30, 30, 10.0)])
def test_what_noise_alone_shows_is_rarely_a_relation(rows: int, columns: int, sd: float) -> None:
    rng = np.random.default_rng(8)
    shares = rng.dirichlet(np.full(rows, 5.0)), rng.dirichlet(np.full(columns, 5.0))
    independent = 2000 * np.outer(*shares)
    noisy = [independent + sd * rng.standard_normal((rows, columns)) for _ in range(400)]
    assert np.mean([strength(each, sd**2) > 0 for each in noisy]) <= 0.03
    related = independent.copy()
    np.fill_diagonal(related, independent.diagonal() + 1500 / min(rows, columns))
    assert strength(related + sd * rng.standard_normal((rows, columns)), sd**2) > 0


def test_the_band_of_a_function_is_the_spread_of_released_ones() -> None:
    domain = Domain((Numeric(name="x", edges=(0.0, 1.0, 2.0, 4.0)),))
    asked = Target(epsilon=2.0, delta=0.0, n_records=500, n_cells=3, domain=domain)
    said = FunctionKnobs(target="kde", bandwidth=0.3, degree=4, order=3)
    mechanism = FunctionRelease.calibrate(said, asked)
    table = ContingencyTable(domain, np.array([1]), np.array([500]))
    rng, at = SeededRandomness(np.random.PCG64(2)), np.array([0.0, 1.3, 2.0, 4.0])
    curves = [mechanism.function(mechanism.release(table, rng)) for _ in range(600)]
    spread = np.std([curve(at) for curve in curves], axis=0)
    sd = mechanism.noise_sd * curves[0].factor / mechanism.factor
    np.testing.assert_allclose(spread, noise_sd(4, 3, sd, at / 4), rtol=0.15)


SQUARE = Domain(tuple(Integer(name=name, lower=0, upper=19) for name in "ab"))
FIELDS = [{"name": name} for name in "ab"]


def released(mechanism: TableMechanism, seed: int) -> EstimatedTable:
    """Of one record in each of 400 cells, so that noise alone decides which is the largest."""
    ones = ContingencyTable(SQUARE, np.arange(400), np.ones(400, np.int64))
    raw = mechanism.release(ones, SeededRandomness(np.random.PCG64(seed)))
    found = mechanism.postprocess(raw, n_records=400)
    return EstimatedTable(
        SQUARE, FIELDS, found.cells, found.estimates, found.standard_errors,
        unlisted=0.0, n_records=400, unbiased=True,
        covariance=mechanism.covariance(n_records=400, n_cells=400),
    )  # fmt: skip


def test_the_count_of_the_summary_is_as_sure_as_it_says() -> None:
    """Its 95 % hold for a cell that is not chosen for its estimate."""
    tables = [released(GaussianTable(Fraction(10)), seed) for seed in range(200)]
    figures = [table_blocks(table)[1] for table in tables]
    shown = [re.findall(r"[-−]?[0-9.]+", str(each.value)) for each in figures if each is not None]
    estimates, reaches = (
        np.array([float(row[k].replace("−", "-")) for row in shown]) for k in (0, 1)
    )
    assert 0.9 <= np.mean(np.abs(estimates - 1) <= reaches) <= 0.99
    largest = np.array([table.estimates.max() for table in tables])  # twin
    assert np.mean(np.abs(largest - 1) <= reaches) < 0.05


def test_a_table_whose_cells_have_errors_says_that_its_whiskers_mean_them() -> None:
    blocks, _ = table_blocks(released(TwoResolutions(Fraction(10), 20), 1))
    said = str(blocks[0])
    assert "Whiskers hold" in said
    assert "no whiskers" not in said


def test_a_relation_weaker_than_its_noise_is_not_said_to_be_none() -> None:
    """Over many cells much less than the noise of one is seen for certain."""
    rng, k, sd = np.random.default_rng(3), 40, 20.0
    deviation = rng.choice([-0.6 * sd, 0.6 * sd], (k, k))
    counts = 30 + deviation + sd * rng.standard_normal((k, k))
    found = strength(counts, sd**2)
    assert found > 0.01
    row = {"column_1": "a", "column_2": "b", "relation": "shrunk away", "standard_error": sd}
    side = Distribution(Integer(name="a", lower=0, upper=k - 1), {"name": "a"}, counts[0], None)
    section = _pairs("p", [row], {("a", "b"): counts}, {"a": side, "b": side}, ["a", "b"])
    said = str(section.blocks)
    assert f"{found:.2f}" in said
    assert "nothing but noise" not in said
    assert "lost in its noise" in said


def test_cells_are_named_as_a_person_reads_them() -> None:
    sex = Categorical(name="sex", categories=(0, 1), other=True, missing=True)
    labels = [{"value": 0, "label": "men"}, {"value": 1, "label": "women"}]
    assert cell_names(sex, {"categories": labels}) == ["men", "women", "other", "missing"]
    assert cell_names(sex, {}) == ["0", "1", "other", "missing"]
    age = Integer(name="age", lower=0, upper=19, width=10)
    assert cell_names(age, {}) == ["0 to 9", "10 to 19"]
    born = Date(
        name="born", first=datetime.date(1999, 6, 1), last=datetime.date(2001, 1, 1), by="year"
    )
    assert cell_names(born, {}) == ["1999", "2000", "2001"]
    starts = places(born)
    assert starts is not None and starts.tolist() == [1999, 2000, 2001, 2002]
    assert places(sex) is None


def page_of(*charts: Chart) -> Page:
    return Page("<Pay>", [Section("one", "One", charts)])


def test_a_page_escapes_and_draws_the_same_again_whatever_the_user_has_set() -> None:
    import matplotlib as mpl

    names = ["$\\frac", "<b>é", "年収 and a name that is far too long for any axis"]
    data = Grid(("value", "records"), [("a", "1,234")], title="Figures", folded=True)
    bars = Chart("a & b", Bars(names, [1.0, -2.0, 3.0], [0, None, 2], [2, None, 4]), "w", data)
    heat = Chart("map", HeatMap(["r"], ["c", "d"], [[None, 2.0]], marked="none"), "w", data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = rendered(page_of(bars, heat))
    with mpl.rc_context({"text.usetex": True, "svg.fonttype": "path"}):
        assert rendered(page_of(bars, heat)) == text
        assert mpl.rcParams["text.usetex"]
    assert "&lt;Pay&gt;" in text and "<b>" not in text and "&lt;b&gt;é" in text
    assert "年収" in text and "script-src" not in text and "#0000" not in text
    ids = [part.split('"')[0] for part in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    without = rendered(page_of(bars), pictures=False)
    assert "<svg" not in without and "1,234" in without


def test_marks_and_links_let_no_words_of_a_config_through() -> None:
    assert (
        str(marked("*so* **54** `<i>`")) == "<em>so</em> <strong>54</strong> <code>&lt;i&gt;</code>"
    )
    assert str(link("javascript:alert(1)", "<x>")) == "&lt;x&gt;"
    assert str(link('https://a/"b', "x")) == '<a href="https://a/&#34;b">x</a>'


def test_a_chart_that_cannot_be_drawn_leaves_its_words_and_figures() -> None:
    """It is drawn when the release is charged already."""
    far = Curves([Line("", [-8e307, 0.0, 8e307], [1.0, 2.0, 3.0], stepped=True)], "x", "records")
    figures = Grid(("x", "records"), [("-8e307", "1,234")], title="Figures", folded=True)
    chart = Chart("As far as floats reach", far, "Steps from here to there.", figures)
    with pytest.warns(UserWarning, match="a chart is not drawn"):
        page = rendered(Page("p", [Section("s", "S", [chart])]))
    assert "<svg" not in page
    assert "<p>Steps from here to there.</p>" in page
    assert "1,234" in page


def test_a_label_that_looks_like_what_charts_are_written_in_stays_as_it_is() -> None:
    labels = ["#000001", 'id="x', "url(#x)", "font: 'DejaVu Sans'", "$x$"]
    drawn = svg(Bars(labels, [1.0] * 5, axis="records"), number=7)
    shown = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]
    assert set(labels) <= set(shown)
    assert "#0000" not in re.sub(r">[^<]*<", "><", drawn)


@pytest.mark.parametrize(
    ("label", "points"), [("how_often_did_you_in_the_last_twelve_months", 124), ("大阪府" * 6, 153)]
)
def test_labels_of_charts_have_the_room_that_they_take(label: str, points: float) -> None:
    drawn = svg(Bars([label], [9_500.0], upper=[10_000.0], axis="records"), number=1)
    end = re.search(rf'x="([\d.]+)"[^>]*>{label[:12]}', drawn)
    assert end is not None and float(end[1]) >= points
    width = re.search(r'viewBox="0 0 ([\d.]+)', drawn)
    tick = re.search(r'x="([\d.]+)"[^>]*>10,000', drawn)
    assert width is not None
    assert tick is None or float(tick[1]) + 15 <= float(width[1])


def test_categories_that_are_numbers_keep_their_labels_beside_others() -> None:
    """With `other` the files hold text, and the labels are of text."""
    labels = [{"value": "1", "label": "agree"}, {"value": "2", "label": "disagree"}]
    declared = {"kind": "categorical", "name": "q", "missing": False, "other": True,
                "categories": [1, 2]}  # fmt: skip
    field = {"name": "q", "type": "string", "categories": labels, "declared": declared}
    (found,) = column_facts({"columns": [field], "resources": []})
    assert found.categories == (("1", "agree"), ("2", "disagree"))


def test_the_columns_of_a_report_name_labels_and_others() -> None:
    declared = {"kind": "categorical", "name": "q", "missing": True, "other": True,
                "categories": ["a", "b"]}  # fmt: skip
    package = {"columns": [{"name": "q", "declared": declared}], "resources": []}
    grid = columns_grid(package)
    assert grid is not None
    assert grid.rows[0][-1] == "a; b; or other; or missing"


def test_a_report_lists_every_file_of_a_product() -> None:
    """Three tables in four formats are twelve files."""
    paths = [f"data/p{part}.{form}" for form in ("parquet", "csv", "dta", "sav")
             for part in ("", "_tables", "_pairs")]  # fmt: skip
    resources = [{"path": path, "product": "p", "bytes": 1} for path in paths]
    stated = {"products": {"p": {}}, "n_records": 5, "n_units": 5, "unit": "record",
              "attack_advantage": 0.1, "epsilon": "1", "delta": "0"}  # fmt: skip
    manifest = {"dataset": "d", "created": "2026-01-01T00:00:00+00:00", "run_id": "0" * 32}
    package = {"title": "T", "resources": resources}
    words = PublicWords(Path(), stated, package, manifest)
    part = ReportPart("records", Section("p", "P"))
    listed = contents(words, {"p": part})
    assert [path for path in paths if f'"{path}"' not in str(listed.rows[0][-1])] == []


def test_a_pair_of_which_the_records_hold_nothing_is_not_among_the_strongest() -> None:
    """Its noisy table may look related, and is not what the records are like."""
    noisy = np.diag([3_000.0, 2_500.0, -2_000.0])
    column = Categorical(name="a", categories=("x", "y", "z"))
    found = {
        name: Distribution(column, {"name": name}, np.ones(3), np.ones(3)) for name in ("a", "b")
    }

    def section(relation: str) -> Section:
        row = {"column_1": "a", "column_2": "b", "relation": relation, "standard_error": 90.0}
        return _pairs("p", [row], {("a", "b"): noisy}, found, ["a", "b"])

    shown = [str(block) for block in section("measured").blocks]
    assert any("The pairs most strongly related" in block for block in shown)
    assert len(section("shrunk away").blocks) == len(section("measured").blocks) - 2


def test_every_pair_that_is_lost_is_called_so_and_comes_last() -> None:
    """A pair may be measured, and its relation not clear of its noise."""
    facts = [("x", "weak", 0.02), ("y", "lost", 0.3), ("z", "strong", 0.4)]
    rows = [
        {"column_1": "a", "column_2": other, "relation": "measured", "kept": kept,
         "standard_error": 9.0}
        for other, kept, _ in facts
    ]  # fmt: skip
    strengths = {("a", other): known for other, _, known in facts}
    listed = list_of_pairs("p", rows, strengths).rows
    assert [row[1] for row in listed] == ["z", "x", "y"]
    assert [row[2] for row in listed] == ["measured", "measured", "measured; lost in its noise"]
    said = str(_pairs("p", rows, {}, {}, []).blocks[0])
    assert "Lost in noise: a and y." in said


def test_charts_can_be_folded_away() -> None:
    chart = Chart("one", Bars(["a"], [1.0]), "w", Grid(("a",), [("1",)]))
    page = Page("P", [Section("s", "S", [Gallery([chart], folded="Charts of the others")])])
    assert "<details><summary>Charts of the others</summary>" in rendered(page)
    assert rendered(page).count("<details>") == rendered(page).count("</details>") == 2
