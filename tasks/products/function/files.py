"""The files of functions: coefficients, what was drawn, an evaluator that needs NumPy alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.bernstein.lattice_release import NoisyLattice
from mechanisms.bernstein.released_function import ReleasedFunction
from mechanisms.errors import ConfigError
from mechanisms.functions.bernstein import FunctionRelease
from mechanisms.functions.kind import FUNCTION
from mechanisms.planning.plan import Plan, PlannedProduct
from tasks.formats.registry import read_rows
from tasks.formats.writing import Progress, write_columns
from tasks.products.function import evaluate
from tasks.products.function.part import part_of
from tasks.products.function.true_errors import function_errors
from tasks.products.kind import ProductKind, ReportPart, TableForm, described, plain_file
from tasks.products.markdown import escaped
from tasks.products.true_errors import TrueErrors

if TYPE_CHECKING:
    from configs.models.release import PublishConfig

Planned = PlannedProduct[FunctionRelease]
EVALUATOR = "evaluate.py"
"""In the folder of a bundle: the source of ``tasks.products.function.evaluate``."""

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
_TOLERANCE = 1e-9
_LARGEST_FACTOR = 1e100
"""Its square, times the noise, is a double."""


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

    def forms(self, product: Planned) -> list[TableForm]:
        columns = described(columns_of(product.mechanism))
        words = f"Function: {words_of(product)}."
        return [TableForm(product.name, columns, words, "the function at its lattice points")]

    def write_table(
        self,
        form: TableForm,
        product: Planned,
        derived: DerivedFunction,
        path: Path,
        advance: Progress,
    ) -> None:
        write_columns(_rows(product.mechanism, derived.function, derived.raw), path, form.fields)

    def rows(self, form: TableForm, product: Planned, derived: DerivedFunction) -> int:
        return product.mechanism.points

    def profile_table(
        self, form: TableForm, product: Planned, derived: DerivedFunction, path: Path
    ) -> dict[str, int]:
        """Rows, names, and whether table and evaluator agree, as written."""
        published = evaluate.load(path.with_name(f"{product.name}.json"))
        table = read_rows(path)
        names = [field["name"] for field in form.fields]
        return {
            "rows": len(table),
            "schema": int(any(list(row) != names for row in table)),
            "values off": _disagreeing(published, table),
        }

    def size(self, product: Planned) -> int:
        """A few for each lattice point."""
        mechanism = product.mechanism
        return mechanism.points * len(columns_of(mechanism)) + 10_000

    def rehearse(self, folder: Path, product: Planned, publish: PublishConfig) -> None:
        """See that the function can be evaluated, and its values written.

        Raises:
            ConfigError: A user-defined function fails, or a range is too narrow or too wide.
        """
        factor = product.mechanism.factor
        if not 1 / _LARGEST_FACTOR <= abs(factor) <= _LARGEST_FACTOR:
            raise ConfigError(
                "The declared range is too narrow or too wide: values of the function would pass "
                "what a number in a file can be.",
                where=f"products.{product.name}",
                next_step="Declare the column in a unit in which its range is nearer to 1.",
            )
        try:
            product.mechanism.rehearse(product.domain)
        except ConfigError as error:
            error.where = f"products.{product.name}"
            raise

    def write_others(
        self,
        folder: Path,
        product: Planned,
        derived: DerivedFunction,
        publish: PublishConfig,
    ) -> None:
        """The function for the evaluator and the evaluator itself."""
        name = product.name
        facts = function_facts(product.mechanism, derived.function, derived.raw)
        facts |= {"function": words_of(product), **_label_facts(product)}
        text = json.dumps(facts, indent=1, allow_nan=False)
        (folder / "data" / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        source = Path(evaluate.__file__).read_text(encoding="utf-8")
        (folder / EVALUATOR).write_text(source, encoding="utf-8")

    def other_resources(self, product: Planned, publish: PublishConfig) -> list[dict[str, Any]]:
        name = product.name
        return [
            plain_file(
                f"{name}_function", f"data/{name}.json", "the function, to be evaluated", _FORMULA
            ),
            plain_file(
                "evaluate",
                EVALUATOR,
                "Evaluator of the functions of this release, which needs only NumPy",
            ),
        ]

    def parameters(self, product: Planned) -> dict[str, str | int]:
        return super().parameters(product) | {"function": words_of(product)}

    def advice(self, product: Planned, plan: Plan) -> str:
        """What the function is, of what, and how far it may be off."""
        mechanism, expected = product.mechanism, product.expected_error
        variables = " and ".join(
            f"{escaped(v.name)} from {v.lower:g} to {v.upper:g}" for v in mechanism.variables
        )
        bound = ""
        if expected.bound_95 is not None:
            bound = f", with probability 95 % at most {expected.bound_95:.4g} whatever the data"
        return (
            f"- `{product.name}`: {escaped(words_of(product))}, as a function of {variables}; "
            f"expected largest error {expected.sup_error:.4g}{bound}."
        )

    def notes(self, products: Sequence[Planned]) -> list[str]:
        """How to evaluate a function."""
        name = products[0].name
        return [
            f"**Functions** are evaluated with NumPy alone, at any point of their declared ranges "
            f"and as often as one likes, at no further cost. Copy `{EVALUATOR}` to where you work; "
            f'then `from {EVALUATOR[:-3]} import load; f = load("…/data/{name}.json")`, or use the '
            "formula in `datapackage.json`. Errors are "
            "between the released function and that of the confidential records, which are no "
            "further sample of anything: the error of sampling comes on top."
        ]

    def true_errors(self, product: Planned, derived: DerivedFunction, private: Any) -> TrueErrors:
        """The function as released beside that of the confidential records."""
        return function_errors(product, derived, private)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """Its curve or contours, its error, and how to evaluate it."""
        return part_of(folder, name, stated, resources)


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


def _disagreeing(published: evaluate.Function, table: list[dict[str, Any]]) -> int:
    """Rows whose value is not what the evaluator gives."""
    dimensions = len(published.names)
    points = [[row[f"point_{i}"] for i in range(1, dimensions + 1)] for row in table]
    written = np.array([row["released"] for row in table])
    slack = _TOLERANCE * max(1.0, float(np.abs(written).max()))
    return int((~(np.abs(published(points) - written) <= slack)).sum())
