"""What the structure of a table in SDMX says of cells that have no observation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.tasks.catalogues.sdmx import Table, measure_in_words

N, CELLS = 5000, 3300


def table(mechanism: Any) -> Table:
    expected = mechanism.expected_error(n_records=N, n_cells=CELLS)
    stated = {
        "n_records": N,
        "n_cells": str(CELLS),
        "unbiased": True,
        "expected_error": {"uniform_share": expected.uniform_share},
    }
    publication: Any = SimpleNamespace(privacy={"products": {"t": stated}})
    return Table(publication, "t", "t", "T")


def test_the_estimate_of_a_cell_that_was_not_drawn_is_stated_for_sums() -> None:
    drawn = table(Bootstrap("4.93", N))
    assert drawn.undrawn == pytest.approx(-4.93)
    assert "a cell without an observation was not drawn: -4.93 records" in measure_in_words(drawn)


def test_a_table_of_all_cells_says_nothing_of_others() -> None:
    noisy = table(GaussianTable.from_description({"scale": "8"}))
    assert noisy.undrawn == 0
    assert "not drawn" not in measure_in_words(noisy)
