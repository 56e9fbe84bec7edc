"""A series of monthly releases for tests: one table of regions, which is planned in no time."""

from __future__ import annotations

from typing import Any


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
