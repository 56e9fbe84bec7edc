"""The ``source`` section: where the records lie, and how a CSV is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from configs.models.domain import Section
from configs.models.source_formats import SourceFormat, format_of
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

    path: Line = Field(description="File or glob, relative to the folder of the config.")
    format: SourceFormat | None = Field(
        default=None, description="By default what the suffix says."
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
        if self.form != "csv":
            for name in sorted(self.model_fields_set - {"path", "format"}):
                raise PydanticCustomError(
                    "ConfigError", f"'{name}' is for a CSV only; say 'format: csv' if it is one"
                )
        if self.thousands == self.decimal:
            raise PydanticCustomError("ConfigError", "decimal and thousands must differ")
        return self

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
