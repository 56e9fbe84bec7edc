"""The source of a release, as its config declares it."""

from __future__ import annotations

from configs.loading import Release
from configs.models.release import UnitColumn
from tasks.counting.units import Units
from tasks.source.csv_options import CsvOptions
from tasks.source.files import Source


def source_of(release: Release) -> Source:
    """Where the records lie, how they are written, and which columns are wanted."""
    declared, units = release.config.source, units_of(release)
    return Source(
        pattern=str(release.located(declared.path)),
        format=declared.form,
        csv=CsvOptions(
            delimiter=declared.delimiter,
            encoding=declared.encoding,
            decimal=declared.decimal,
            thousands=declared.thousands,
            date_format=declared.date_format,
            null_values=tuple(declared.null_values),
        ),
        columns=release.domain.names,
        unit=units.column if units is not None else None,
    )


def units_of(release: Release) -> Units | None:
    """The units of the source; None where every record is one."""
    unit = release.config.privacy.unit
    return Units(unit.column, unit.max_records) if isinstance(unit, UnitColumn) else None
