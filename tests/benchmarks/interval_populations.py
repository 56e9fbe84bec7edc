"""The populations whose figures the coverage tables estimate.

A population is a law over some cells: values in [0, 1], with the masses of one record.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Law:
    """A population of records: float64[k, c] in [0, 1] and their masses float64[k]."""

    records: Doubles
    masses: Doubles

    def counts(self, n: int, replicates: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """int64[replicates, k] of n records each."""
        return rng.multinomial(n, self.masses, size=replicates)

    @property
    def means(self) -> Doubles:
        """float64[5] means of x, y, x^2, xy, y^2."""
        x, y = self.records[:, 0], self.records[:, -1]
        return np.array([self.masses @ each for each in (x, y, x**2, x * y, y**2)])


def law_of(values: Doubles, masses: Doubles) -> Law:
    """Of one column, by ascending values."""
    order = np.argsort(values)
    masses = np.asarray(masses, np.float64)[order]
    return Law(np.asarray(values, np.float64)[order, None], masses / masses.sum())


@functools.cache
def populations() -> dict[str, Law]:
    """Of one column, by name."""
    middle = (np.arange(40) + 0.5) / 40
    steps = np.arange(1, 101)
    edges = np.linspace(0, 1, 41)
    arcs = np.diff(2 / math.pi * np.arcsin(np.sqrt(edges)))
    bumps = np.exp(-((middle - 0.25) ** 2) / 0.005) + 0.5 * np.exp(-((middle - 0.8) ** 2) / 0.002)
    rare = np.append(0.0, middle), np.append(0.99, np.full(40, 0.01 / 40))
    bound = np.append(1.0, middle), np.append(0.4, np.full(40, 0.6 / 40))
    return {
        "uniform": law_of(middle, np.ones(40)),
        "bimodal": law_of(middle, bumps),
        "beta(.5,.5)": law_of(middle, arcs),
        "zipf 1.5": law_of((steps - 1) / 99, steps**-1.5),
        "zipf 2.5": law_of((steps - 1) / 99, steps**-2.5),
        "99% zeros": law_of(*rare),
        "mass at a bound": law_of(*bound),
        "nearly constant": law_of(np.array([0.49, 0.5, 0.51]), np.array([0.01, 0.98, 0.01])),
        "0/1": law_of(np.array([0.0, 1.0]), np.array([0.7, 0.3])),
    }


def with_response(law: Law) -> Law:
    """A second column .2 + .5 x, give or take .2."""
    moves, x = np.array([-0.2, 0.0, 0.2]), law.records[:, 0]
    y = 0.2 + 0.5 * x[:, None] + moves
    records = np.column_stack([np.repeat(x, 3), y.ravel()])
    return Law(records, np.repeat(law.masses, 3) / 3)


def in_group(law: Law, share: float) -> Law:
    """The first column is whether a record counts, the second its value, or else 0."""
    some = np.column_stack([np.ones(len(law.masses)), law.records[:, 0]])
    records = np.concatenate([[[0.0, 0.0]], some])
    return Law(records, np.append(1 - share, share * law.masses))


def by_group(law: Law, share: float) -> Law:
    """The first column is the group, the second the value, larger by a fifth in the group."""
    x, half = law.records[:, 0], 0.8 * law.records[:, 0]
    records = np.column_stack([np.repeat([0.0, 1.0], len(x)), np.append(half, half + 0.2)])
    return Law(records, np.append((1 - share) * law.masses, share * law.masses))


def zero_elsewhere(law: Law, share: float) -> Law:
    """One column: the value of a record that counts, and 0 for one that does not."""
    made = in_group(law, share)
    return Law(made.records[:, 1:], made.masses)


def above_half(law: Law) -> Law:
    """One column: whether the value is above a half."""
    return Law((law.records > 0.5).astype(np.float64), law.masses)
