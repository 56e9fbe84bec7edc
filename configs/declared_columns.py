"""The types of text and numbers in a config, and the ``domain`` section.

Budgets are exact decimals, edges finite doubles. Each kind of column has a model, which builds its
column.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import (
    Categorical,
    Column,
    Date,
    Integer,
    Numeric,
    Ordinal,
    Period,
)
from statpress.mechanisms.domain.domain import Runs, ZeroPattern, codes_of_values
from statpress.mechanisms.errors import ConfigError, EdgesError


def _printable(text: str) -> str:
    """One line without control characters, which could repaint a terminal."""
    if not text.isprintable():
        raise PydanticCustomError("ConfigError", "must be one line of printable text")
    return text


def _path(text: str) -> str:
    """A path, and not the key itself: the config is published with the bundle."""
    if "PRIVATE KEY" in text or re.match("M(C4|FE)CAQ|[0-9A-Fa-f]{64}$", text):
        raise PydanticCustomError(
            "ConfigError",
            "must be the path of a key file; the key itself must never stand in a config, which is "
            "published with the bundle: make a new one",
        )
    return text


def _paragraphs(text: str) -> str:
    """Lines without control characters; a break at the end, which YAML leaves, is dropped."""
    text = text.strip("\n ")
    if not text or not all(map(str.isprintable, text.split("\n"))):
        raise PydanticCustomError("ConfigError", "must be lines of printable text")
    return text


Line = Annotated[StrictStr, Field(min_length=1, max_length=1000), AfterValidator(_printable)]
KeyPath = Annotated[Line, AfterValidator(_path)]
Paragraphs = Annotated[
    StrictStr, Field(min_length=1, max_length=10_000), AfterValidator(_paragraphs)
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]


def _decimal(value: Any) -> Decimal:
    if isinstance(value, (int, Decimal, str)) and not isinstance(value, bool):
        try:
            exact = Decimal(value)
        except InvalidOperation:
            exact = Decimal("nan")
        if exact.is_finite():
            return exact
    raise PydanticCustomError("BudgetValueError", "must be a finite number")


def _epsilon(value: Any) -> Decimal:
    exact = _decimal(value)
    if not exact > 0:
        raise PydanticCustomError("BudgetValueError", "must be above 0")
    return exact


def _delta(value: Any) -> Decimal:
    exact = _decimal(value)
    if not 0 <= exact < 1:
        raise PydanticCustomError("BudgetValueError", "must be at least 0 and below 1")
    return exact


def _share(value: Any) -> Decimal:
    exact = _decimal(value)
    if not 0 < exact <= 1:
        raise PydanticCustomError("BudgetValueError", "must be above 0 and at most 1")
    return exact


def _finite(value: Any) -> float:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise PydanticCustomError("EdgesError", "must be a finite number")


def _positive_count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise PydanticCustomError("RecordsError", "must be a whole number, 1 or more")


Epsilon = Annotated[Decimal, BeforeValidator(_epsilon), Field(gt=0)]
Delta = Annotated[Decimal, BeforeValidator(_delta), Field(ge=0, lt=1)]
Share = Annotated[Decimal, BeforeValidator(_share), Field(gt=0, le=1)]
FiniteNumber = Annotated[float, BeforeValidator(_finite)]
Count = Annotated[int, BeforeValidator(_positive_count), Field(ge=1)]


class Section(BaseModel):
    """A part of the config: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class CategoriesFile(Section):
    """Categories kept in a text file of their own, one a line, UTF-8; or the text itself."""

    file: StrictStr


ReadLines = Callable[[str], list[str]]
Category = StrictBool | StrictInt | StrictStr | Decimal


def _range_end(value: Any) -> Any:
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if (number and Decimal(value).is_finite()) or type(value) is datetime.date:
        return value
    raise PydanticCustomError("ConfigError", "must be a number or a date")


RangeEnd = Annotated[StrictInt | Decimal | datetime.date, BeforeValidator(_range_end)]


class _Column(Section):
    missing: bool = Field(default=False, description="Give nulls a cell of their own.")
    label: Line | None = Field(default=None, description="What the column is, for people.")
    description: Line | None = Field(default=None, description="What else a reader has to know.")
    unit: Annotated[Line, Field(max_length=100)] | None = Field(
        default=None, description="Of the values, such as 'EUR per month'."
    )


class _Categories(_Column):
    categories: Annotated[list[Category], Field(min_length=1)] | CategoriesFile
    other: bool = Field(default=False, description="Give undeclared values a cell of their own.")
    value_labels: Annotated[list[Line], Field(min_length=1)] | None = Field(
        default=None, description="What each category means, in their order."
    )
    column: ClassVar[Callable[..., Column]] = Categorical

    def build(self, name: str, read_lines: ReadLines) -> Column:
        categories = _categories(self.categories, read_lines)
        if self.value_labels is not None and len(self.value_labels) != len(categories):
            raise ConfigError(
                f"There are {len(self.value_labels)} value_labels for {len(categories)} "
                "categories.",
                where=name,
                next_step="Give one for each category, in their order.",
            )
        return type(self).column(
            name=name,
            categories=categories,
            other=self.other,
            missing=self.missing,
        )


class CategoricalColumn(_Categories):
    """Declared categories."""

    type: Literal["categorical"]


class OrdinalColumn(_Categories):
    """Declared categories whose order has a meaning."""

    type: Literal["ordinal"]
    column: ClassVar[Callable[..., Column]] = Ordinal


_Special = Field(
    default=None,
    min_length=1,
    description="Values with cells of their own, inside the range or outside, such as 0 or 99999.",
)


class _Ranges(_Column):
    special: list[Any] | None = _Special
    value_labels: Annotated[list[Line], Field(min_length=1)] | None = Field(
        default=None, description="What each special value means, in their order."
    )

    @model_validator(mode="after")
    def _a_label_each(self) -> Self:
        n_labels, n_special = len(self.value_labels or ()), len(self.special or ())
        if self.value_labels and n_labels != n_special:
            raise PydanticCustomError(
                "ConfigError",
                "there are {n_labels} value_labels for {n_special} special values; give one for "
                "each of 'special', in their order",
                {"n_labels": n_labels, "n_special": n_special},
            )
        return self

    @property
    def _common(self) -> dict[str, Any]:
        return {"special": tuple(self.special or ()), "missing": self.missing}


class IntegerColumn(_Ranges):
    """Whole numbers lower..upper in cells of ``width`` values, clamped."""

    type: Literal["integer"]
    lower: StrictInt
    upper: StrictInt
    width: StrictInt = 1
    special: list[StrictInt] | None = _Special

    def build(self, name: str, read_lines: ReadLines) -> Column:
        return Integer(
            name=name, lower=self.lower, upper=self.upper, width=self.width, **self._common
        )


class NumericColumn(_Ranges):
    """Real numbers in bins: either ``edges``, or ``lower``, ``upper`` and ``bins``."""

    type: Literal["numeric"]
    special: list[FiniteNumber] | None = _Special
    edges: list[FiniteNumber] | None = None
    lower: FiniteNumber | None = None
    upper: FiniteNumber | None = None
    bins: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = None
    whole: bool = Field(
        default=False,
        strict=True,
        description="The numbers are whole: a cell counts as the mean of the whole numbers in it.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [value is not None for value in (self.lower, self.upper, self.bins)]
        if any(given) if self.edges is not None else not all(given):
            raise PydanticCustomError(
                "EdgesError", "give either edges, or all of lower, upper and bins"
            )
        return self

    def build(self, name: str, read_lines: ReadLines) -> Column:
        edges = self.edges
        if edges is None:
            assert self.lower is not None and self.upper is not None and self.bins is not None
            if self.lower >= self.upper:
                raise EdgesError("lower must be below upper.", where=name)
            edges = list(Numeric.uniform_edges(self.lower, self.upper, self.bins))
        return Numeric(name=name, edges=tuple(edges), whole=self.whole, **self._common)


class DateColumn(_Ranges):
    """Calendar dates first..last by year, month or day, clamped."""

    type: Literal["date"]
    first: datetime.date
    last: datetime.date
    by: Period = "month"
    special: list[datetime.date] | None = _Special

    def build(self, name: str, read_lines: ReadLines) -> Column:
        return Date(name=name, first=self.first, last=self.last, by=self.by, **self._common)


ColumnConfig = Annotated[
    CategoricalColumn | OrdinalColumn | IntegerColumn | NumericColumn | DateColumn,
    Field(discriminator="type"),
]
COLUMNS: Mapping[str, type[Section]] = {
    "categorical": CategoricalColumn,
    "ordinal": OrdinalColumn,
    "integer": IntegerColumn,
    "numeric": NumericColumn,
    "date": DateColumn,
}


class RangeConfig(Section):
    """A range of whole cells, both ends included; an end left out is the column's own."""

    lower: RangeEnd | None = None
    upper: RangeEnd | None = None


def _zero_form(value: Any) -> str:
    return "as values" if isinstance(value, list) else "as range"


def _values_or_range(value: Any) -> Any:
    if isinstance(value, (list, dict, RangeConfig)):
        return value
    raise PydanticCustomError("ConfigError", "must be a list of values, or a range")


Values = Annotated[list[Category | None], Field(min_length=1)]
ValuesOrRange = Annotated[
    Annotated[Values, Tag("as values")] | Annotated[RangeConfig, Tag("as range")],
    Discriminator(_zero_form),
    BeforeValidator(_values_or_range),
]
ZeroConfig = Annotated[dict[StrictStr, ValuesOrRange], Field(min_length=1)]
"""One pattern of structural zeros: per column its values, or its range."""


def build_zero(declared: ZeroConfig, columns: Mapping[str, Column]) -> ZeroPattern:
    """The pattern of one structural zero.

    Raises:
        ConfigError: A column or a value is not declared, or a range not of whole cells.
    """
    sets = []
    for name, values in declared.items():
        if name not in columns:
            raise ConfigError(f"The domain declares no column '{name}'.", where=name)
        if isinstance(values, RangeConfig):
            runs = codes_of_range(columns[name], values.lower, values.upper)
        else:
            runs = codes_of_values(
                columns[name], [None if v is None else _plain(v) for v in values]
            )
        sets.append((name, runs))
    return ZeroPattern(tuple(sets))


def _plain(category: Category) -> str | int | float | bool:
    return float(category) if isinstance(category, Decimal) else category


def _categories(
    declared: list[Category] | CategoriesFile, read_lines: ReadLines
) -> tuple[str | int | float | bool, ...]:
    if isinstance(declared, CategoriesFile):
        lines = read_lines(declared.file)
        if not lines:
            raise ConfigError(f"The categories file '{declared.file}' is empty.")
        return tuple(lines)
    return tuple(map(_plain, declared))


End = int | float | Decimal | datetime.date | None

_FARTHEST = 2**1000
_SAME_EDGE = Fraction(1, 10**9)  # of a bin's width, between an edge and how it is written


def codes_of_range(column: Column, lower: End, upper: End) -> Runs:
    """The codes of a range, both ends included; an end that is None has no limit.

    Special values within the range are in it.

    Raises:
        ConfigError: The range does not consist of whole cells, or the column has no range.
    """
    n = column.n_bins if isinstance(column, Ranges) else column.n_values
    if isinstance(column, Integer):
        first = 0 if lower is None else _whole(lower, column.lower, column.width)
        last = n if upper is None else _whole(upper, column.lower - 1, column.width)
    elif isinstance(column, Numeric):
        first = 0 if lower is None else _edge(column, lower)
        last = n if upper is None else _edge(column, upper)
    elif isinstance(column, Date):
        first = 0 if lower is None else _begin(column, lower)
        last = n if upper is None else _end(column, upper)
    else:
        raise ConfigError(
            f"A column of kind {column.kind} has no range.",
            where=column.name,
            next_step="List the values.",
        )
    if first is None or last is None or not 0 <= first < last <= n:
        raise ConfigError(
            "The range does not consist of whole cells of the column.",
            where=column.name,
            next_step="Begin with the first and end with the last value of a declared cell.",
        )
    codes = column.codes_of_bins(np.array([first, last - 1])).tolist()
    for special, code in zip(column.special, column.special_codes.tolist(), strict=True):
        above = lower is None or special >= column.begin_of(first)
        ends = special < column.begin_of(last) if last < n else special <= column.extent[1]
        if above and (upper is None or ends):
            codes.append(code)
    return ((min(codes), max(codes)),)


def _number(end: End) -> Fraction | None:
    """An end as an exact number; None for a date, and beyond all columns."""
    if not isinstance(end, (int, float, Decimal)) or not -_FARTHEST < end < _FARTHEST:
        return None
    return Fraction(end)


def _whole(end: End, start: int, width: int) -> int | None:
    """How many cells lie between the start and an end that is the border of one."""
    number = _number(end)
    cells = None if number is None else (number - start) / width
    return int(cells) if cells is not None and cells.denominator == 1 else None


def _edge(column: Numeric, end: End) -> int | None:
    """Index of the edge that an end is; decimals are written with few digits."""
    number = _number(end)
    if number is None:
        return None
    edges = column.edge_array
    index = int(np.argmin(np.abs(edges - float(number))))
    nearby = edges[max(index - 1, 0) : index + 2].tolist()
    width = min(Fraction(b) - Fraction(a) for a, b in itertools.pairwise(nearby))
    return index if abs(Fraction(column.edges[index]) - number) <= width * _SAME_EDGE else None


def _begin(column: Date, end: End) -> int | None:
    """Code of the period that begins on a day."""
    if not isinstance(end, datetime.date) or not column.first <= end <= column.last:
        return None
    period = column.period_of(end)
    begins = end == column.first or column.period_of(end - datetime.timedelta(1)) < period
    return period - column.period_of(column.first) if begins else None


def _end(column: Date, end: End) -> int | None:
    """One more than the code of the period that ends on a day."""
    if not isinstance(end, datetime.date) or not column.first <= end <= column.last:
        return None
    period = column.period_of(end)
    ends = end == column.last or column.period_of(end + datetime.timedelta(1)) > period
    return period - column.period_of(column.first) + 1 if ends else None
