"""The formats of a bundle's tables; imports nothing heavy, since the command line needs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Literal, get_args

from mechanisms.errors import DependencyError

Format = Literal["parquet", "csv", "dta", "sav"]
"""A format is also the suffix of its files, and the name of its module in ``tasks.formats``."""

FORMATS: tuple[Format, ...] = get_args(Format)
DEFAULT: tuple[Format, ...] = ("parquet", "csv")
"""What a config has that names none."""
STAT: tuple[Format, ...] = ("dta", "sav")
"""Files of Stata and SPSS."""
PACKAGES = {"dta": "Stata", "sav": "SPSS"}
"""What opens files of these formats."""

FORMULA_MARKS = "=+-@\t\r"
"""What a cell of a CSV file begins with that a spreadsheet takes for a formula."""


def check_writable(formats: Sequence[str], where: str) -> None:
    """See that files of formats can be written here.

    Raises:
        DependencyError: The extra for them is not installed.
    """
    if not {*formats} & {*STAT} or importlib.util.find_spec("pyreadstat") is not None:
        return
    raise DependencyError(
        "Files of Stata and SPSS need the extra 'stat', which is not installed.",
        where=where,
        next_step="Install it with: pip install 'statpress[stat]'",
    )
