"""What the comparison with figures 1 and 2 of Aldà and Rubinstein must show."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.benchmarks.papers import bernstein as figure

Measured = tuple[list[figure.Row], list[figure.Row]]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(scope="module")
def quick(output: Path) -> Measured:
    return figure.main(["--quick", "--output", str(output)])


def check(rows: list[figure.Row]) -> None:
    """Half the paper's error with the best of its orders, and below the constant pieces."""
    for row in rows:
        if row.curve in (figure.BEST, figure.CONSTANT):
            ours = figure.mean_of(rows, row.panel, row.epsilon, figure.OURS)
            assert row.mean > 2 * ours, row


def test_ours_has_half_the_papers_error_at_every_epsilon(quick: Measured) -> None:
    for rows in quick:
        check(rows)


def test_the_order_matters_as_in_the_paper(quick: Measured) -> None:
    """Large orders win where the noise is small, small ones where it is large."""
    first, _ = quick
    panel = first[0].panel
    for epsilon, better, worse in ((10.0, 8, 1), (0.01, 1, 8)):
        low = figure.mean_of(first, panel, epsilon, f"paper, h = {better}")
        assert low < figure.mean_of(first, panel, epsilon, f"paper, h = {worse}")
        assert low < figure.mean_of(first, panel, epsilon, figure.CONSTANT)


def test_the_foreseen_error_is_near_the_seen_one(quick: Measured) -> None:
    first, _ = quick
    for row in first:
        if row.curve == figure.OURS and row.epsilon <= 1:
            foreseen = float(row.parameters.split("foreseen=")[1])
            assert 0.5 * row.mean < foreseen < 2 * row.mean


def test_tables_and_pictures_are_written(quick: Measured, output: Path) -> None:
    for name, rows in zip(("bernstein_1", "bernstein_2"), quick, strict=True):
        with (output / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows)
        assert (output / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert (output / "bernstein_2_boundaries.png").exists()


@pytest.mark.study
def test_the_figures_at_full_size(tmp_path: Path) -> None:
    first, second = figure.main(["--output", str(tmp_path)])
    check([row for row in first if row.panel == "b = 0.03"])
    check(second)
