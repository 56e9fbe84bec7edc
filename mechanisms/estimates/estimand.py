"""What an estimate is of: a statistic of declared columns, scaled to [0, 1] and back.

``EstimandKnobs`` is what a config says of an estimate, whatever the mechanism; an ``Estimand`` is
that, resolved against the domain.

Every mechanism for estimates works on columns with values in [0, 1]. The declared bounds of
the domain scale them, so nothing is inferred from the data; a cell counts by its released
value (the middle of a bin). Columns with many bins cost an estimate nothing.

``where`` keeps some records: a mean becomes the ratio of two sums, a sum or a count is taken of
records that count as 0 elsewhere. Records without a value (``missing``, ``other``, a special value
outside the range) are left out of a mean, a median, a quantile or a regression; other statistics
are refused a column that can lack values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from statpress.mechanisms.domain.column import Ranges, in_words
from statpress.mechanisms.domain.columns import (
    Category,
    Codes,
    Column,
    Date,
    Integer,
    Numeric,
    Total,
)
from statpress.mechanisms.domain.domain import Domain, codes_of_values
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.fieller import Floats, check_level
from statpress.mechanisms.estimates.statistics import (
    STATISTICS,
    NamedStatistic,
    Statistic,
    Terms,
    named,
)
from statpress.mechanisms.mechanism import Per, UserDefined

if TYPE_CHECKING:
    StatisticName = str
else:
    StatisticName = Literal[tuple(STATISTICS)]


@dataclass(frozen=True, kw_only=True)
class Among:
    """Records by their value in one column.

    Attributes:
        column: Declared in the domain.
        values: Declared values of it; null is the missing cell.
    """

    column: str
    values: tuple[Category | None, ...]


@dataclass(frozen=True, kw_only=True)
class Clamped:
    """Bounds that figures beyond are clamped to.

    Attributes:
        lower: The lower one, finite.
        upper: The upper one, above it.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not -math.inf < self.lower < self.upper < math.inf:
            raise ConfigError("'lower' must be below 'upper', and both finite.")


_INSTEAD = {
    "group": "For a figure of one group only, name its records under 'where'; to compare a group "
    "with the rest, write 'statistic: difference'.",
    "where": "Give the product only columns and a statistic that 'where' goes with; to compare a "
    "group with the rest, write 'statistic: difference' with 'group'.",
}
"""What to do instead, by the key that does not go with a statistic."""


def _takers(key: str) -> str:
    """The statistics that a key goes with, in words."""
    names = [name for name, each in STATISTICS.items() if key in each.needs + each.allows]
    return f"the {' or '.join([', '.join(names[:-1]), names[-1]] if names[1:] else names)}"


@dataclass(frozen=True, kw_only=True)
class EstimandKnobs:
    """What a config says of an estimate, whatever the mechanism.

    Attributes:
        statistic: Its name.
        function: Instead, a user-defined statistic (``mechanisms.estimates.statistics``),
            which a config names as ``module:name``.
        confidence: Level of the interval.
        values: For a count or a proportion: the values of the column that count.
        q: For a quantile: the share of records below it.
        group: For a difference: the group whose mean is compared with that of the rest.
        where: Records that count at all, for a count, proportion, mean or sum.
        categories: For a regression: predictors whose values are numbers, but that count by
            categories, as those without numbers do.
        inference: An interval by normal approximation, or one that is proven to cover for every
            population in the declared bounds.
        per: Of units with several records what counts one: each record, or each unit, whose
            records share it.
        total: For a sum by unit: what the records of one hold together is clamped to.
    """

    statistic: StatisticName | None = None
    function: UserDefined | None = None
    confidence: float = 0.95
    values: tuple[Category | None, ...] | None = None
    q: Fraction | None = None
    group: Among | None = None
    where: Among | None = None
    categories: tuple[str, ...] | None = None
    inference: Literal["asymptotic", "guaranteed"] = "asymptotic"
    per: Per | None = None
    total: Clamped | None = None

    def __post_init__(self) -> None:
        check_level(self.confidence)
        if (self.statistic is None) == (self.function is None):
            raise ConfigError("An estimate needs either a statistic or a function.")
        statistic = named(self.statistic) if self.statistic else None
        needs = statistic.needs if statistic else ()
        allows = statistic.allows if statistic else ()
        for name, given in {
            "values": self.values, "q": self.q, "group": self.group, "where": self.where,
            "categories": self.categories,
        }.items():  # fmt: skip
            if given is not None and name not in needs + allows:
                raise ConfigError(
                    f"'{name}' does not go with {self.named}, but with {_takers(name)}.",
                    where=name,
                    next_step=_INSTEAD.get(name, ""),
                )
            if given is None and name in needs:
                raise ConfigError(f"{self.named.capitalize()} needs '{name}'.", where="statistic")
        of_totals = self.per == "unit" and self.statistic == "sum"
        if of_totals and self.total is None:
            raise ConfigError(
                "A sum over units adds up what each holds in total, clamped to bounds that are "
                "not given.",
                where="per",
                next_step="Give 'total: {lower: …, upper: …}', or write 'per: record'.",
            )
        if self.total is not None and (not of_totals or self.where is not None):
            raise ConfigError(
                "A 'total' goes with a sum 'per: unit' of all records.",
                where="total",
                next_step="Leave 'total' out.",
            )
        if self.q is not None and not 0 < self.q < 1:
            raise ConfigError("A quantile's share must be above 0 and below 1.", where="q")

    @property
    def named(self) -> str:
        """The statistic in words."""
        return f"the {self.statistic}" if self.statistic else f"the function {self.function}"

    @property
    def guaranteed(self) -> bool:
        """Whether the interval must cover for every population."""
        return self.inference == "guaranteed"

    @property
    def columns_beside(self) -> tuple[str, ...]:
        """Columns that it uses in addition to those of the statistic itself."""
        return tuple(among.column for among in (self.group, self.where) if among is not None)


def _by_codes(column: Column) -> str:
    """How a column can lack a value other than by a null, in brackets; empty if it cannot."""
    codes = column.outlying if isinstance(column, Ranges) else ()
    return f" (the special value {in_words(codes[0])} lies outside its range)" if codes else ""


def amounts_of(column: Column) -> range:
    """The codes with a value: not ``other``, missing, or a special value outside the range."""
    return column.amounts if isinstance(column, Ranges) else range(column.n_values)


_MOST_CATEGORIES = 40


@dataclass(frozen=True)
class Argument:
    """A column of a statistic: a number in declared bounds, or 1 and 0.

    Attributes:
        name: Of the domain's column.
        lower: What is scaled to 0.
        upper: What is scaled to 1.
        chosen: Codes that count as 1 where all others count as 0; None for numbers.
        words: What it is called, if not by its name.
    """

    name: str
    lower: float
    upper: float
    chosen: frozenset[int] | range | None = None
    words: str = ""

    @classmethod
    def number(cls, column: Column) -> Self:
        """A column of numbers, by the bounds of its declaration."""
        if isinstance(column, Numeric):
            bounds = (column.edges[0], column.edges[-1])
        elif isinstance(column, Integer):
            bounds = (float(column.lower), float(column.upper))
        elif isinstance(column, Total):
            bounds = (column.lower, column.upper)
        else:
            dated = isinstance(column, Date)
            values: list[Any] = [] if dated else column.decode(np.arange(column.n_values)).tolist()
            if dated or not all(type(value) in (int, float) for value in values):
                raise ConfigError(f"Column '{column.name}' has no numbers.", where="columns")
            bounds = (float(min(values)), float(max(values)))
        if not bounds[0] < bounds[1]:
            raise ConfigError(
                f"Column '{column.name}' can have only one value: there is nothing to estimate.",
                where="columns",
            )
        return cls(column.name, *bounds)

    @classmethod
    def indicator(cls, column: Column, values: tuple[Category | None, ...]) -> Self:
        """1 for the values named, 0 for all others."""
        runs = codes_of_values(column, list(values))
        codes = frozenset(code for first, last in runs for code in range(first, last + 1))
        if not 0 < len(codes) < column.size:
            raise ConfigError(
                f"Some values of column '{column.name}' must be named, and not all of them.",
                where="values",
            )
        return cls(column.name, 0.0, 1.0, codes)

    @classmethod
    def predictor(cls, column: Column, by_category: bool) -> tuple[Self, ...]:
        """A column of numbers, or indicators of all its categories but the first."""
        by_category = by_category or isinstance(column, Date)
        if not by_category:
            values = column.decode(np.arange(min(column.n_values, 1))).tolist()
            by_category = not all(type(value) in (int, float) for value in values)
        if not by_category:
            return (cls.number(column),)
        codes = amounts_of(column)
        if not 2 <= len(codes) <= _MOST_CATEGORIES:
            raise ConfigError(
                f"Column '{column.name}' has {len(codes)} categories; as a predictor it may have "
                f"2 to {_MOST_CATEGORIES}.",
                where="columns",
                next_step="Declare other categories, or leave the predictor out.",
            )
        first, *others = column.decode(np.array(codes)).tolist()
        return tuple(
            cls(column.name, 0.0, 1.0, frozenset([code]), f"{column.name} {value} against {first}")
            for code, value in zip(codes[1:], others, strict=True)
        )

    def scaled(self, domain: Domain, cells: Codes) -> Floats:
        """float64[k] in [0, 1] of cells int64[k]; 0 where a number or the record is lacking."""
        absent = domain.is_absent(cells)
        if np.any(absent):
            there = np.zeros(len(cells))
            there[~absent] = self.scaled(domain, cells[~absent])
            return there
        codes, column = domain.codes(cells, self.name), domain[self.name]
        if isinstance(self.chosen, range):  # of perhaps very many codes
            return ((codes >= self.chosen.start) & (codes < self.chosen.stop)).astype(np.float64)
        if self.chosen is not None:
            return np.isin(codes, list(self.chosen)).astype(np.float64)
        amounts = amounts_of(column)
        plain = (codes >= amounts.start) & (codes < amounts.stop)
        values = column.decode(np.where(plain, codes, 0)).astype(np.float64)
        shares = (np.clip(values, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        return np.asarray(np.where(plain, shares, 0.0))


@dataclass(frozen=True)
class Estimand:
    """A statistic of the records of a table, resolved against the domain.

    Attributes:
        knobs: As declared.
        arguments: Columns of the statistic, each in [0, 1].
        statistic: The one named, or what a user-defined one declares.
        kept: Indicators of which all must be 1 for a record to count at all.
        padded: Whether units may lack records, which do not count.
    """

    knobs: EstimandKnobs
    arguments: tuple[Argument, ...]
    statistic: NamedStatistic
    kept: tuple[Argument, ...] = ()
    padded: bool = False

    @classmethod
    def resolve(cls, knobs: EstimandKnobs, domain: Domain) -> Self:
        """The estimand of a declaration, for the product's own columns.

        Args:
            knobs: As declared.
            domain: The columns of the statistic in its order, then the other ones it uses.

        Raises:
            ConfigError: The columns do not suit the statistic.
        """
        own = checked(knobs.function) if knobs.function else None
        if own is not None:
            statistic = NamedStatistic(name=str(knobs.function), columns=own.columns, bounded=own)
        else:
            statistic = named(str(knobs.statistic))
        wanted = max(statistic.columns, len(domain.names) if statistic.several else 0)
        beside = [name for name in knobs.columns_beside if name not in domain.names[:wanted]]
        if len(domain.names) != wanted + len(set(beside)):
            raise ConfigError(
                f"{knobs.named.capitalize()} takes {wanted} {'or more ' * statistic.several}"
                f"column{'s' * (wanted > 1)}.",
                where="columns",
            )
        columns = [domain[name] for name in domain.names[:wanted]]
        kept: tuple[Argument, ...] = ()
        if knobs.where is not None:
            kept = (_among(domain, knobs.where),)
        if domain.absent:
            _check_per_record(knobs, statistic)
        if knobs.values is not None:
            chosen = Argument.indicator(columns[0], knobs.values)
            return cls(knobs, (chosen,), statistic, kept, domain.absent)
        lacking = [column for column in columns if len(amounts_of(column)) < column.size]
        if lacking and statistic.leaves_out_missing:
            kept += tuple(Argument(each.name, 0.0, 1.0, amounts_of(each)) for each in lacking)
        elif lacking:
            raise ConfigError(
                f"Column '{lacking[0].name}' can lack a value{_by_codes(lacking[0])}, and "
                f"{knobs.named} needs one.",
                where="columns",
                next_step="Ask for a mean, a median, a quantile or a regression, which leave such "
                "records out. To drop 'missing' from the domain would count nulls as the lowest "
                "value.",
            )
        if statistic.several:
            arguments = _regression(columns, knobs.categories or ())
        else:
            arguments = tuple(map(Argument.number, columns))
        if knobs.group is not None:
            arguments += (_among(domain, knobs.group),)
        return cls(knobs, arguments, statistic, kept, domain.absent)

    @property
    def of_some(self) -> bool:
        """Whether some records do not count: a padded one, or one that is not kept."""
        return bool(self.kept) or self.padded

    @property
    def spans(self) -> tuple[Argument, ...]:
        """The columns; the bounds of one hold 0 if records that do not count are 0 in it."""
        if not self.of_some or len(self.arguments) > 1:
            return self.arguments
        (argument,) = self.arguments
        lower, upper = min(argument.lower, 0.0), max(argument.upper, 0.0)
        return (replace(argument, lower=lower, upper=upper),)

    def columns(self, domain: Domain, cells: Codes) -> Floats:
        """The columns float64[k, c] in [0, 1]; what does not count is 0 in its own units."""
        scaled = np.column_stack([span.scaled(domain, cells) for span in self.spans])
        if not self.of_some:
            return scaled
        (span,) = self.spans
        zero = -span.lower / (span.upper - span.lower)
        return np.where(self.keeps(domain, cells)[:, None] > 0, scaled, zero)

    def terms(self, n_records: int, spans: tuple[Argument, ...]) -> Terms:
        """What is stated of the estimates, of columns scaled from these ranges."""
        return Terms(
            self.statistic.quantities(self.quantity()),
            self.statistic.own_units(spans, n_records),
            self.knobs.confidence,
        )

    def quantity(self) -> str:
        """What is estimated, in words that a config's reader knows."""
        knobs, names = self.knobs, [argument.name for argument in self.arguments]
        figure = self.statistic.name
        if knobs.q is not None:
            figure = f"{float(knobs.q):g} {figure}"
        of = " and ".join(names if knobs.group is None else names[:-1])
        if self.statistic.several:
            response, *others = dict.fromkeys(names)
            of = f"{response} on {' and '.join(filter(None, (', '.join(others[:-1]), others[-1])))}"
        if knobs.values is not None:
            of = _listed(names[0], knobs.values)
        text = f"{figure} of {of}"
        if knobs.group is not None:
            text += f" between {_listed(knobs.group.column, knobs.group.values)} and the rest"
        if knobs.where is not None:
            text += f" where {_listed(knobs.where.column, knobs.where.values)}"
        if knobs.per is not None:
            text += f", each {knobs.per} counting one"
        if knobs.total is not None:
            text += f" by its total from {knobs.total.lower:g} to {knobs.total.upper:g}"
        return text

    def keeps(self, domain: Domain, cells: Codes) -> Floats:
        """float64[k]: 1 for cells of records that count, 0 for the others."""
        kept = np.where(domain.is_absent(cells), 0.0, 1.0)
        for argument in self.kept:
            kept *= argument.scaled(domain, cells)
        return kept


def checked(own: UserDefined) -> Statistic:
    """A user-defined statistic that has all parts of the protocol, or a ConfigError."""
    name, statistic = own.name, own.value
    parts = ("columns", "dimension", "constant", "bounds", "evaluate")
    lacking = [part for part in parts if not hasattr(statistic, part)]
    if lacking:
        raise ConfigError(f"The statistic '{name}' declares no {lacking[0]}.", where="function")
    low, high = statistic.bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high and statistic.constant > 0):
        raise ConfigError(
            f"The statistic '{name}' needs finite bounds in order and a positive constant.",
            where="function",
        )
    checked_statistic: Statistic = statistic
    return checked_statistic


def _check_per_record(knobs: EstimandKnobs, statistic: NamedStatistic) -> None:
    """Refuse a statistic of records whose number is not known."""
    formula = statistic.moments
    if not (statistic.is_total or (formula and (formula.of_some or formula.amounts))):
        raise ConfigError(
            f"{knobs.named.capitalize()} is not released with each record counting one: how many "
            "records the units have is private, and those of a unit are not independent.",
            where="per",
            next_step="Write 'per: unit', by which each unit counts one.",
        )
    if knobs.guaranteed:
        raise ConfigError(
            "A guaranteed interval takes independent records, and those of a unit are not.",
            where="inference",
            next_step="Leave 'inference' out, or for another statistic than a sum write "
            "'per: unit', by which each unit counts one.",
        )


def _regression(columns: list[Column], categories: tuple[str, ...]) -> tuple[Argument, ...]:
    """A response of numbers, and its predictors."""
    response, *predictors = columns
    for name in categories:
        if name not in [each.name for each in predictors]:
            raise ConfigError(
                f"'{name}' is to count by categories, and is not a predictor.",
                where="categories",
                next_step="Name predictors only, which stand in 'columns' after the response.",
            )
    found = [Argument.number(response)]
    for each in predictors:
        found += Argument.predictor(each, each.name in categories)
    return tuple(found)


def _among(domain: Domain, among: Among) -> Argument:
    return Argument.indicator(domain[among.column], among.values)


def _listed(column: str, values: tuple[Category | None, ...]) -> str:
    return f"{column} {' or '.join('missing' if v is None else str(v) for v in values)}"
