"""Formats of bundles and sources; imports nothing heavy, since the command line needs them.

Files of Stata and SPSS have rules of their own for names and values. Sources: Stata User's Guide,
11.3 (names of up to 32 characters, reserved words) and 12.2.2 (the largest double is 8.988e+307);
IBM SPSS Statistics, "Variable names" (64 bytes, no two that differ by case only, reserved words)
and "Variable types" (text of up to 32,767 bytes, without blanks at its end). Both take an empty
text for a missing one. Names are kept to ASCII, which every version reads.
"""

from __future__ import annotations

import importlib.util
import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Literal, TypeGuard, get_args

from statpress.mechanisms.errors import DependencyError

Format = Literal["parquet", "csv", "dta", "sav"]
"""A format is also the suffix of its files, and its name in ``tasks.bundle.file_formats``."""

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


LONGEST = {"dta": 31, "sav": 64}
"""Stata takes 32, but value labels go by the variable's name, and ReadStat gives them 31."""
_RESERVED = {
    "dta": frozenset((
        "_all", "_b", "byte", "_coef", "_cons", "double", "float", "if", "in", "int", "long", "_n",
        "_pi", "_pred", "_rc", "_skip", "using", "strl", "with",
    )),
    "sav": frozenset((
        "all", "and", "by", "eq", "ge", "gt", "le", "lt", "ne", "not", "or", "to", "with",
    )),
}  # fmt: skip
LARGEST = 8.9e307
"""Numbers beyond stand for missing values in Stata."""
MOST_BYTES = 32_767
"""Of a text in SPSS."""


def stored_name(name: str, form: str) -> str:
    """The name of a column as a file has it; that of another column may become the same.

    >>> stored_name("Größe (cm)", "dta"), stored_name("2nd", "sav"), stored_name("if", "dta")
    ('Grosse_cm', 'v_2nd', 'if_')
    """
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    found = re.sub(r"[^A-Za-z0-9_]+", "_", plain)
    if found != name:
        found = found.strip("_")
    if not re.match(r"[A-Za-z]", found):
        found = f"v_{found.lstrip('_')}"
    reserved = found.casefold() in _RESERVED[form] or re.fullmatch(r"str[0-9]+", found)
    return f"{found}_" if reserved else found[: LONGEST[form]]


def fault_of(value: object, form: str) -> str | None:
    """What keeps a declared value out of a file; None if nothing does.

    >>> fault_of("", "dta"), fault_of("a ", "sav"), fault_of("a ", "dta"), fault_of(1e308, "dta")
    ('empty text stands for missing', 'blanks at the end are dropped', None, \
'numbers beyond 8.9e+307 stand for missing')
    """
    if isinstance(value, str):
        if not value:
            return "empty text stands for missing"
        if "\0" in value:
            return "text ends at a null character"
        if form == "sav" and value != value.rstrip(" "):
            return "blanks at the end are dropped"
        if len(value.encode()) > MOST_BYTES:
            return f"text has at most {MOST_BYTES:,} bytes"
    elif isinstance(value, float) and abs(value) > LARGEST:
        return f"numbers beyond {LARGEST} stand for missing"
    elif isinstance(value, int) and abs(value) > 2**53:
        return "whole numbers have at most 53 bits"
    return None


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
