"""The curator's report: its figures anew from the private table, and that nothing else has them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from acting import Acting, full_disk
from prepared import OFFICER

from statpress.configs.loading import load_order
from statpress.configs.order import Order, from_environment, from_options
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import UnknownKeyError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.pages.numbers import measured
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.products.true_errors import TrueErrors
from statpress.tasks.release import curator_report as report
from statpress.tasks.release.curator_report import BANNER, Frame, curator_page

RUN = "c" * 32
PRODUCTS = """\
products:
  fitted: {kind: microdata, share: 0.25, mechanism: marginals, columns: [region, age, pay],
    accept: mostly_independent}
  noisy: {kind: table, share: 0.25, mechanism: gaussian, columns: [age], bands: [cells, cumulative],
    accept: mostly_noise}
  centre: {kind: estimate, share: 0.25, statistic: mean, columns: [age], mechanism: joint_moments,
    accept: mostly_noise}
  curve: {kind: function, share: 0.25, target: kde, columns: [age], bandwidth: 0.3, degree: 4,
    order: 2,
    accept: mostly_noise}
"""
FULL = "File too large"


class Made:
    """A release with its report, or with what came of it."""

    def __init__(self, agency: Any, errors: list[dict[str, TrueErrors | None]]) -> None:
        self.agency, self.errors = agency, errors[0] if errors else {}
        self.page = agency.home.root / "curator" / f"{RUN}.html"
        self.log = (agency.home.root / "curator" / f"{RUN}.log").read_text()
        self.bundle = agency.releases / "first-NOT-PUBLISHABLE"

    def compared(self, product: str, what: str) -> Any:
        """The row of an error."""
        found = self.errors[product]
        assert found is not None
        (row,) = [row for row in found.compared if row.what == what]
        return row


def make(agency: Any, hear: Callable[[str], None] = lambda title: None) -> Made:
    """Press with a seed and an id of its own, as the config stands.

    Args:
        agency: Whose release it is.
        hear: Hears which step begins.
    """
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), RUN)
    errors: list[dict[str, TrueErrors | None]] = []
    honest = report.true_errors

    def kept(*given: Any) -> Any:
        errors.append(honest(*given))
        return errors[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "true_errors", kept)
        context = agency.context()
        context.listener = Acting({"report to curator": lambda: hear("report to curator")})
        run_release(context, Order(agency.config), insecure_seed=7)
    return Made(agency, errors)


def prepared(agency: Any) -> Any:
    agency.replace_products(PRODUCTS)
    agency.replace("epsilon: 1.0", "epsilon: 3.0")
    agency.replace("publish:", "curator: {report: true}\npublish:")
    agency.replace("formats: [parquet, csv]", "formats: [parquet]")
    return agency


@pytest.fixture(scope="module")
def agencies(
    founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Any]:
    folder = tmp_path_factory.mktemp("curator")

    def found(name: str) -> Any:
        (folder / name).mkdir()
        return prepared(founded(folder / name))

    return found


@pytest.fixture(scope="module")
def made(agencies: Callable[[str], Any]) -> Made:
    return make(agencies("with"))


def coded(table: Any) -> pd.DataFrame:
    """The records' cells as the config declares them, without the package's help."""
    frame = table.to_pandas()
    known = frame["region"].isin(["north", "south"]) | frame["region"].isna()
    region = frame["region"].where(known, "other").fillna("missing")
    pay = np.floor(frame["pay"].clip(0, 99.999) / 20)
    return pd.DataFrame({"region": region, "age": frame["age"] // 10, "pay": pay})


def distance(one: pd.DataFrame, two: pd.DataFrame, columns: list[str]) -> float:
    """Total variation of the shares of two tables of records."""
    first, second = (each.groupby(columns, dropna=False).size() / len(each) for each in (one, two))
    return float(first.sub(second, fill_value=0).abs().sum() / 2)


def recomputed(private: pd.DataFrame, bundle: Path) -> dict[str, float]:
    """Some true errors from private records and published files."""
    data = bundle / "data"
    fitted = pd.read_parquet(data / "fitted.parquet")
    published = pd.DataFrame(
        {
            "region": fitted["region"].fillna("missing"),
            "age": fitted["age"] // 10,
            "pay": np.floor(fitted["pay"] / 20),
        }
    )
    names = ["region", "age", "pay"]
    pairs = [["region", "age"], ["region", "pay"], ["age", "pay"]]
    noisy = pd.read_parquet(data / "noisy.parquet").set_index("age")
    counts = private.groupby("age").size().reindex(range(10), fill_value=0).to_numpy()
    shares = noisy["projected"].to_numpy() / noisy["projected"].sum()
    reach = 1.959964 * noisy["standard_error"].to_numpy()
    estimate = pd.read_parquet(data / "centre.parquet")
    middles = private["age"] * 10 + 4.5
    grid = np.linspace(0, 1, 201)
    kernel = np.exp(-(((grid[:, None] - _share(middles)) / 0.3) ** 2) / 2)
    density = kernel.mean(axis=1) / (0.3 * np.sqrt(2 * np.pi)) / 99
    return {
        "columns": float(np.mean([distance(private, published, [name]) for name in names])),
        "pairs": float(np.mean([distance(private, published, pair) for pair in pairs])),
        "noisy": float(np.abs(shares - counts / counts.sum()).sum() / 2),
        "inside": int((np.abs(noisy["estimate"].to_numpy() - counts) <= reach).sum()),
        "mean": float(abs(estimate["estimate"][0] - middles.mean())),
        "curve": float(np.abs(density - _released(bundle, grid)).max()),
    }


def _share(values: Any) -> Any:
    return values.to_numpy() / 99


def _released(bundle: Path, grid: Any) -> Any:
    """The published function by its formula."""
    facts = json.loads((bundle / "data" / "curve.json").read_text())
    k, found = facts["degree"], 0.0
    for v, coefficient in enumerate(facts["coefficients"]):
        choose = float(np.prod([(k - i) / (i + 1) for i in range(v)]))
        found = found + coefficient * choose * grid**v * (1 - grid) ** (k - v)
    return facts["factor"] * found


def said(made: Made) -> dict[str, str]:
    """The same figures as the report has them."""
    return {
        "columns": made.compared("fitted", "single columns, total variation, mean").true,
        "pairs": made.compared("fitted", "pairs of columns, total variation, mean").true,
        "noisy": made.compared("noisy", "all cells, total variation of the projected counts").true,
        "inside": made.compared("noisy", "all cells whose 95 % interval holds the count").true,
        "mean": made.compared("centre", "mean of age: noise, mean absolute").true,
        "curve": made.compared("curve", "largest error over the ranges").true,
    }


def as_said(found: dict[str, float]) -> dict[str, str]:
    words = {name: measured(value, 3) for name, value in found.items()}
    inside = int(found["inside"])
    return words | {"inside": f"{inside} of 10, {measured(inside * 10, 3)} %"}


def test_its_figures_are_those_of_the_private_table(made: Made) -> None:
    private = coded(pq.read_table(made.agency.source))
    assert said(made) == as_said(recomputed(private, made.bundle))


def test_figures_against_another_table_would_be_seen(made: Made) -> None:
    """Twin: the same release beside a table in which some records are others."""
    private = coded(pq.read_table(made.agency.source))
    private.loc[:60, ["region", "age", "pay"]] = ["other", 0, 0]
    found, stated = as_said(recomputed(private, made.bundle)), said(made)
    assert all(found[name] != stated[name] for name in stated.keys() - {"inside"})


def test_it_says_what_is_promised_and_whether_bands_and_intervals_hold(made: Made) -> None:
    plan = load_order(Order(made.agency.config)).plan()
    promised = {product.name: product.expected_error for product in plan.products}
    row = made.compared("fitted", "pairs of columns, total variation, mean")
    assert row.promised == measured(promised["fitted"].pair_total_variation, 3)
    assert made.compared("curve", "largest error over the ranges").promised == measured(
        promised["curve"].sup_error, 3
    )
    noisy = pd.read_parquet(made.bundle / "data" / "noisy_cumulative_band.parquet")
    reached = pq.read_table(made.agency.source)["age"].to_pandas().floordiv(10).value_counts()
    counts = reached.reindex(range(10), fill_value=0).cumsum().to_numpy()
    wrong = int(((counts < noisy["count_lower"]) | (counts > noisy["count_upper"])).sum())
    held = made.compared("noisy", "limits of noisy_cumulative_band that do not hold the count")
    assert held.true == f"{wrong} of 10"
    assert made.compared("centre", "intervals that hold the value of the records").true in (
        "0 of 1", "1 of 1",
    )  # fmt: skip


def test_the_page_is_marked_and_for_its_owner_alone(made: Made) -> None:
    assert made.page.stat().st_mode & 0o777 == 0o600
    assert made.page.parent.stat().st_mode & 0o777 == 0o700
    page = made.page.read_text()
    assert BANNER in page and "table-header-group" in page  # on every printed page
    text = html.unescape(re.sub("<[^>]+>", " ", page.split("</style>")[1]))
    facts = load_order(Order(made.agency.config))
    for words in (RUN, "testdata", facts.sha256, str(made.bundle), "undeclared or clamped"):
        assert words in text
    source = pq.read_table(made.agency.source)["region"]
    assert re.search(rf"region\s+{source.null_count}, ", text)  # nulls, as the gates saw them
    assert "default-src 'none'" in html.unescape(page)
    assert "<script" not in page


def test_only_its_place_is_told(made: Made) -> None:
    """The log that notices go to has the path, and no figure of the report is anywhere else."""
    assert f"RESTRICTED, for the curator only: exact errors of this release are in {made.page}" in (
        made.log
    )
    true = {row.true for each in made.errors.values() if each for row in each.compared}
    exact = [words for words in true if re.fullmatch(r"0\.0*[1-9]\d{2}", words)]
    assert len(exact) >= 4
    elsewhere = [
        path.read_bytes()
        for path in made.agency.folder.rglob("*")
        if path.is_file() and path != made.page and path.suffix in (".json", ".md", ".html", ".log")
    ]
    assert not any(b"true error" in each.lower() for each in elsewhere)
    assert not (made.agency.home.root / "work" / RUN).exists()


def test_a_report_that_fails_changes_nothing(made: Made, agencies: Callable[[str], Any]) -> None:
    """The disk is full: the bundle is the same byte for byte, and nobody is told why."""
    most = made.page.stat().st_size // 2
    with full_disk("report to curator", most) as hear:
        without = make(agencies("without"), hear)
    assert not without.page.exists()
    assert not (without.agency.home.root / "work" / RUN).exists()
    notice = "The curator's report could not be written; the release is as it should be."
    assert without.log.count(notice) == 1
    assert f"OSError: [Errno 27] {FULL}" in without.log and "Traceback" in without.log
    assert FULL not in without.log.split(notice)[1]
    verify_bundle(without.bundle)
    one, two = (
        {
            path.relative_to(each.bundle).as_posix(): timeless(path)
            for path in each.bundle.rglob("*")
            if path.is_file()
        }
        for each in (made, without)
    )
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    kinds = [[entry.kind for entry in each.agency.entries()] for each in (made, without)]
    assert kinds[0] == kinds[1] == ["register", "look", "charge", "draw", "publish"]


def timeless(path: Path) -> bytes:
    """A file of a bundle without what differs from run to run: times, and hashes of entries."""
    text = path.read_bytes()
    if path.suffix in (".json", ".jsonld", ".html", ".md", ".xml", ".cff"):
        text = re.sub(rb"20\d\d-\d\d-\d\d(T[\d:.]+Z?)?", b"TIME", text)
        text = re.sub(rb"\b\d{1,2} [A-Z][a-z]+ 20\d\d\b", b"DAY", text)
        text = re.sub(rb"[0-9a-f]{64}", b"HASH", text)
        text = re.sub(rb'"bytes": \d+', b"BYTES", text)
    return text


def test_under_review_it_is_there_while_the_bundle_waits(agencies: Callable[[str], Any]) -> None:
    agency = agencies("reviewed")
    start, end = agency.text.index("products:"), agency.text.index("curator:")
    agency.replace(
        agency.text[start:end],
        "products:\n  noisy: {kind: table, mechanism: laplace, columns: [region]}\n",
    )
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)], unsigned=False)
    outcome = agency.run()
    assert outcome.status is Status.PREPARED
    assert outcome.bundle.parent == agency.home.root / "prepared"
    page = agency.home.root / "curator" / f"{outcome.run_id}.html"
    assert str(outcome.bundle) in page.read_text()
    assert agency.bundles() == []


def test_a_kind_that_says_nothing_of_its_errors_is_named() -> None:
    page = curator_page(Frame(title="A", facts={}), {"records": 400}, [], {"noisy": None})
    assert "Nothing is compared of: noisy." in rendered(page)


def test_it_is_off_unless_asked_for(agencies: Callable[[str], Any]) -> None:
    agency = agencies("off")
    agency.replace("curator: {report: true}\n", "")
    assert not load_order(Order(agency.config)).config.curator.report
    asked = load_order(Order(agency.config, from_options(["curator.report=true"])))
    assert asked.config.curator.report
    assert "curator: {report: true}" in asked.text
    by_variable = from_environment({"STATPRESS__CURATOR__REPORT": "true"})
    assert load_order(Order(agency.config, by_variable)).config.curator.report
    for wrong in ("curators.report=true", "curator.report.all=true"):
        with pytest.raises(UnknownKeyError):
            load_order(Order(agency.config, from_options([wrong])))
    with pytest.raises(UnknownKeyError):
        load_order(Order(agency.config, from_options(["curator.reports=true"])))
