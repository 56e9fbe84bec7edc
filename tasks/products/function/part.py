"""What the report says of a function: its curve or contours, its error, and how to evaluate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.polynomials import iterated_basis
from tasks.pages.blocks import Block, Chart, Fact, Grid, Prose, Section
from tasks.pages.drawings import Curves, HeatMap, Line
from tasks.pages.numbers import measured, plain
from tasks.products.function import evaluate
from tasks.products.kind import ReportPart

_WORDS = "a whole function"
_CURVE, _SIDE = 201, 24
_NORMAL_95 = 1.96
_SIGN = (
    "Where it is above 0 it speaks for {column} = {positive}, below 0 for the other value; log "
    "odds of 0 are even. How far to trust its sign at a point depends on how far the value is "
    "from 0, compared with the error."
)


def part_of(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> ReportPart:
    """The function, drawn out of its file."""
    del resources
    anchor, words = f"product-{name}", str(stated.get("function", _WORDS))
    expected = stated["expected_error"]
    said = f"The released function is expected to be off by {measured(expected['sup_error'], 3)}"
    said += " at most, anywhere in the declared ranges"
    if expected.get("bound_95") is not None:
        said += f"; with 95 % by {measured(expected['bound_95'], 3)}, whatever the data are"
    lead = Prose(
        [
            f"The {words}, at every point of its declared ranges. {said}. That is against the "
            "function of the confidential records; the error of sampling these comes on top.",
        ]
    )
    path = folder / "data" / f"{name}.json"
    if not path.is_file():  # before anything is drawn
        return ReportPart(_WORDS, Section(anchor, name, [lead]))
    function = evaluate.load(path)
    if (label := function.facts.get("label")) is not None:
        lead = Prose([*lead.paragraphs, _SIGN.format(**label)])
    chart = _curve(function) if len(function.names) == 1 else _contours(function)
    from markupsafe import Markup

    middle = ", ".join(plain(float(value)) for value in (function.lower + function.upper) / 2)
    use = Prose(
        [
            "To evaluate it, at any point and as often as you like, copy evaluate.py out of the "
            "bundle to where you work; it needs NumPy only. The formula is in datapackage.json.",
            Markup("<code>{}</code>").format(
                f'from evaluate import load; f = load("data/{name}.json"); f([[{middle}]])'
            ),
        ]
    )
    blocks: list[Block] = [lead, chart, use]
    figure = Fact("A function, off by", measured(expected["sup_error"], 3), f"at most, of {words}")
    return ReportPart(_WORDS, Section(anchor, name, blocks), figure)


def noise_sd(degree: int, order: int, sd: float, shares: NDArray[np.float64]) -> Any:
    """Standard deviation of the noise at points of one variable, from public quantities.

    Args:
        degree: Of the polynomial.
        order: Of its iteration.
        sd: Standard deviation of the noise at each lattice point, in the function's units.
        shares: float64[m] in [0, 1].

    Returns:
        float64[m], of the polynomial before any shape is imposed.
    """
    basis = iterated_basis(degree, order, shares)
    return sd * np.sqrt((basis**2).sum(axis=0))


def _curve(function: evaluate.Function) -> Chart:
    """Over one variable, with the band of the noise."""
    facts, name, shares = function.facts, function.names[0], np.linspace(0, 1, _CURVE)
    low, high = float(function.lower[0]), float(function.upper[0])
    points = np.minimum(low + (high - low) * shares, high)
    values = function(points)
    sd = noise_sd(facts["degree"], facts["order"], facts["noise"]["standard_deviation"], shares)
    reach = _NORMAL_95 * sd
    line = Line(
        "", points.tolist(), values.tolist(), (values - reach).tolist(), (values + reach).tolist()
    )
    rows = [
        [measured(points[k]), measured(values[k]), f"± {measured(reach[k], 3)}"]
        for k in range(0, _CURVE, 10)
    ]
    return Chart(
        str(facts["function"]),
        Curves([line], name, _units(facts)),
        f"Curve over {name} from {measured(low)} to {measured(high)}; its largest value is "
        f"{measured(values.max())} at {measured(points[values.argmax()])}.",
        Grid((name, "value", "noise, 95 %"), rows, title="Figures", folded=True),
        "The band is that of the noise: it holds about 95 % at each point.",
        wide=True,
    )


def _contours(function: evaluate.Function) -> Chart:
    """Over the first two variables, the others in the middle of their ranges."""
    facts, (first, second, *others) = function.facts, function.names
    sides = [np.linspace(function.lower[k], function.upper[k], _SIDE) for k in (1, 0)]
    down, across = np.meshgrid(sides[0][::-1], sides[1], indexing="ij")
    middle = (function.lower + function.upper) / 2
    fixed = [np.full(down.size, each) for each in middle[2:]]
    points = np.stack([across.ravel(), down.ravel(), *fixed], axis=1)
    values = function(points).reshape(down.shape)
    names = [[measured(float(value), 3) for value in side] for side in (sides[0][::-1], sides[1])]
    shown = [[each if k % 4 == 0 else "" for k, each in enumerate(side)] for side in names]
    lightest = float(values.min())
    rows = [
        [names[1][j], names[0][i], measured(float(values[i, j]))]
        for i in range(0, _SIDE, 5)
        for j in range(0, _SIDE, 5)
    ]
    note = f"No shade stands for {measured(lightest, 3)}."
    if others:
        where = ", ".join(
            f"{n} = {measured(float(m))}" for n, m in zip(others, middle[2:], strict=True)
        )
        note += f" Drawn where {where}."
    return Chart(
        f"{facts['function']}: {second} (down) by {first} (across)",
        HeatMap(shown[0], shown[1], values.tolist(), scale=_units(facts), lightest=lightest),
        f"Values from {measured(lightest)} to {measured(float(values.max()))}.",
        Grid((first, second, "value"), rows, title="Figures", folded=True),
        note,
    )


def _units(facts: Mapping[str, Any]) -> str:
    units = str(facts["units"])
    return "value" if units.startswith("as ") else f"value, {units}"
