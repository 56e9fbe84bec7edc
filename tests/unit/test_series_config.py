"""The section ``series``: what its mark stands for, and faults by their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statpress.configs.loading import leaves_period_open, load_order
from statpress.configs.order import Order, from_options
from statpress.mechanisms.errors import ConfigError, UnknownKeyError
from statpress.tasks.uploads.upload import load_targets

TEXT = """\
title: Labour force, {period}
dataset: lfs
series: {name: lfs, period: {by: quarter, first: 2026-Q1, lag: 45 days}}
source: {path: "data/lfs-{period}.csv"}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1.0, delta: 0}
domain:
  sex: {type: categorical, categories: ["{period}", male], label: "{period}"}
about: {keywords: ["{period}"], description: "Of {period}."}
products:
  sexes: {kind: table, mechanism: laplace, columns: [sex]}
publish:
  directory: releases
  name: lfs-{period}
  targets: [{s3: "s3://office/lfs-{period}", latest: latest.json}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    return path


def changed(path: Path, old: str, new: str) -> Order:
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1))
    return Order(path)


def test_the_mark_stands_for_the_period_and_stays_in_the_text(config: Path) -> None:
    release = load_order(Order(config).at_period("2026-Q3"))
    said = release.config
    assert said.title == "Labour force, 2026-Q3"
    assert said.source.path == "data/lfs-2026-Q3.csv"  # type: ignore[union-attr]
    assert (said.about.keywords, said.about.description) == (["2026-Q3"], "Of 2026-Q3.")
    assert said.publish.name == "lfs-2026-Q3"
    assert "lfs-2026-Q3" in said.publish.targets[0].model_dump_json()
    temporal = said.about.temporal
    assert temporal is not None and (temporal.start, temporal.end) == ("2026-07", "2026-09")
    column = said.domain["sex"]
    assert column.categories == ["{period}", "male"]  # type: ignore[union-attr]
    assert column.label == "{period}"
    assert str(release.period) == "2026-Q3"
    assert release.directory == config.parent / "releases" / "lfs" / "2026-Q3"
    assert 'current: "2026-Q3"' in release.text and 'path: "data/lfs-{period}.csv"' in release.text
    assert [each.describe()["key"] for each in release.overrides] == ["series.current"]
    config.write_text(release.text)  # as a bundle has it
    again = load_order(Order(config))
    assert (again.config, again.text) == (release.config, release.text)
    assert "lfs-2026-Q3" in load_targets(config)[0].model_dump_json()


def test_without_a_period_the_first_one_stands_in(config: Path) -> None:
    release = load_order(Order(config))
    assert release.period is None and release.config.title == "Labour force, 2026-Q1"
    assert release.directory == config.parent / "releases"
    assert leaves_period_open(Order(config))
    assert not leaves_period_open(Order(config).at_period("2026-Q3"))


def test_what_a_config_says_of_its_time_stays(config: Path) -> None:
    order = changed(config, "about: {", "about: {temporal: {start: 2020}, ")
    temporal = load_order(order).config.about.temporal
    assert temporal is not None and temporal.start == "2020"


def test_a_year_may_be_written_as_a_number(config: Path) -> None:
    order = changed(config, "by: quarter, first: 2026-Q1", "by: year, first: 2020, skip: [2022]")
    assert str(load_order(order.at_period("2024")).period) == "2024"
    number = Order(config, from_options(["series.current=2024"]))
    assert str(load_order(number).period) == "2024"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("by: quarter", "by: month", r"yaml:3:41: series\.period\.first: .* a month, written as"),
        ("by: quarter", "by: day", r"c\.yaml:3:30: series\.period\.by: .*'year', 'quarter'"),
        ("45 days", "45", r"yaml:3:59: series\.period\.lag: .* a number of days, such as"),
        ("45 days", "six weeks", r"yaml:3:59: series\.period\.lag: .* a number of days"),
        ("45 days}", "1 day, skip: [2026-05]}", r"3:\d+: series\.period\.skip: .* a quarter"),
        ("name: lfs,", "name: a/b,", r"c\.yaml:3:10: series\.name"),
        ("name: lfs, ", "", r"c\.yaml:3:\d+: series\.name: 'name' is missing"),
        ("lag:", "lags:", r"yaml:3:59: series\.period\.lags: There is no key 'lags' here"),
        ("lfs-{period}.csv", "lfs.csv", r"c\.yaml:4:10: source\.path: .* needs '{period}'"),
        ("directory: releases", "directory: 'r/{period}'", r"yaml:13:3: publish\.directory: .*not"),
        ("dataset: lfs", "dataset: 'lfs {period}'", r"yaml:2:1: dataset: .* cannot be in it"),
        ("series:", "x-series:", r"c\.yaml:4:10: source\.path: .* no section 'series'"),
        ("name: lfs,", "name: lfs, current: 2025-Q4,", r"series\.current: .* before the first"),
        ("name: lfs,", "name: lfs, current: 2026,", r"series\.current: .* a quarter"),
    ],
)  # fmt: skip
def test_faults_have_their_place(config: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_order(changed(config, old, new))
    assert any(re.search(said, str(error)) for error in (found.value, *found.value.also))


def test_a_source_given_for_this_once_needs_its_period(config: Path) -> None:
    other = from_options(["source.path=other.csv"])
    with pytest.raises(ConfigError, match="every period would release the same records"):
        load_order(Order(config, other))
    assert load_order(Order(config).at_period("2026-Q2")).period_text == "2026-Q2"
    elsewhere = load_order(Order(config, other).at_period("2026-Q2"))
    assert elsewhere.period is not None
    assert elsewhere.period_text is None  # its charge is for everybody: it may be any period's
    order = changed(config, "lfs-{period}.csv", "lfs.csv")
    with pytest.raises(ConfigError, match="every period would release the same records"):
        load_order(order.at_period("2026-Q2"))


def test_a_period_of_no_series_is_refused(config: Path) -> None:
    text = TEXT.replace("{period}", "x")
    config.write_text("\n".join(li for li in text.splitlines() if not li.startswith("series")))
    with pytest.raises(UnknownKeyError, match=r"--period .*no section 'series'"):
        load_order(Order(config).at_period("2026-Q2"))


@pytest.mark.system
def test_the_mark_names_tables_too(config: Path) -> None:
    source = "{engine: postgres, table: 'surveys.lfs_{period}', credentials: {env: URL}}"
    order = changed(config, '{path: "data/lfs-{period}.csv"}', source)
    assert load_order(order.at_period("2026-Q2")).config.source.place == "table surveys.lfs_2026-Q2"
