"""Too little memory is named as such: never as a broken file, and never as a counted refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from acting import DRAWING, raising, run_acting

from statpress.configs.loading import load
from statpress.flows.cli.plan_command import plan as plan_command
from statpress.mechanisms.errors import (
    MemoryLimitError,
    OutOfMemoryError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.private_zone.guards import CuratorLog, guarded
from statpress.tasks.release.foreseen import forecasts, foreseen, peak
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.engine import MEMORY_LIMIT, RUN, csv_memory
from statpress.tasks.source.files import FileSource, _guarded
from statpress.tasks.source.scanning import scan_of

COLUMNS, RECORDS = 60, 3000
CONFIG = """\
title: Wide
dataset: wide
source: {{path: source.csv}}
privacy: {{adjacency: replace_one, unit: record, n_records: {records}}}
budget: {{epsilon: 3.0, delta: 1.0e-6}}
domain:
{columns}
products:
  people: {{accept: mostly_noise, kind: microdata, mechanism: marginals, columns: [{names}]}}
publish: {{directory: releases, formats: [parquet], plots: false}}
resources: {{threads: 2{memory}}}
"""


def wide(folder: Path, columns: int = COLUMNS, memory: str = "") -> Path:
    names = [f"c{i}" for i in range(columns)]
    path = folder / "release.yaml"
    path.write_text(
        CONFIG.format(
            records=RECORDS,
            columns="\n".join(f"  {n}: {{type: integer, lower: 0, upper: 9}}" for n in names),
            names=", ".join(names),
            memory=memory and f", memory: {memory}",
        )
    )
    return path


@pytest.mark.nightly
def test_a_wide_csv_is_read_in_what_it_needs_and_with_less_the_memory_is_blamed(
    tmp_path: Path,
) -> None:
    release = load(wide(tmp_path))
    plan, source = release.plan(), source_of(release)
    codes = np.random.default_rng(1).integers(0, 10, (RECORDS, COLUMNS))
    rows = [",".join(release.domain.names), *(",".join(map(str, row)) for row in codes)]
    (tmp_path / "source.csv").write_text("\n".join(rows))
    assert source.limits.memory == 2 * csv_memory(COLUMNS, 2) > MEMORY_LIMIT
    ended = []
    for number, memory in enumerate((5, 10, 15, source.limits.memory // 10**6)):
        folder = tmp_path / str(number)
        folder.mkdir()
        limited = replace(source, limits=replace(source.limits, memory=memory * 10**6))
        try:
            scan_of(limited, release, plan, folder)
            ended.append("")
        except StatpressError as error:
            ended.append(error.kind)
    assert ended[0] == "OutOfMemory" and ended[-1] == ""
    assert set(ended) == {"OutOfMemory", ""}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (duckdb.OutOfMemoryException("Out of Memory Error: no block"), OutOfMemoryError),
        # What Arrow makes of it where records are handed over, and its own.
        (OSError("Out of Memory Error: could not allocate block"), OutOfMemoryError),
        (pa.ArrowMemoryError("malloc of size 64 failed"), OutOfMemoryError),
        (MemoryError(), OutOfMemoryError),
        # A value of the file that says so is none.
        (duckdb.ConversionException("Could not convert 'Out of Memory Error:'"),
         SourceUnreadableError),
        (OSError("No such device"), SourceUnreadableError),
    ],
)  # fmt: skip
def test_every_form_of_it_is_known(error: Exception, kind: type[StatpressError]) -> None:
    def run() -> None:
        raise error

    with pytest.raises(StatpressError) as caught:
        _guarded(FileSource("data.csv", "csv"), run)
    assert type(caught.value) is kind


def test_anywhere_else_it_is_named_too(tmp_path: Path) -> None:
    def run() -> None:
        np.empty(2**60, np.int8)

    with pytest.raises(OutOfMemoryError, match="more memory than this machine gave"):
        guarded(run, CuratorLog(tmp_path, "run"))()
    assert "Unable to allocate" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("moment", ["check input", DRAWING])
def test_it_is_no_refusal_and_what_was_charged_is_said(agency: Any, moment: str) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        run_acting(agency, {moment: raising(MemoryError())})
    kinds = [entry.kind for entry in agency.entries()]
    assert "refuse" not in kinds
    charged = moment == DRAWING
    assert ("charge" in kinds) is ("which stays spent" in caught.value.what) is charged
    assert "resources.memory" in caught.value.next_step


def test_a_plan_whose_csv_or_fitting_does_not_fit_ends_with_the_figure(tmp_path: Path) -> None:
    """Every column is held for each thread; Parquet is not read so."""
    needed = RUN + 3 * csv_memory(100, 2)
    path = wide(tmp_path, columns=100, memory=f"{needed // 10**6 - 10}MB")
    result = plan_command(path, home=tmp_path / "home")
    assert result.exit_code == MemoryLimitError.exit_code
    (told,) = [each for each in result.facts()["would_stop"] if "columns of a CSV" in each]
    assert "100 columns of a CSV and 2 threads" in told and "GB of memory" in told
    enough = load(wide(tmp_path, columns=100, memory=f"{needed // 10**6 + 10}MB"))
    assert not any("of a CSV" in each.what for each in foreseen(enough, enough.plan()))
    most = peak(forecasts(enough, enough.plan()))
    path.write_text(path.read_text().replace("source.csv", "source.parquet"))
    assert plan_command(path, home=tmp_path / "home", set_=["resources.memory=20GB"]).exit_code == 0
    fitting = plan_command(path, home=tmp_path / "home", set_=["resources.memory=1300MB"])
    assert fitting.exit_code == MemoryLimitError.exit_code and most.bytes > 13 * 10**8
    assert any("post-process" in each for each in fitting.facts()["would_stop"])
