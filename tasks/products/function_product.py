"""Whole functions in a bundle: files, report and true errors.

What the report says of a function: its curve or contours, its error, and how to evaluate it.
The true errors of a function: as released, beside what the confidential records give.
The files of functions: coefficients, what was drawn, an evaluator that needs NumPy alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.functions.bernstein import FUNCTION, FunctionRelease
from statpress.mechanisms.functions.lattice_release import NoisyLattice
from statpress.mechanisms.functions.polynomials import iterated_basis
from statpress.mechanisms.functions.released_function import ReleasedFunction
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.tasks.bundle.file_formats import read_rows
from statpress.tasks.bundle.rows import value_rows
from statpress.tasks.pages.blocks import (
    Block,
    Chart,
    Curves,
    Fact,
    Grid,
    HeatMap,
    Line,
    Prose,
    Section,
)
from statpress.tasks.pages.numbers import measured, plain
from statpress.tasks.pages.rendering import escaped
from statpress.tasks.products import evaluate
from statpress.tasks.products.product_kind import ProductKind, ReaderWords, ReportPart
from statpress.tasks.products.publication import DataTable, OtherFile, Publication, described
from statpress.tasks.products.true_errors import (
    Compared,
    Missed,
    TrueErrors,
    compared,
    largest_grid,
)

_WORDS = "a whole function"
_CURVE, _SIDE = 201, 24
_NORMAL_95 = 1.96
_SIGN = (
    "Where it is above 0 it speaks for {column} = {positive}, below 0 for the other value; log "
    "odds of 0 are even. How far to trust its sign at a point depends on how far the value is "
    "from 0, compared with the error."
)


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
        Curves([line], name, _units_of_axes(facts)),
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
        HeatMap(
            shown[0], shown[1], values.tolist(), scale=_units_of_axes(facts), lightest=lightest
        ),
        f"Values from {measured(lightest)} to {measured(float(values.max()))}.",
        Grid((first, second, "value"), rows, title="Figures", folded=True),
        note,
    )


def _units_of_axes(facts: Mapping[str, Any]) -> str:
    units = str(facts["units"])
    return "value" if units.startswith("as ") else f"value, {units}"


_ROWS = 21


def _curves(name: str, points: np.ndarray, released: np.ndarray, true: np.ndarray) -> Chart:
    """Both functions of one variable."""
    some = np.unique(np.linspace(0, len(points) - 1, _ROWS).round().astype(int))
    rows = [[measured(points[k]), measured(released[k]), measured(true[k])] for k in some]
    return Chart(
        f"As released and as it is, over {name}",
        Curves(
            [
                Line("released", points.tolist(), released.tolist()),
                Line("true", points.tolist(), true.tolist()),
            ],
            name,
            "value",
        ),
        f"Two curves over {name}: the released function and the true one.",
        Grid((name, "released", "true"), rows, title="Figures", folded=True),
        wide=True,
    )


Planned = PlannedProduct[FunctionRelease]
EVALUATOR = "evaluate.py"
"""In the folder of a bundle: the source of ``tasks.products.evaluate``."""

_FIGURES = {
    "steps": ("integer", "What was released: the noisy value, in steps of the grid."),
    "noisy": ("number", "The same in the function's units, without any shape imposed."),
    "coefficient": ("number", "Of the Bernstein polynomial; times the factor in its units."),
    "released": ("number", "The released function at this point, as the evaluator gives it."),
}
_FORMULA = (
    "With t = (y - lower) / (upper - lower) in each variable: factor times the larger of floor "
    "and the sum over v of coefficient[v] times the product over the variables of "
    "k! / (v! (k - v)!) t^v (1 - t)^(k - v), k being the degree. A curve, where there is one, "
    "holds values at equally spaced points and takes the place of the sum, linear in between. "
    "The coefficients are listed with the last index fastest."
)
_MOST_FACTS = 10_000
"""Values of the file of a function, at most."""
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class DerivedFunction:
    """What was released, with the function that follows from it."""

    raw: NoisyLattice
    function: ReleasedFunction


class FunctionProduct(ProductKind[FunctionRelease, NoisyLattice, DerivedFunction]):
    """Functions in the folder of a bundle."""

    core = FUNCTION

    def postprocess(self, product: Planned, raw: NoisyLattice, n_records: int) -> DerivedFunction:
        return DerivedFunction(raw, product.mechanism.function(raw))

    def publication(self, product: Planned, derived: DerivedFunction | None = None) -> Publication:
        """The lattice, the function for the evaluator, and the evaluator itself."""
        name, mechanism = product.name, product.mechanism
        table = DataTable(
            stem=name,
            fields=described(columns_of(mechanism)),
            title="the function at its lattice points",
            description=f"Function: {words_of(product)}.",
            most_rows=mechanism.points,
            check=partial(_disagreeing, name),
        )
        function = OtherFile(
            f"data/{name}.json",
            f"{name}_function",
            "the function, to be evaluated",
            _FORMULA,
            most_values=_MOST_FACTS,
        )
        source = Path(evaluate.__file__).read_text(encoding="utf-8")
        evaluator = OtherFile(
            EVALUATOR,
            "evaluate",
            "Evaluator of the functions of this release, which needs only NumPy",
            text=source,
        )
        if derived is not None:
            facts = function_facts(mechanism, derived.function, derived.raw)
            facts |= {"function": words_of(product), **_label_facts(product)}
            function = replace(function, text=json.dumps(facts, indent=1, allow_nan=False) + "\n")
            rows = value_rows(_rows(mechanism, derived.function, derived.raw))
            table = replace(table, expected=mechanism.points, rows=rows)
        return Publication((table,), (function, evaluator))

    def parameters(self, product: Planned) -> dict[str, str | int]:
        return super().parameters(product) | {"function": words_of(product)}

    def words(self, product: Planned, plan: Plan) -> ReaderWords:
        """What the function is, of what, how far it may be off, and how to evaluate it."""
        name = product.name
        mechanism, expected = product.mechanism, product.expected_error
        variables = " and ".join(
            f"{escaped(v.name)} from {v.lower:g} to {v.upper:g}" for v in mechanism.variables
        )
        bound = ""
        if expected.bound_95 is not None:
            bound = f", with probability 95 % at most {expected.bound_95:.4g} whatever the data"
        item = (
            f"- `{name}`: {escaped(words_of(product))}, as a function of {variables}; "
            f"expected largest error {expected.sup_error:.4g}{bound}."
        )
        note = (
            f"**Functions** are evaluated with NumPy alone, at any point of their declared ranges "
            f"and as often as one likes, at no further cost. Copy `{EVALUATOR}` to where you work; "
            f'then `from {EVALUATOR[:-3]} import load; f = load("…/data/{name}.json")`, or use the '
            "formula in `datapackage.json`. Errors are "
            "between the released function and that of the confidential records, which are no "
            "further sample of anything: the error of sampling comes on top."
        )
        return ReaderWords(item, {"functions": note})

    def true_errors(self, product: Planned, derived: DerivedFunction, private: Any) -> TrueErrors:
        """The function as released beside that of the confidential records."""
        exact, expected = product.mechanism.exact_function(private), product.expected_error
        points, true = exact.points, exact.values.ravel()
        released = derived.function(points)
        gaps = np.abs(released - true)
        rows = [
            compared("largest error over the ranges", expected.sup_error, float(gaps.max())),
            Compared("mean error over the ranges", "", measured(float(gaps.mean()), 3),
                     "nothing was promised"),
        ]  # fmt: skip
        if expected.bound_95 is not None:
            below = float(gaps.max()) <= expected.bound_95
            rows.append(
                Compared(
                    "largest error, bound of 95 % whatever the data",
                    measured(expected.bound_95, 3),
                    measured(float(gaps.max()), 3),
                    "holds" if below else "does not hold",
                )
            )
        names = [variable.name for variable in product.mechanism.variables]
        missed = (
            Missed(
                ", ".join(
                    f"{name} = {measured(float(at))}"
                    for name, at in zip(names, points[k], strict=True)
                ),
                float(released[k]),
                float(true[k]),
            )
            for k in np.argsort(-gaps, kind="stable")[:100].tolist()
        )
        blocks: list[Block] = [
            Prose(
                [
                    "The true function is that of the confidential records, as it was defined, on "
                    f"a grid of {true.size:,} points. It is not that of the population: the error "
                    "of sampling the records comes on top."
                ]
            )
        ]
        if len(names) == 1:
            blocks.append(_curves(names[0], points[:, 0], released, true))
        blocks.append(largest_grid(missed, "Largest errors", "value"))
        return TrueErrors(rows, Section(f"product-{product.name}", product.name, blocks))

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """Its curve or contours, its error, and how to evaluate it."""
        del resources
        anchor, words = f"product-{name}", str(stated.get("function", _WORDS))
        expected = stated["expected_error"]
        said = (
            f"The released function is expected to be off by {measured(expected['sup_error'], 3)}"
        )
        said += " at most, anywhere in the declared ranges"
        if expected.get("bound_95") is not None:
            said += f"; with 95 % by {measured(expected['bound_95'], 3)}, whatever the data are"
        lead = Prose(
            [
                f"The {words}, at every point of its declared ranges. {said}. That is against the "
                "function of the confidential records; the error of sampling these comes on top.",
                *(
                    ["Each unit counts one: one of its records was drawn at random."]
                    if stated.get("per")
                    else ()
                ),
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
                "To evaluate it, at any point and as often as you like, copy evaluate.py out of "
                "the bundle to where you work; it needs NumPy only. The formula is in "
                "datapackage.json.",
                Markup("<code>{}</code>").format(
                    f'from evaluate import load; f = load("data/{name}.json"); f([[{middle}]])'
                ),
            ]
        )
        blocks: list[Block] = [lead, chart, use]
        figure = Fact(
            "A function, off by", measured(expected["sup_error"], 3), f"at most, of {words}"
        )
        return ReportPart(_WORDS, Section(anchor, name, blocks), figure)


def words_of(product: Planned) -> str:
    """What the function is, for readers: of a classifier which of its two classes is positive.

    The mechanism's own words, which a charge states, name only the column.
    """
    words, label = product.mechanism.words, product.request.knobs.label
    if label is None:
        return words
    (positive,) = product.domain[label].decode(np.array([1])).tolist()
    value = str(positive).lower() if isinstance(positive, bool) else str(positive)
    return words.replace(f" of {label}", f" of {label} = {value}", 1)


def columns_of(mechanism: FunctionRelease) -> dict[str, tuple[str, str]]:
    """Columns of the table of coefficients: type and description."""
    found = {}
    for i, variable in enumerate(mechanism.variables, 1):
        found[f"index_{i}"] = ("integer", f"Place on the lattice along {variable.name}, from 0.")
    for i, variable in enumerate(mechanism.variables, 1):
        found[f"point_{i}"] = ("number", f"The value of {variable.name} there.")
    return found | _FIGURES


def function_facts(
    mechanism: FunctionRelease, function: ReleasedFunction, drawn: NoisyLattice
) -> dict[str, Any]:
    """All that an evaluator needs, and what it gives, as JSON values that lose nothing."""
    return {
        "format": evaluate.FORMAT,
        "function": mechanism.words,
        "formula": _FORMULA,
        "units": _units(mechanism),
        "variables": [
            {"name": v.name, "lower": v.lower, "upper": v.upper} for v in mechanism.variables
        ],
        "degree": mechanism.degree,
        "order": mechanism.order,
        "shape": list(mechanism.shape.names),
        "noise": {
            "kind": mechanism.noise,
            "scale_in_steps": str(mechanism.scale),
            "step": math.ldexp(1.0, -mechanism.step_bits),
            "standard_deviation": mechanism.noise_sd * function.factor / mechanism.factor,
            "words": "Independent noise at each lattice point; the polynomial of order h of the "
            "noisy values has the coefficients below.",
        },
        "factor": function.factor,
        "floor": function.floor,
        "curve": None if function.curve is None else function.curve.tolist(),
        "coefficients": function.coefficients.ravel().tolist(),
        "steps": drawn.counts.ravel().tolist(),
    }


def _label_facts(product: Planned) -> dict[str, Any]:
    """Of a classifier the column that it is about, and the value that positive scores are for."""
    name = product.request.knobs.label
    if name is None:
        return {}
    (positive,) = product.domain[name].decode(np.array([1])).tolist()
    return {"label": {"column": name, "positive": positive}}


def _units(mechanism: FunctionRelease) -> str:
    if mechanism.factor == 1:
        return "as the function is defined"
    return f"per unit of {' times '.join(v.name for v in mechanism.variables)}"


def _rows(
    mechanism: FunctionRelease, function: ReleasedFunction, drawn: NoisyLattice
) -> dict[str, list[Any]]:
    """A row a lattice point, the last index fastest."""
    indices = np.indices(drawn.counts.shape).reshape(drawn.counts.ndim, -1)
    points = [
        v.lower + (v.upper - v.lower) * (places / mechanism.degree)
        for v, places in zip(mechanism.variables, indices, strict=True)
    ]
    points = [
        np.minimum(each, v.upper) for v, each in zip(mechanism.variables, points, strict=True)
    ]
    noisy = function.factor * function.polynomial.values.ravel()
    return {
        **{f"index_{i}": places.tolist() for i, places in enumerate(indices, 1)},
        **{f"point_{i}": places.tolist() for i, places in enumerate(points, 1)},
        "steps": drawn.counts.ravel().tolist(),
        "noisy": noisy.tolist(),
        "coefficient": function.coefficients.ravel().tolist(),
        "released": function(np.stack(points, axis=1)).tolist(),
    }


def _disagreeing(name: str, path: Path) -> dict[str, int]:
    """Rows of a written table whose value is not what the evaluator gives."""
    published, table = evaluate.load(path.with_name(f"{name}.json")), read_rows(path)
    dimensions = len(published.names)
    points = [[row[f"point_{i}"] for i in range(1, dimensions + 1)] for row in table]
    written = np.array([row["released"] for row in table])
    slack = _TOLERANCE * max(1.0, float(np.abs(written).max()))
    return {"values off": int((~(np.abs(published(points) - written) <= slack)).sum())}


FILES = FunctionProduct()
