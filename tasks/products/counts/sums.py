"""A published table of estimates, and its sums over all columns but one or two, with errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.domain.domain import Domain
from mechanisms.planning.registry import REGISTRY
from mechanisms.postprocessing.covariance import Covariance
from tasks.formats.reading import read_figures
from tasks.products.counts.fields import column_from
from tasks.products.counts.published import zero_from
from tasks.products.distributions import Distribution

MOST_ENUMERATED = 1 << 22
"""Cells of a domain with structural zeros up to which the possible ones are counted."""

MOST_SUMS = 1 << 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EstimatedTable:
    """The estimates of a product's cells as its bundle has them.

    Attributes:
        domain: Its columns.
        fields: The same as the data package describes them.
        cells: int64[K], as listed.
        estimates: float64[K].
        errors: float64[K], their standard errors.
        unlisted: The estimate of every possible cell that is not listed.
        n_records: Public number of records.
        covariance: How the errors vary together.
        unbiased: Whether the estimates are right on average.
    """

    domain: Domain
    fields: Sequence[Mapping[str, Any]]
    cells: Codes
    estimates: Floats
    errors: Floats
    unlisted: float
    n_records: int
    covariance: Covariance
    unbiased: bool

    def sums(
        self, names: Sequence[str], *, reaching: bool = False
    ) -> tuple[Floats, Floats | None] | None:
        """Sums over all other columns, and their standard errors where these are known.

        Args:
            names: Of the columns that stay.
            reaching: Errors for normal intervals instead (``Covariance.errors_of_sums``), which
                are larger where few records were drawn.

        Returns:
            float64 of the sizes of the columns; None where they are too many to be counted.
        """
        sizes = [self.domain[name].size for name in names]
        if math.prod(sizes) > MOST_SUMS or (possible := self._possible(names)) is None:
            return None
        groups = _groups(self.domain, self.cells, names)
        listed, estimates, variances = (
            np.bincount(groups, weights, minlength=math.prod(sizes)).astype(np.float64)
            for weights in (None, self.estimates, self.errors**2)
        )
        found = estimates + (possible - listed) * self.unlisted
        if self.covariance.objection:
            return found.reshape(sizes), None
        frame = {"n_records": self.n_records, "n_cells": self.domain.n_possible}
        if reaching:
            spread = self.covariance.errors_of_sums(found, variances, possible, **frame)
        else:
            spread = np.sqrt(self.covariance.variances_of_sums(found, variances, possible, **frame))
        return found.reshape(sizes), spread.reshape(sizes)

    @property
    def reaches(self) -> Floats:
        """Of each listed cell the error for normal intervals: float64[K]."""
        if self.covariance.objection:
            return self.errors
        return self.covariance.errors_of_sums(
            self.estimates, self.errors**2, np.ones(len(self.cells)),
            n_records=self.n_records, n_cells=self.domain.n_possible,
        )  # fmt: skip

    def distribution(self, name: str) -> Distribution | None:
        """The sums of one column, with errors for whiskers."""
        found = self.sums((name,), reaching=True)
        if found is None:
            return None
        field = self.fields[self.domain.names.index(name)]
        return Distribution(self.domain[name], field, *found)

    def _possible(self, names: Sequence[str]) -> Floats | None:
        """How many possible cells there are of each combination, as float64[product of sizes]."""
        length = math.prod(self.domain[name].size for name in names)
        if not self.domain.zeros:
            return np.full(length, (self.domain.n_cells - self.domain.absent) / length)
        if self.domain.n_cells > MOST_ENUMERATED:
            return None
        cells = self.domain.possible_cells()
        groups = _groups(self.domain, cells[~self.domain.is_absent(cells)], names)
        return np.bincount(groups, minlength=length).astype(np.float64)


def read_table(
    path: Path, stated: Mapping[str, Any], resource: Mapping[str, Any]
) -> EstimatedTable:
    """The table of a bundle's product.

    Args:
        path: Its file, with the columns ``estimate`` and ``standard_error``.
        stated: What ``privacy.json`` says of the product.
        resource: The file as the data package describes it.

    Raises:
        ValueError: The file does not hold it.
    """
    fields = [each for each in resource["schema"]["fields"] if "declared" in each]
    zeros = tuple(zero_from(sets) for sets in stated["structural_zeros"])
    columns = tuple(column_from(each["declared"]) for each in fields)
    domain = Domain(columns, zeros, stated["absent"] is not None)
    mechanism: Any = REGISTRY[stated["mechanism"]].from_description(stated)
    n_records, n_cells = stated["n_records"], domain.n_possible
    uniform = stated["expected_error"].get("uniform_share") or 0.0
    cells, (estimates, errors) = read_figures(path, domain, ("estimate", "standard_error"))
    return EstimatedTable(
        domain, fields, cells, estimates, errors,
        unlisted=-n_records * uniform / (1 - uniform) / n_cells,
        n_records=n_records,
        covariance=mechanism.covariance(n_records=n_records, n_cells=n_cells),
        unbiased=stated["unbiased"],
    )  # fmt: skip


def _groups(domain: Domain, cells: Codes, names: Sequence[str]) -> Codes:
    """Which combination of some columns each cell has, the last column fastest: int64[K]."""
    found = np.zeros(len(cells), dtype=np.int64)
    for name in names:
        found = found * domain[name].size + domain.codes(cells, name)
    return found
