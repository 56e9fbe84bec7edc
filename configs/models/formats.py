"""The formats of a bundle's tables; imports nothing heavy, since the command line needs it."""

from __future__ import annotations

from typing import Literal, get_args

Format = Literal["parquet", "csv"]
"""A format is also the suffix of its files, and the name of its module in ``tasks.formats``."""

FORMATS: tuple[Format, ...] = get_args(Format)
