"""The formats of a source by the suffix of its path, and the extra that some of them need."""

from __future__ import annotations

import importlib.util
from pathlib import PurePath
from types import MappingProxyType
from typing import Literal, TypeGuard

from mechanisms.errors import DependencyError

StatFormat = Literal["stata", "spss", "sas"]
LakeFormat = Literal["delta", "iceberg"]
SourceFormat = Literal["parquet", "csv"] | StatFormat | LakeFormat
_PACKAGES: dict[str, tuple[str, str, str]] = {
    "delta": ("deltalake", "Delta tables", "lake"),
    "iceberg": ("pyiceberg", "Iceberg tables", "lake"),
}
STAT_SUFFIXES: MappingProxyType[str, StatFormat] = MappingProxyType(
    {
        ".dta": "stata",
        ".sav": "spss",
        ".zsav": "spss",
        ".por": "spss",
        ".sas7bdat": "sas",
        ".xpt": "sas",
    }
)
"""Of files of Stata, SPSS and SAS."""
SOURCE_SUFFIXES = (".parquet", ".csv", *STAT_SUFFIXES)


def format_of(path: str) -> SourceFormat:
    """What the suffix of a path says; by default Parquet."""
    named = PurePath(path)
    if named.suffix.lower() in STAT_SUFFIXES:
        return STAT_SUFFIXES[named.suffix.lower()]
    return "csv" if ".csv" in named.suffixes else "parquet"


def is_stat(form: SourceFormat) -> TypeGuard[StatFormat]:
    """Whether files of a format are those of a statistical package."""
    return form in STAT_SUFFIXES.values()


def check_installed(form: SourceFormat, where: str) -> None:
    """See that files of a format can be read here.

    Raises:
        DependencyError: The extra for them is not installed.
    """
    stat = ("pyreadstat", "Files of Stata, SPSS and SAS", "stat")
    package, what, extra = _PACKAGES.get(form, stat)
    if (is_stat(form) or form in _PACKAGES) and importlib.util.find_spec(package) is None:
        raise DependencyError(
            f"{what} need the extra '{extra}', which is not installed.",
            where=where,
            next_step=f"Install it with: pip install 'statpress[{extra}]'",
        )
