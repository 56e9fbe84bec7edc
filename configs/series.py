"""The ``series`` section: releases that follow one another, one for each period.

``{period}`` in the title, in ``about``, in the source, in the paths of totals that weights are
raked to and in the bundle's name and targets stands for the period of a release, such as 2026-10.
The config's text keeps the mark; with ``series.current``, which ``--period`` sets, it says which
period the release is of.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from statpress.configs.declared_columns import Name, Section
from statpress.configs.yaml_text import Document, Findings
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.periods import Frequency, SeriesPeriod

MARK = "{period}"
_MARKED = (
    ("title",), ("about",), ("weight", "calibrate"), ("publish", "name"), ("publish", "targets"),
)  # fmt: skip
"""Where the mark stands for a period, besides the sources."""
_FIXED = (("dataset",), ("series", "name"), ("publish", "directory"))
"""What all periods share; each has a folder of its own in the publishing directory."""
_SOURCE = ("path", "table")
_LAG = r"^(0|[1-9][0-9]{0,3}) days?$"


def _written(value: Any) -> Any:
    """The text of a year, which YAML takes for a number."""
    return str(value) if type(value) is int else value


def _days(text: Any) -> Any:
    if not isinstance(text, str) or not re.fullmatch(_LAG, text):
        raise PydanticCustomError("ConfigError", "must be a number of days, such as 45 days")
    return text


PeriodText = Annotated[
    StrictStr,
    BeforeValidator(_written),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "description": "A period, such as 2026, 2026-Q3, 2026-10 or 2026-W05.",
        }
    ),
]
Lag = Annotated[StrictStr, BeforeValidator(_days), Field(json_schema_extra={"pattern": _LAG})]


def _check_period(text: str, by: Frequency) -> SeriesPeriod:
    try:
        return SeriesPeriod.parse(text, by)
    except ValueError as error:
        raise PydanticCustomError("ConfigError", "{flaw}", {"flaw": str(error)}) from None


class PeriodConfig(Section):
    """Which periods a series has, and when each is due."""

    by: Frequency = Field(description="How long a period is; weeks are those of ISO 8601.")
    first: PeriodText = Field(description="The first period of the series.")
    lag: Lag = Field(
        default="0 days",
        description="How long after its end a period is due, such as 45 days; days are of UTC.",
    )
    skip: list[PeriodText] = Field(
        default_factory=list, description="Periods that have no release, such as one without data."
    )

    @field_validator("first", "skip")
    @classmethod
    def _of_the_frequency(cls, value: Any, info: ValidationInfo) -> Any:
        for text in [value] if isinstance(value, str) else value:
            if "by" in info.data:
                _check_period(text, info.data["by"])
        return value

    @property
    def start(self) -> SeriesPeriod:
        """The first period."""
        return SeriesPeriod.parse(self.first, self.by)

    @property
    def lag_days(self) -> int:
        """Days between the day after a period's end and the day that it is due on."""
        return int(self.lag.split()[0])


class SeriesConfig(Section):
    """Releases that follow one another, one for each period."""

    name: Name = Field(description="Of the folder in the publishing directory, and a tag of runs.")
    period: PeriodConfig
    carry: Literal["prior"] | None = Field(
        default=None,
        description="Whether microdata by 'marginals' have the newest bundle of an earlier period "
        "as their prior, where there is one.",
    )
    current: PeriodText | None = Field(
        default=None,
        description="The period of one release; left out of the file and set with --period.",
    )

    @field_validator("current")
    @classmethod
    def _one_of_the_series(cls, current: str | None, info: ValidationInfo) -> str | None:
        periods = info.data.get("period")
        if current is None or periods is None:
            return current
        if _check_period(current, periods.by) < periods.start:
            raise PydanticCustomError(
                "ConfigError", "is before the first period, {first}", {"first": periods.first}
            )
        if current in periods.skip:
            raise PydanticCustomError("ConfigError", "is among the periods that are skipped")
        return current

    @property
    def of(self) -> SeriesPeriod | None:
        """The period of the release, if it is named."""
        return None if self.current is None else SeriesPeriod.parse(self.current, self.period.by)


def stated_series(config: Any) -> SeriesConfig | None:
    """The series that the values of a config state; None if there is none, or it is at fault."""
    try:
        return SeriesConfig.model_validate(config["series"])
    except (KeyError, TypeError, ValueError):
        return None


def dated(document: Document, findings: Findings) -> Document:
    """The document with its period in place of every mark; its text stays as it is.

    Without a current period the first one stands in. A config that does not say what time its
    records are of gets that from the period.

    Args:
        document: A config.
        findings: Take what does not fit the section ``series``.
    """
    value = document.value
    if not isinstance(value, dict):
        return document
    for path in _FIXED if "series" in value else ():
        with findings.noting():
            _check_fixed(document, path)
    with findings.noting():
        _check_source(document)
    series = stated_series(value)
    if series is None:
        return document
    period = series.of or series.period.start
    for marked in itertools.chain(_MARKED, _sources(value)):
        value = _marked(value, marked, str(period))
    about = value.get("about", {})
    if isinstance(about, dict) and "temporal" not in about:
        start, end = period.dates()
        value = {**value, "about": {**about, "temporal": {"start": start, "end": end}}}
    return replace(document, value=value)


def _check_fixed(document: Document, path: tuple[str, ...]) -> None:
    """Raise if a text has the mark that all periods share."""
    if path in document.places and MARK in str(document.at(path)):
        raise ConfigError(
            f"All periods of a series share this, so '{MARK}' cannot be in it.",
            where=document.where(path),
            next_step="Leave it out. A period has a folder of its own in the publishing directory.",
        )


def _check_source(document: Document) -> None:
    """Raise unless every source of a series, and of nothing else, has the mark.

    A release whose own text names its period, as that of a bundle does, may have any source, and
    so may one whose period and source are both given for this once.
    """
    for path in _sources(document.value):
        source = document.at(path)
        named = [(*path, k) for k in _SOURCE if isinstance(source, dict) and k in source]
        for place in named[:1]:
            _check_marked(document, place)


def _sources(config: Any) -> list[tuple[str, ...]]:
    """Where a config has its source, or those of its tables."""
    tables = config.get("tables")
    of_tables = tables.items() if isinstance(tables, dict) else ()
    found: list[tuple[str, ...]] = [("source",)] if "source" in config else []
    for name, table in of_tables:
        if isinstance(table, dict) and "source" in table:
            found.append(("tables", name, "source"))
    return found


def _check_marked(document: Document, place: tuple[str, ...]) -> None:
    """Raise unless a source that is named at a place has the mark, where it should."""
    config, origins = document.value, document.origins
    marked = MARK in str(document.at(place))
    if "series" not in config:
        if marked:
            raise ConfigError(
                f"'{MARK}' stands for a period, and the config has no section 'series'.",
                where=document.where(place),
                next_step="Write the section 'series', or the name of the source.",
            )
        return
    series = config["series"]
    named = isinstance(series, dict) and series.get("current") is not None
    if marked or (named and (("series", "current") not in origins or place in origins)):
        return
    raise ConfigError(
        f"The source of a series needs '{MARK}', or every period would release the same records.",
        where=document.where(place),
        next_step=f"Write it where the period stands, such as data/lfs-{MARK}.parquet.",
    )


def _marked(value: Any, path: tuple[str, ...], period: str) -> Any:
    """A copy with the period in place of the mark in every text below a path."""
    if path:
        if not isinstance(value, Mapping) or path[0] not in value:
            return value
        return {**value, path[0]: _marked(value[path[0]], path[1:], period)}
    if isinstance(value, str):
        return value.replace(MARK, period)
    if isinstance(value, list):
        return [_marked(each, (), period) for each in value]
    if isinstance(value, dict):
        return {key: _marked(each, (), period) for key, each in value.items()}
    return value
