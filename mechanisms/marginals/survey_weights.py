"""Survey weights: the class of a weight is a column, and records are raked to public totals.

**A weight** is released as its class by public edges, which is one more column. A record counts as
the value of its class, the middle of the cell, so that a weighted total of a number x of the cells
of other columns is linear in a measured table, sum over b of w_b T[b, x]
(mechanisms.marginals.linear_moments). Within a class weight and x are taken to be unrelated.

**Raking.** The weights of synthetic records are multiplied by one factor for each cell of every
column with public totals, in turn, until all weighted totals are those (Deming and Stephan 1940,
doi 10.1214/aoms/1177731829; Deville, Särndal and Sautory 1993,
doi 10.1080/01621459.1993.10476369). It is post-processing of the records, and never touches what
was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.target_tables import Floats

MOST_ROUNDS, CLOSE = 1000, 1e-13


@dataclass(frozen=True, kw_only=True)
class SurveyWeight:
    """The weight of a product's records, by the names of its columns.

    Attributes:
        column: Of the weight's classes.
        totals: By column the public total of every cell, in the order of codes.
        strata: The column of the strata that records were drawn in.
        cluster: The column of the clusters that were drawn, within the strata.
    """

    column: str
    totals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    strata: str | None = None
    cluster: str | None = None

    @property
    def design(self) -> tuple[str, ...]:
        """The columns of the design that are declared."""
        return tuple(name for name in (self.strata, self.cluster) if name is not None)

    def check(self, domain: Domain) -> None:
        """Refuse a weight that a product's columns do not serve.

        Raises:
            ConfigError: A column is not among them, or has another number of cells than totals.
        """
        for name in (self.column, *self.totals, *self.design):
            if name not in domain.names:
                raise ConfigError(
                    f"The product has no column '{name}', which 'weight' names.",
                    where="columns",
                    next_step="List it among the columns of the product.",
                )
        for name, totals in self.totals.items():
            if len(totals) != domain[name].size:
                raise ConfigError(
                    f"There are {len(totals)} totals for {domain[name].size} cells of '{name}'.",
                    where="columns",
                )


def class_values(domain: Domain, column: str) -> Floats:
    """float64[k]: what a record of each class of the weight counts."""
    declared = domain[column]
    assert isinstance(declared, Numeric)
    return np.asarray(declared.decode(np.arange(declared.size)), dtype=np.float64)


def raked(
    weights: Floats, cells: Mapping[str, NDArray[Any]], totals: Mapping[str, tuple[float, ...]]
) -> Floats:
    """Weights float64[n] whose sums by cell are public totals.

    A cell without a record of positive weight cannot have its total; totals are met of the others
    where that is possible at all.

    Args:
        weights: float64[n], of at least 0.
        cells: By column the code of every record, integers[n].
        totals: By column the total of each code; they add up to the same for all columns.
    """
    found = weights.copy()
    for _ in range(MOST_ROUNDS):
        largest = 0.0
        for name, total in totals.items():
            wanted = np.array(total)
            sums = np.bincount(cells[name], weights=found, minlength=len(wanted))
            factors = np.divide(wanted, sums, out=np.ones(len(wanted)), where=sums > 0)
            found *= factors[cells[name]]
            largest = max(largest, float(np.abs(factors[sums > 0] - 1).max(initial=0.0)))
        if largest < CLOSE:
            break
    return found
