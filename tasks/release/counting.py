"""Counting a source for a release: its profile, its tables of cells, the codes of wide products."""

from __future__ import annotations

from pathlib import Path

from statpress.configs.loading import Release
from statpress.mechanisms.domain.contingency_table import Counted
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.source import aggregates, scanning
from statpress.tasks.source.aggregates import SourceProfile, units_of
from statpress.tasks.source.engine import Source
from statpress.tasks.source.scanning import Scan, spill


def scan_of(source: Source, release: Release, plan: Plan, folder: Path) -> Scan:
    """The profile of a source; where every record is a unit, with the tables or codes too.

    Args:
        source: The records.
        release: How they are declared.
        plan: What is counted of them.
        folder: Private, for codes and for what the engine spills.
    """
    domain, units = release.domain, units_of(release)
    if units is not None:
        return Scan(aggregates.profile(source, domain, scratch=folder, units=units))
    if plan.coded is not None and not plan.joint:
        n_records = release.privacy.n_records
        return scanning.scan_wide(source, domain, plan.coded, n_records=n_records, folder=folder)
    return scanning.scan(source, domain, plan.joint, scratch=folder)


def kept_profile(
    source: Source, release: Release, scan: Scan, *, folder: Path, key: str
) -> SourceProfile:
    """The profile of what is counted: all records, or those that are kept of each unit.

    Takes the arguments of ``counted_of``.
    """
    units = units_of(release)
    if units is None:
        return scan.profile
    return scanning.profile_of_kept(source, release.domain, scratch=folder, units=units, key=key)


def counted_of(
    source: Source, release: Release, plan: Plan, scan: Scan, *, folder: Path, key: str
) -> Counted:
    """The tables of the scan, or of the records that are kept of each unit, and wide codes.

    Args:
        source: That which was scanned.
        release: How it is declared.
        plan: What is counted of it.
        scan: Of it.
        folder: As for the scan.
        key: For the choice of the records that are kept; random, secret, used once.
    """
    units = units_of(release)
    joint = (
        scan.tables()
        if units is None
        else tuple(
            aggregates.count(source, domain, scratch=folder, units=units, key=key)
            for domain in plan.joint
        )
    )
    coded = scan.coded
    if plan.coded is not None and coded is None:
        n_records = release.privacy.n_records
        coded = spill(source, plan.coded, n_records=n_records, folder=folder, units=units, key=key)
    return Counted(joint, coded)
