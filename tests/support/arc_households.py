"""24,061 households of Atlanta with their survey weight WGTP, and the errors of weighted pairs.

From the example ``prototype_arc`` of ActivitySim 1.6.0 (BSD 3-Clause), whose wheel is downloaded
without what it needs, and of which only the table is of use. The households were made from those of
the American Community Survey, and WGTP is the weight there, 2 to 175.
"""

from __future__ import annotations

import functools
import io
import itertools
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wide_tables import downloaded

from statpress.mechanisms.domain.columns import Column, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain

WEIGHT = "WGTP"
EDGES = (0.0, 19.0, 23.0, 40.0, 51.0, 62.0, 86.0, 200.0)
"""Of seven classes of the weight, whose sums of weights are about alike."""
_INCOME = (-20, 0, 10, 20, 30, 40, 50, 60, 75, 100, 125, 150, 200, 300, 1200)


@functools.cache
def households() -> Any:
    """A DataFrame of seven columns of whole numbers and the weight."""
    import pandas as pd

    inside = "activitysim/examples/prototype_arc/data/households.csv"
    with zipfile.ZipFile(downloaded("activitysim==1.6.0", source=False)) as packed:
        text = packed.read(inside).decode()
    return pd.read_csv(io.StringIO(text))[list(domain().names)]


def domain(edges: Sequence[float] = EDGES) -> Domain:
    """The declared columns, the weight last."""
    ranges = {"np": (1, 9), "nwrkrs_esr": (0, 6), "veh": (0, 6), "hht": (1, 7), "bld": (1, 9)}
    columns: list[Column] = [Integer(name="PUMA", lower=1101, upper=1102)]
    columns += [Integer(name=name, lower=a, upper=b) for name, (a, b) in ranges.items()]
    columns.append(Numeric(name="hincp", edges=tuple(1000.0 * edge for edge in _INCOME)))
    return Domain((*columns, Numeric(name=WEIGHT, edges=tuple(edges))))


def coded(declared: Domain) -> NDArray[np.uint8]:
    """Codes uint8[n, d]."""
    frame = households()
    found = []
    for column in declared.columns:
        codes = {value: column.code_of(value) for value in frame[column.name].unique().tolist()}
        found.append(frame[column.name].map(codes).to_numpy(np.uint8))
    return np.stack(found, axis=1)


def weighted_pair_error(
    declared: Domain, codes: NDArray[Any], weights: NDArray[np.float64]
) -> float:
    """Mean total variation of the weighted shares of all pairs, from those by the exact weights.

    Args:
        declared: The columns, the weight last.
        codes: Of records, integers[n, d].
        weights: Their weights, float64[n].
    """
    true, exact = coded(declared), households()[WEIGHT].to_numpy(np.float64)
    found = []
    for a, b in itertools.combinations(range(len(declared.columns) - 1), 2):
        k = declared.columns[b].size
        cells = declared.columns[a].size * k
        tables = [
            np.bincount(each[:, a].astype(np.int64) * k + each[:, b], own, cells) / own.sum()
            for each, own in ((codes, weights), (true, exact))
        ]
        found.append(float(np.abs(tables[0] - tables[1]).sum()) / 2)
    return float(np.mean(found))
