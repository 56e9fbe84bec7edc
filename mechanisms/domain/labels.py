"""The published values of a column as text, as the files of a bundle have them."""

from __future__ import annotations

import numpy as np

from mechanisms.domain.column import Column


def labels(column: Column) -> list[str | None]:
    """Values by code, None for missing; a number has no decimals that it does not need.

    >>> from mechanisms.domain.columns import Numeric
    >>> labels(Numeric(name="pay", edges=(0.0, 20.0, 25.0), missing=True))
    ['10', '22.5', None]
    """
    found: list[str | None] = [
        str(value).removesuffix(".0") if isinstance(value, float) else str(value)
        for value in column.decode(np.arange(column.size)).tolist()
    ]
    if column.missing_code is not None:
        found[column.missing_code] = None
    return found
