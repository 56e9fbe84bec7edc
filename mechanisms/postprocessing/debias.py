"""Estimates of the cells from a release, and those of a bootstrap: free post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain


@dataclass(frozen=True, eq=False)
class DebiasedTable:
    """Estimates of the true counts, for the cells that a release lists.

    Unbiased if the mechanism is (``Mechanism.unbiased``).

    Attributes:
        domain: The release's domain.
        cells: int64[K], ascending.
        estimates: float64[K], in records; may be negative, and are not projected,
            since confidence statements need them as they are.
        standard_errors: float64[K], in records.
        undrawn_estimate: The estimate for every cell that is not listed.
        undrawn_standard_error: Its standard error if the cell is empty in the data,
            the least it can be.
        projected: float64[K], the nearest counts that are not negative and add up to the
            number of records, if the mechanism has a way of its own to them.
    """

    domain: Domain
    cells: Codes
    estimates: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    undrawn_estimate: float
    undrawn_standard_error: float
    projected: NDArray[np.float64] | None = None


def debias(release: ContingencyTable, pseudocount: Fraction, *, n_records: int) -> DebiasedTable:
    """Remove the pseudocount from a bootstrap release.

    The estimate of a count is N c/m - pseudocount, N = n + pseudocount |domain|, of which the
    structural zeros are not part
    (bootstrapping paper, section 5.3, times n). The standard error takes the
    cell's probability at its released frequency, kept within what is known of it:
    pseudocount/N to (n + pseudocount)/N.

    Args:
        release: Counts per drawn cell; their sum is m.
        pseudocount: As used for the draw.
        n_records: Public number of records n of the source.
    """
    draws = release.n_records
    total = float(n_records + pseudocount * release.domain.n_possible)
    floor = float(pseudocount) / total
    ceiling = (n_records + float(pseudocount)) / total
    frequency = np.clip(release.counts / draws, floor, ceiling)
    errors = total * np.sqrt(frequency * (1 - frequency) / draws)
    return DebiasedTable(
        domain=release.domain,
        cells=release.cells,
        estimates=total * (release.counts / draws) - float(pseudocount),
        standard_errors=errors,
        undrawn_estimate=-float(pseudocount),
        undrawn_standard_error=total * float(np.sqrt(floor * (1 - floor) / draws)),
    )
