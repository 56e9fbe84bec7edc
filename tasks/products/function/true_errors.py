"""The true errors of a function: as released, beside what the confidential records give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.functions.bernstein import FunctionRelease
from mechanisms.functions.exact_function import exact_function
from mechanisms.planning.plan import PlannedProduct
from tasks.pages.blocks import Block, Chart, Grid, Prose, Section
from tasks.pages.drawings import Curves, Line
from tasks.pages.numbers import measured
from tasks.products.true_errors import Compared, Missed, TrueErrors, compared, largest_grid

if TYPE_CHECKING:
    from tasks.products.function.files import DerivedFunction

_ROWS = 21


def function_errors(
    product: PlannedProduct[FunctionRelease], derived: DerivedFunction, private: ContingencyTable
) -> TrueErrors:
    """Over a grid of its ranges; see ``ProductKind.true_errors``."""
    exact, expected = exact_function(product.mechanism, private), product.expected_error
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
                f"{name} = {measured(float(at))}" for name, at in zip(names, points[k], strict=True)
            ),
            float(released[k]),
            float(true[k]),
        )
        for k in np.argsort(-gaps, kind="stable")[:100].tolist()
    )
    blocks: list[Block] = [
        Prose(
            [
                "The true function is that of the confidential records, as it was defined, on a "
                f"grid of {true.size:,} points. It is not that of the population: the error of "
                "sampling the records comes on top."
            ]
        )
    ]
    if len(names) == 1:
        blocks.append(_curves(names[0], points[:, 0], released, true))
    blocks.append(largest_grid(missed, "Largest errors", "value"))
    return TrueErrors(rows, Section(f"product-{product.name}", product.name, blocks))


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
