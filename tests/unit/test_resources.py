"""Memory and threads of a run: as declared, as planned, as kept."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from coded import CodesInMemory, dependent_codes, domain_of

from statpress.configs.loading import Release, load
from statpress.flows.cli.plan_command import forecast_facts
from statpress.mechanisms.errors import ConfigError, MemoryLimitError, StatpressError
from statpress.mechanisms.marginals.target_tables import counts_of
from statpress.mechanisms.parallel import in_threads, threads, using_threads
from statpress.tasks.private_zone.workers import limited_threads, usable_processors
from statpress.tasks.release.foreseen import check_memory, forecasts, foreseen, peak
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.engine import LEAST_SHARE, RUN, Limits, connect, engine_share
from statpress.tasks.source.scanning import spill

CONFIG = """\
title: Test
dataset: test
source: {{path: data.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: {n}}}
budget: {{epsilon: 1.0, delta: 1.0e-9}}
domain:
  age: {{type: integer, lower: 0, upper: 99}}
  pay: {{type: numeric, lower: 0, upper: 100, bins: {bins}}}
  sex: {{type: categorical, categories: [f, m]}}
products:
  few: {{kind: table, mechanism: gaussian, columns: [age, sex], accept: mostly_noise}}
  many: {{kind: table, mechanism: gaussian, columns: [age, pay], accept: mostly_noise}}
  people: {{kind: microdata, mechanism: marginals, columns: [age, sex]}}
publish: {{directory: releases, formats: [csv]}}
{resources}
"""


def config(folder: Path, resources: str = "", *, n: int = 10**6, bins: int = 50) -> Release:
    path = folder / "test.yaml"
    path.write_text(CONFIG.format(resources=resources, n=n, bins=bins))
    return load(path)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("4GB", 4 * 10**9), ("1.5 GiB", 3 * 2**29), ("800MB", 8 * 10**8), ("2TB", 2 * 10**12)],
)
def test_memory_is_a_number_with_a_unit(tmp_path: Path, text: str, amount: int) -> None:
    release = config(tmp_path, f"resources: {{memory: {text}}}")
    assert release.config.resources.memory_bytes == amount


@pytest.mark.parametrize(
    "text",
    ["{memory: 4}", "{memory: 4 gb}", "{memory: -4GB}", "{memory: GB}", "{memory: 4GB4GB}",
     "{threads: 0}", "{threads: 1.5}", "{threads: true}", "{cores: 2}"],
)  # fmt: skip
def test_what_is_no_amount_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"test\.yaml:15:13: .*(memory|threads|cores)"):
        config(tmp_path, f"resources: {text}")


def test_without_the_section_nothing_is_bounded_and_the_engine_has_what_it_had(
    tmp_path: Path,
) -> None:
    release = config(tmp_path)
    source = source_of(release)
    assert source.limits == Limits()
    engine = connect(tmp_path)
    try:
        found = engine.con.execute("SELECT current_setting('memory_limit')").fetchone()
    finally:
        engine.disconnect()
    assert found == ("286.1 MiB",)  # 300 MB
    assert foreseen(release, release.plan()) == []


def test_the_engine_takes_its_share(tmp_path: Path) -> None:
    source = source_of(config(tmp_path, "resources: {memory: 4GB, threads: 1}"))
    engine = connect(tmp_path, source.limits)
    try:
        settings = "SELECT current_setting('memory_limit'), current_setting('threads')"
        memory, count = engine.con.execute(settings).fetchone()
    finally:
        engine.disconnect()
    assert count == 1
    assert memory.endswith("MiB") and float(memory.split()[0]) == pytest.approx(
        (4 * 10**9 - RUN) / 3 / 2**20, abs=0.1
    )
    assert engine_share(1) == LEAST_SHARE


def test_a_plan_that_may_need_more_is_refused_by_step_product_and_figure(tmp_path: Path) -> None:
    release = config(tmp_path, "resources: {memory: 3GB}", bins=100_000)
    plan = release.plan()
    with pytest.raises(MemoryLimitError) as caught:
        check_memory(release, plan)
    said = str(caught.value)
    assert "resources.memory is 3GB" in said and "Nothing was charged." in said
    assert f"{release.document.where(('resources', 'memory'))}" in said
    faults = [str(each) for each in foreseen(release, plan)]
    of_many = [each for each in faults if "'many'" in each]
    assert of_many and all("10,000,000 cells" in each for each in of_many)
    assert "Use fewer columns or cells" in of_many[0]
    assert caught.value.exit_code == StatpressError.exit_codes()["MemoryLimitError"] == 69
    # Twins: with more memory, and with fewer cells.
    check_memory(config(tmp_path, "resources: {memory: 40GB}", bins=100_000), plan)
    less = config(tmp_path, "resources: {memory: 3GB}")
    check_memory(less, less.plan())


def test_validate_and_run_refuse_it_and_plan_says_so(tmp_path: Path) -> None:
    """There is neither a source nor a ledger: nothing is opened, nothing charged."""
    from statpress.configs.order import Order
    from statpress.flows.cli.plan_command import plan
    from statpress.flows.cli.release_commands import validate
    from statpress.tasks.release.steps import fix_plan

    release = config(tmp_path, "resources: {memory: 1GB}")
    path = tmp_path / "test.yaml"
    with pytest.raises(MemoryLimitError):
        validate(path)
    context: Any = None
    with pytest.raises(MemoryLimitError):
        fix_plan(context, Order(path), release)
    facts = plan(path, home=tmp_path / "home").facts()
    assert "resources.memory is 1GB" in facts["would_stop"][0]
    assert facts["memory"]["declared"] == 10**9 < facts["memory"]["peak"]
    assert any("memory. At most" in str(each) for each in plan(path, home=tmp_path).report())


def test_a_forecast_takes_public_figures_only_and_grows_with_them(tmp_path: Path) -> None:
    """No source is there at all."""
    few, more, finer = (
        peak(forecasts(each, each.plan())).bytes
        for each in (
            config(tmp_path),
            config(tmp_path, n=10**8),
            config(tmp_path, bins=50_000),
        )
    )
    assert few < more and few < finer
    release = config(tmp_path, n=10**8)
    facts = forecast_facts(release, release.plan())
    assert facts["peak"] == max(step["bytes"] for step in facts["steps"])
    assert {step["product"] for step in facts["steps"]} == {"", "few", "many", "people"}
    assert facts["declared"] is None


def test_threads_are_those_declared_and_given_back(tmp_path: Path) -> None:
    from threadpoolctl import threadpool_info

    def of_libraries() -> list[int]:
        return [each["num_threads"] for each in threadpool_info()]

    before = pyarrow.cpu_count(), pyarrow.io_thread_count(), of_libraries(), threads()
    with limited_threads(3):
        assert (pyarrow.cpu_count(), pyarrow.io_thread_count(), threads()) == (3, 3, 3)
    with limited_threads(1):
        assert set(of_libraries()) <= {1}
    assert before == (pyarrow.cpu_count(), pyarrow.io_thread_count(), of_libraries(), threads())
    with contextlib.suppress(KeyError), limited_threads(1):  # also after an error
        raise KeyError
    assert before == (pyarrow.cpu_count(), pyarrow.io_thread_count(), of_libraries(), threads())
    with limited_threads(None):
        assert threads() == usable_processors() >= 1
        assert pyarrow.cpu_count() == before[0]
    with pytest.raises(ValueError, match="thread"), using_threads(0):
        pass


def test_parts_run_at_the_same_time_and_come_in_order() -> None:
    """Each part waits for the other, so one after the other would never end."""
    meeting = threading.Barrier(2, timeout=300)

    def part(number: int) -> int:
        meeting.wait()
        return number

    with using_threads(2):
        assert in_threads(part, [3, 1]) == [3, 1]
    assert threads() == 1
    assert in_threads(lambda each: threading.get_ident(), [0]) == [threading.get_ident()]


def test_a_fault_in_a_thread_is_raised() -> None:
    def part(number: int) -> int:
        if number == 1:
            raise OSError("disk")
        return number

    with using_threads(2), pytest.raises(OSError, match="disk"):
        in_threads(part, [0, 1, 2])


def test_records_are_counted_alike_by_any_number_of_threads() -> None:
    codes = dependent_codes(3 << 18, (4, 3, 5), 9)  # enough that three threads count
    groups, shapes = [(0,), (0, 2), (0, 1, 2)], [(4,), (4, 5), (4, 3, 5)]
    alone = counts_of(codes, groups, shapes)
    with using_threads(3):
        assert all(map(np.array_equal, counts_of(codes, groups, shapes), alone))
    for group, shape, counts in zip(groups, shapes, alone, strict=True):
        cells = np.ravel_multi_index(tuple(codes[:, c].astype(int) for c in group), shape)
        assert np.array_equal(counts, np.bincount(cells, minlength=int(np.prod(shape))))


def test_coded_columns_are_counted_alike_by_any_number_of_threads(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from statpress.tasks.source.files import FileSource

    domain = domain_of((4, 3, 5))
    codes = dependent_codes(5000, (4, 3, 5), 9)
    columns = {f"c{i}": codes[:, i].astype(np.int64) for i in range(3)}
    pq.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    folder = tmp_path / "work"
    folder.mkdir()
    source = FileSource(str(tmp_path / "a.parquet"), "parquet")
    spilled = spill(source, domain, n_records=5000, folder=folder)
    groups = [(0,), (2, 1), (0, 1, 2)]
    memory = CodesInMemory(domain, 5000, tuple(codes.T)).tables(groups)
    for count in (1, 2, 3):
        with using_threads(count):
            assert all(map(np.array_equal, spilled.tables(groups), memory))
