"""The ``source`` section: where the records lie, and how a CSV is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from configs.models.domain import Section
from configs.models.source_formats import SourceFormat, check_installed, format_of
from configs.models.targets import Endpoint, Region
from configs.models.text import Line
from mechanisms.domain.columns import Categorical, Column, Date
from mechanisms.errors import ConfigError

Delimiter = Literal[",", ";", "\t", "|", ":", " ", "^", "~"]
Thousands = Literal[".", ",", " ", "'", "\u2019", "\u00a0", "\u202f", "_"]
Encoding = Literal[
    "utf-8", "utf-16", "latin-1", "windows-1250", "windows-1251", "windows-1252", "windows-1253",
    "windows-1254", "windows-1257", "iso-8859-2", "iso-8859-5", "iso-8859-7", "iso-8859-9",
    "iso-8859-15", "koi8-r", "mac-roman", "cp437", "cp850", "shift_jis", "euc-jp", "euc-kr",
    "gb18030", "big5",
]  # fmt: skip
_REMOTE = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^?#@]{1,900}"
_OF = {"endpoint": "s3://", "region": "s3://", "version": "a Delta or Iceberg table"}
_DIRECTIVES = frozenset("YymdbBjHIMSfp%")
_PARTS: Mapping[str, tuple[str, ...]] = {
    "year": ("Yy",),
    "month": ("Yy", "mbBj"),
    "day": ("Yy", "mbBj", "dj"),
}
"""What the format of a date must state, by the period that a column is released by."""


def _date_format(text: str) -> str:
    used = re.findall("%(-?.?)", text)
    unknown = [each for each in used if each.removeprefix("-") not in _DIRECTIVES]
    if unknown:
        raise PydanticCustomError(
            "ConfigError",
            "must be of %Y %y %m %d %b %B %j %H %I %M %S %f %p and the text between",
        )
    if not _states(text, "year"):
        raise PydanticCustomError("ConfigError", "must have the year, %Y")
    return text


def _states(form: str, period: str) -> bool:
    """Whether the format of a date says which period it lies in."""
    stated = {each.removeprefix("-") for each in re.findall("%(-?.?)", form)}
    return all(stated & set(choice) for choice in _PARTS[period])


class SourceConfig(Section):
    """Where the confidential records lie, and how a CSV is written."""

    engine: Literal["duckdb"] = Field(default="duckdb", description="What counts the records.")
    path: Line = Field(description="File or glob, relative to the folder of the config.")
    format: SourceFormat | None = Field(
        default=None, description="By default what the suffix says."
    )
    endpoint: Endpoint | None = Field(
        default=None, description="Address of the store of s3://; by default that of AWS."
    )
    region: Region | None = Field(
        default=None, description="Of that store; by default what environment or profile say."
    )
    version: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="Of a Delta table, or the snapshot of an Iceberg one; by default the newest.",
    )
    delimiter: Delimiter = Field(default=",", description="Between the fields of a CSV.")
    encoding: Encoding = Field(default="utf-8", description="Of the text of a CSV.")
    decimal: Literal[".", ","] = Field(default=".", description="Decimal mark of a CSV's numbers.")
    thousands: Thousands | None = Field(
        default=None, description="Between the groups of digits of a CSV's numbers."
    )
    date_format: Annotated[Line, AfterValidator(_date_format)] | None = Field(
        default=None, description="Of a CSV's dates, such as '%d.%m.%Y'; by default ISO 8601."
    )
    null_values: list[Annotated[StrictStr, Field(max_length=100)]] = Field(
        default_factory=list,
        description="Fields of a CSV that stand for no value, as an empty one always does.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        remote, table = self.path.startswith("s3://"), self.form in ("delta", "iceberg")
        allowed = {"engine", "path", "format"}
        allowed |= ({"endpoint", "region"} if remote else set()) | ({"version"} if table else set())
        if "://" in self.path and not re.fullmatch(_REMOTE, self.path):
            raise PydanticCustomError(
                "ConfigError",
                "path must be a file, or s3://bucket/key without user, password or query",
            )
        if remote and not table and self.form != "parquet":
            raise PydanticCustomError("ConfigError", "files in a store must be of Parquet")
        for name in sorted(self.model_fields_set & {"endpoint", "region", "version"} - allowed):
            raise PydanticCustomError("ConfigError", f"'{name}' is for {_OF[name]} only")
        if self.form != "csv":
            for name in sorted(self.model_fields_set - allowed):
                raise PydanticCustomError(
                    "ConfigError", f"'{name}' is for a CSV only; say 'format: csv' if it is one"
                )
        if self.thousands == self.decimal:
            raise PydanticCustomError("ConfigError", "decimal and thousands must differ")
        return self

    @property
    def reader(self) -> str:
        """The module that opens it."""
        arrow = self.path.startswith("s3://") or self.form in ("delta", "iceberg")
        return "arrow" if arrow else self.engine

    @property
    def kind(self) -> str:
        """What it is, in words."""
        place = " in an object store" if self.path.startswith("s3://") else ""
        return f"files ({self.form}){place}"

    @property
    def place(self) -> str:
        """Its public name."""
        return self.path

    @property
    def files(self) -> str | None:
        """The path or glob of its files on this machine."""
        return self.path if self.reader == self.engine else None

    def check_installed(self, where: str) -> None:
        """See that its files can be read here.

        Raises:
            DependencyError: The extra for them is not installed.
        """
        check_installed(self.form, where)

    @property
    def form(self) -> SourceFormat:
        """The format, as declared or by the suffix."""
        return self.format or format_of(self.path)

    def check_column(self, column: Column) -> None:
        """Refuse what a column declares and no field of the CSV can be.

        Raises:
            ConfigError: Without a place.
        """
        if isinstance(column, Categorical):
            lost = [c for c in column.categories if c in self.null_values]
            if lost:
                raise ConfigError(f"The category '{lost[0]}' is also in source.null_values.")
        form = self.date_format
        if isinstance(column, Date) and form is not None and not _states(form, column.by):
            raise ConfigError(f"source.date_format '{form}' does not say the {column.by}.")
