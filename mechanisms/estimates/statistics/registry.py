"""All statistics by name. A new one is one module, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mechanisms.errors import ConfigError
from mechanisms.estimates.statistics.correlation import CORRELATION
from mechanisms.estimates.statistics.count import COUNT
from mechanisms.estimates.statistics.covariance import COVARIANCE
from mechanisms.estimates.statistics.difference import DIFFERENCE
from mechanisms.estimates.statistics.mean import MEAN
from mechanisms.estimates.statistics.median import MEDIAN
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.statistics.proportion import PROPORTION
from mechanisms.estimates.statistics.quantile import QUANTILE
from mechanisms.estimates.statistics.ratio import RATIO
from mechanisms.estimates.statistics.regression import REGRESSION
from mechanisms.estimates.statistics.sum import SUM
from mechanisms.estimates.statistics.variance import VARIANCE

_BY_NAME: dict[str, NamedStatistic] = {}
STATISTICS: Mapping[str, NamedStatistic] = MappingProxyType(_BY_NAME)
"""Statistics by name, in the order in which a config's schema lists them."""


def register(statistic: NamedStatistic) -> None:
    """Add a statistic; one from outside the package before ``configs`` is imported.

    Raises:
        ValueError: There is another of this name.
    """
    if statistic.name in _BY_NAME:
        raise ValueError(f"there is a statistic '{statistic.name}' already")
    _BY_NAME[statistic.name] = statistic


def named(name: str) -> NamedStatistic:
    """The statistic of this name.

    Raises:
        ConfigError: There is none.
    """
    if name not in STATISTICS:
        known = ", ".join(STATISTICS)
        raise ConfigError(f"There is no statistic '{name}'; there are {known}.", where="statistic")
    return STATISTICS[name]


for _statistic in (
    COUNT,
    PROPORTION,
    MEAN,
    SUM,
    VARIANCE,
    COVARIANCE,
    CORRELATION,
    MEDIAN,
    QUANTILE,
    DIFFERENCE,
    RATIO,
    REGRESSION,
):
    register(_statistic)
