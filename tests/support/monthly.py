"""A series of monthly releases for tests: one table of regions, which is planned in no time."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from statpress.configs.order import Order
from statpress.flows.runner import run_due, run_release
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import Listener, RunContext, Silent
from statpress.tasks.private_zone.workers import Parallel
from statpress.tasks.release.runs import Outcome


def monthly(agency: Any, first: str, more: str = "") -> None:
    """Make an agency's config one of a series from a month on, with more keys of its periods."""
    head, _, _ = agency.text.partition("products:")
    series = f"series: {{name: lfs, period: {{by: month, first: {first}{more}}}}}\n"
    agency.text = (
        head.replace(
            "source: {path: data/source.parquet}",
            series + 'source: {path: "data/{period}.parquet"}',
        )
        .replace("epsilon: 1.0", "epsilon: 0.1")
        .replace("delta: 1.0e-6", "delta: 0")
        + "products:\n  regions: {accept: mostly_noise, kind: table, mechanism: laplace, "
        + "columns: [region]}\n"
        + "publish: {directory: releases, plots: false, formats: [csv]}\n"
    )
    agency.config.write_text(agency.text)


class Heard(Silent):
    """Keeps what a person is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def notify(self, text: str) -> None:
        self.texts.append(text)


class Office:
    """An agency with a series, on a day of its own calendar."""

    def __init__(self, agency: Any, patch: pytest.MonkeyPatch) -> None:
        self.agency, self._patch = agency, patch
        monthly(agency, "2026-01", ", lag: 10 days")
        agency.replace("title: Test release", "title: Labour force, {period}")
        self.table = pq.read_table(agency.source)
        agency.source.unlink()

    def deliver(self, *months: str) -> None:
        """Have the files of some months arrive."""
        for month in months:
            pq.write_table(self.table, self.agency.folder / "data" / f"{month}.parquet")

    def on(self, day: str) -> Office:
        """Have it be another day."""
        date = datetime.date.fromisoformat(day)
        self._patch.setattr("statpress.tasks.release.series_periods.today", lambda: date)
        return self

    def context(self, listener: Listener | None = None) -> RunContext:
        log = CuratorLog(self.agency.home.folder("curator"), new_run_id())
        self.agency.inspector.log = log
        return RunContext(
            home=self.agency.home,
            log=log,
            inspector=self.agency.inspector,
            orchestrated=False,
            parallel=Parallel(),
            listener=listener or Silent(),
        )

    def release(self, period: str, **arguments: Any) -> Outcome:
        order = Order(self.agency.config).at_period(period)
        return run_release(self.context(), order, **arguments)

    def release_due(self) -> tuple[list[str], str, list[str]]:
        """The periods that a schedule releases, why no further one, and what it says."""
        self.heard = heard = Heard()

        def one(order: Order, period: str) -> str:
            run_release(self.context(heard), order)
            return period

        released, due = run_due(self.context(heard), Order(self.agency.config), one)
        return released, due.words, heard.texts

    def bundles(self) -> dict[str, list[Path]]:
        """The bundles in the folder of each period."""
        return {
            folder.name: sorted(folder.iterdir())
            for folder in sorted((self.agency.releases / "lfs").iterdir())
            if folder.is_dir() and not folder.is_symlink()
        }

    @property
    def latest(self) -> Path:
        """What the link leads to, from the folder of the series."""
        return Path(os.readlink(self.agency.releases / "lfs" / "latest"))

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.agency.entries()]
