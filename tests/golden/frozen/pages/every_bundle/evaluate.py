"""Evaluate a function of a statpress bundle at any point; needs NumPy alone.

Copy this file to where you work (an import inside the bundle would add a compiled file to it):

    from evaluate import load

    density = load("bundle/data/NAME.json")
    density([12.5, 40.0])  # one variable
    surface([[12.5, 40.0], [13.0, 41.0]])  # two: a row a point

or on a command line, a value for each variable: ``python evaluate.py data/NAME.json 12.5 40``.

With t = (y - lower) / (upper - lower) in each variable, k the degree and c the coefficients,

    f(y) = factor * max(floor, sum over v of c[v_1, .., v_l] b_v1(t_1) .. b_vl(t_l)),
    b_v(t) = k! / (v! (k - v)!) t^v (1 - t)^(k - v).

If the file has a ``curve``, its values at equally spaced points from lower to upper, linear in
between, take the place of the sum. A floor of null is none. Evaluating costs no privacy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FORMAT = "statpress-function/1"
_BATCH_VALUES = 1 << 18  # of one intermediate array


class Function:
    """A released function on the box of its declared ranges.

    Attributes:
        facts: What its file says.
        names: Of the variables.
        lower: float64[l], lower ends of the ranges.
        upper: float64[l], upper ends.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        if facts.get("format") != FORMAT:
            raise ValueError(f"this is no function of the format {FORMAT}")
        variables, degree = facts["variables"], facts["degree"]
        self.facts = facts
        self.names = [variable["name"] for variable in variables]
        self.lower = np.array([variable["lower"] for variable in variables], np.float64)
        self.upper = np.array([variable["upper"] for variable in variables], np.float64)
        coefficients = np.array(facts["coefficients"], np.float64)
        self._coefficients = coefficients.reshape((degree + 1,) * len(variables))
        self._curve = None if facts["curve"] is None else np.array(facts["curve"], np.float64)

    def __call__(self, points: ArrayLike) -> NDArray[np.float64]:
        """Values float64[m] at points float64[m, l], or float64[m] for one variable.

        Raises:
            ValueError: The points have another number of variables, or one is out of range.
        """
        queries = np.asarray(points, np.float64)
        if queries.ndim < 2 and len(self.names) == 1:
            queries = queries.reshape(-1, 1)
        if queries.ndim != 2 or queries.shape[1] != len(self.names):
            raise ValueError(
                f"points must have a row each and the columns {', '.join(self.names)}; "
                f"their shape is {queries.shape}"
            )
        for i, name in enumerate(self.names):
            low, high, given = self.lower[i], self.upper[i], queries[:, i]
            outside = ~((given >= low) & (given <= high))
            if outside.any():
                raise ValueError(
                    f"{name} is declared from {low:g} to {high:g}, and {outside.sum()} of the "
                    f"points are outside, the first with {given[outside][0]:g}"
                )
        shares = (queries - self.lower) / (self.upper - self.lower)
        if self._curve is not None:
            found = np.interp(shares[:, 0], np.linspace(0, 1, len(self._curve)), self._curve)
        else:
            found = self._polynomial(shares)
        if self.facts["floor"] is not None:
            found = np.maximum(found, self.facts["floor"])
        return np.asarray(self.facts["factor"] * found)

    def _polynomial(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum at float64[m, l] in [0, 1], a variable at a time, in batches."""
        side = len(self._coefficients)
        flat = self._coefficients.reshape(side, -1)
        batch = max(1, _BATCH_VALUES // max(side, flat.shape[1]))
        found = np.empty(len(shares))
        for start in range(0, len(shares), batch):
            part = shares[start : start + batch]
            left = basis(side - 1, part[:, 0]).T @ flat
            for i in range(1, part.shape[1]):
                weights = basis(side - 1, part[:, i]).T
                left = np.einsum("mv,mvr->mr", weights, left.reshape(len(part), side, -1))
            found[start : start + batch] = left[:, 0]
        return found


def basis(degree: int, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """b_v at points float64[m] in [0, 1]: float64[k + 1, m].

    From the nearer end, by products of positive numbers alone, so that nothing cancels.
    """
    near = np.minimum(shares, 1 - shares)
    odds = near / (1 - near)
    values = np.empty((degree + 1, len(shares)))
    np.power(1 - near, degree, out=values[0])
    for v in range(degree):
        np.multiply(values[v], odds, out=values[v + 1])
        values[v + 1] *= (degree - v) / (v + 1)
    flipped = np.flatnonzero(shares > 0.5)
    values[:, flipped] = values[::-1, flipped]
    return values


def load(path: str | Path) -> Function:
    """The function in a bundle's ``data/NAME.json``."""
    return Function(json.loads(Path(path).read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """Print the value at one point, or what is wrong."""
    if len(arguments) < 2:
        sys.stderr.write("usage: python evaluate.py data/NAME.json VALUE [VALUE ...]\n")
        return 2
    try:
        (value,) = load(arguments[0])([[float(word) for word in arguments[1:]]])
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{float(value)!r}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
