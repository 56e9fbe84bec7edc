"""What a released function is of: its values on the confidential records, without noise; private.

For whoever may see them beside what was released (the curator's report), never for a release.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.functions.bernstein import FunctionRelease

FINEST = {1: 200, 2: 40, 3: 16, 4: 8}
"""Steps along each variable of the grid on which functions are compared, by their number."""

Floats = NDArray[np.float64]


class OnGrid(NamedTuple):
    """A function on a grid of equal steps over the declared ranges.

    Attributes:
        axes: Of each variable the places float64[m], in its own units.
        values: float64 of as many sides as there are variables, in the function's own units.
    """

    axes: tuple[Floats, ...]
    values: Floats

    @property
    def points(self) -> Floats:
        """float64[values.size, variables], the last variable fastest."""
        sides = np.meshgrid(*self.axes, indexing="ij")
        return np.stack([side.ravel() for side in sides], axis=1)


def exact_function(release: FunctionRelease, table: ContingencyTable) -> OnGrid:
    """The function that was estimated, on a finer grid than the lattice it was released on.

    Values beyond the declared magnitude are clipped, and what is no number is 0, as they were
    before the noise.

    Args:
        release: The mechanism with its learner.
        table: Of the product's columns in their order; private.
    """
    assert release.mechanism is not None
    learner, variables = release.mechanism.learner, release.variables
    steps = max(FINEST[len(variables)], release.degree)
    values = np.nan_to_num(learner.values(table, steps), nan=0.0)
    bounded = np.clip(values, -learner.magnitude, learner.magnitude)
    shares = np.linspace(0, 1, steps + 1)
    axes = tuple(np.minimum(v.lower + (v.upper - v.lower) * shares, v.upper) for v in variables)
    return OnGrid(axes, release.factor * bounded)
