"""What a config says of an estimate, whatever the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from mechanisms.base.user_defined import UserDefined
from mechanisms.domain.columns import Category
from mechanisms.errors import ConfigError
from mechanisms.estimates.statistics.registry import STATISTICS, named
from mechanisms.inference.intervals import check_level

if TYPE_CHECKING:
    StatisticName = str
else:  # what the schema of a config lists
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


_INSTEAD = {
    "group": "For a figure of one group only, name its records under 'where'; to compare a group "
    "with the rest, write 'statistic: difference'.",
    "where": "Give the product only columns and a statistic that 'where' goes with; to compare a "
    "group with the rest, write 'statistic: difference' with 'group'.",
}
"""What to do instead, by the key that does not go with a statistic."""


def _takers(key: str) -> str:
    """The statistics that a key goes with, in words."""
    found = [n for n, each in STATISTICS.items() if key in each.needs + each.allows]
    return f"the {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}"


@dataclass(frozen=True, kw_only=True)
class EstimandKnobs:
    """What a config says of an estimate, whatever the mechanism.

    Attributes:
        statistic: Its name.
        function: Instead, a user-defined statistic (``mechanisms.inference.statistics``),
            which a config names as ``module:name``.
        confidence: Level of the interval.
        values: For a count or a proportion: the values of the column that count.
        q: For a quantile: the share of records below it.
        group: For a difference: the group whose mean is compared with that of the rest.
        where: Records that count at all, for a count, proportion, mean or sum.
        inference: An interval by normal approximation, or one that is proven to cover for every
            population in the declared bounds.
    """

    statistic: StatisticName | None = None
    function: UserDefined | None = None
    confidence: float = 0.95
    values: tuple[Category | None, ...] | None = None
    q: Fraction | None = None
    group: Among | None = None
    where: Among | None = None
    inference: Literal["asymptotic", "guaranteed"] = "asymptotic"

    def __post_init__(self) -> None:
        check_level(self.confidence)
        if (self.statistic is None) == (self.function is None):
            raise ConfigError("An estimate needs either a statistic or a function.")
        statistic = named(self.statistic) if self.statistic else None
        needs = statistic.needs if statistic else ()
        allows = statistic.allows if statistic else ()
        for name, given in {
            "values": self.values, "q": self.q, "group": self.group, "where": self.where
        }.items():  # fmt: skip
            if given is not None and name not in needs + allows:
                raise ConfigError(
                    f"'{name}' does not go with {self.named}, but with {_takers(name)}.",
                    where=name,
                    next_step=_INSTEAD.get(name, ""),
                )
            if given is None and name in needs:
                raise ConfigError(f"{self.named.capitalize()} needs '{name}'.", where="statistic")
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
