"""The quick form of the table of bands: they hold, and are not much wider than need be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.benchmarks import band_coverage
from tests.benchmarks.band_coverage import KINDS, LEVEL, rows

REPLICATES, FEW = 500, 40


def test_bands_hold_and_are_nearly_as_narrow_as_an_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(band_coverage, "CHECKED", 20 * FEW)
    monkeypatch.setattr(band_coverage, "WIDTHS", 100)
    found = {row.kind: row for row in rows("zipf", 300, 0.7, 20, REPLICATES)}
    assert tuple(found) == KINDS
    for kind, row in found.items():
        checked = FEW if "cumulative" in kind else REPLICATES
        assert row.held >= LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / checked)
        assert 0.9 < row.ratio < 1.25


def test_a_band_without_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: half of the noise that the bands are computed for is missing."""
    monkeypatch.setattr(band_coverage, "CHECKED", 20 * FEW)
    monkeypatch.setattr(band_coverage, "WIDTHS", 100)
    right = band_coverage.noise_of
    monkeypatch.setattr(
        band_coverage, "noise_of", lambda scale, shape, rng: right(2 * scale, shape, rng)
    )
    held = [row.held for row in rows("uniform", 300, 0.3, 20, REPLICATES)]
    assert np.all(np.array(held) < LEVEL - 0.1)


def test_the_table_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(band_coverage, "settings", lambda quick: [("point", 300, 3.0, 5)])
    monkeypatch.setattr("sys.argv", ["band_coverage", "--quick", "--replicates", "50"])
    band_coverage.main()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5 and said[1].startswith("point       300  3.0     5 cells, counts")
