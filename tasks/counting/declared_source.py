"""The source of a release, as its config declares it."""

from __future__ import annotations

from configs.loading import Release
from configs.models.release import UnitColumn
from tasks.counting.units import Units
from tasks.engines.engine import Source
from tasks.engines.registry import reader_named
from tasks.source.engine import Limits


def source_of(release: Release) -> Source:
    """Where the records lie, how they are written, and which columns are wanted."""
    declared, units = release.config.source, units_of(release)
    resources = release.config.resources
    return reader_named(declared.reader).source_of(
        declared,
        release.located,
        columns=release.domain.names,
        unit=units.column if units is not None else None,
        limits=Limits.of(resources.memory_bytes, resources.threads),
    )


def units_of(release: Release) -> Units | None:
    """The units of the source; None where every record is one."""
    unit = release.config.privacy.unit
    return Units(unit.column, unit.max_records) if isinstance(unit, UnitColumn) else None
