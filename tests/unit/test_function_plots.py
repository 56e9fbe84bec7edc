"""Plots of functions: the band is that of the noise; more than two variables are sliced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from requirements import needed

from mechanisms.base.mechanism import Target
from mechanisms.domain.columns import Numeric
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.functions.bernstein import FunctionRelease
from mechanisms.functions.knobs import FunctionKnobs
from tasks.products.function.plots import draw_function, noise_sd
from tasks.products.plots import drawn_to
from tasks.release.entropy import SeededRandomness

matplotlib = needed("matplotlib")
FigureCanvasAgg = needed("matplotlib.backends.backend_agg").FigureCanvasAgg
Figure = needed("matplotlib.figure").Figure

N = 500


def released(dimensions: int) -> tuple[FunctionRelease, ContingencyTable]:
    columns = [Numeric(name=f"x{i}", edges=(0.0, 1.0, 2.0, 4.0)) for i in range(dimensions)]
    domain = Domain(tuple(columns))
    asked = Target(epsilon=2.0, delta=0.0, n_records=N, n_cells=domain.n_cells, domain=domain)
    said = FunctionKnobs(target="kde", bandwidth=0.3, degree=4, order=3)
    table = ContingencyTable(domain, np.array([1]), np.array([N]))
    return FunctionRelease.calibrate(said, asked), table


@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_every_number_of_variables_is_drawn(dimensions: int) -> None:
    mechanism, table = released(dimensions)
    function = mechanism.function(mechanism.release(table, SeededRandomness(np.random.PCG64(1))))
    figure = Figure()
    draw_function(figure, "a title", mechanism, function)
    FigureCanvasAgg(figure).draw()
    panel = figure.axes[0]
    assert panel.get_xlabel() == "x0"
    assert panel.get_title() == ("where x2 = 2, x3 = 2" if dimensions == 4 else "")
    if dimensions == 1:
        (line,) = panel.get_lines()
        assert line.get_xdata()[-1] == 4.0
        np.testing.assert_array_equal(line.get_ydata(), function(line.get_xdata()))
    else:
        assert panel.get_ylabel() == "x1"


def test_the_band_is_the_spread_of_released_curves() -> None:
    mechanism, table = released(1)
    rng, places = SeededRandomness(np.random.PCG64(2)), np.array([0.0, 1.3, 2.0, 4.0])
    curves = [mechanism.function(mechanism.release(table, rng)) for _ in range(1500)]
    spread = np.std([curve(places) for curve in curves], axis=0)
    stated = noise_sd(mechanism, curves[0], places / 4)
    np.testing.assert_allclose(spread, stated, rtol=0.15)


def test_no_name_and_no_setting_of_the_user_stops_a_plot(tmp_path: Path, monkeypatch) -> None:
    plain = drawn_to(tmp_path, "plain", lambda figure: figure.suptitle("pay")).read_bytes()
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.facecolor", "red")
    assert drawn_to(tmp_path, "again", lambda figure: figure.suptitle("pay")).read_bytes() == plain
    assert matplotlib.rcParams["text.usetex"]
    for words in ("pay of $1_000_000$", r"$\frac", "$a$ or $b"):
        drawn_to(tmp_path, "name", lambda figure, words=words: figure.suptitle(words))
