"""What a config's formats cannot hold, and what they need, found before anything is charged."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from configs.findings import Findings
from configs.models import formats
from configs.models.release import ReleaseConfig
from configs.models.stat_names import fault_of, stored_name
from configs.sections.checks import OF_BANDS, RESERVED_COLUMNS
from configs.yaml_text import Document
from mechanisms.domain.columns import Categorical, Column, Numeric
from mechanisms.errors import ConfigError, DependencyError


def check_exports(
    config: ReleaseConfig, columns: Mapping[str, Column], document: Document, findings: Findings
) -> None:
    """Check names and values for CSV, Stata and SPSS, and that SDMX knows its agency.

    Args:
        config: As far as it is valid.
        columns: Those that are in order.
        document: Places of the values, for messages.
        findings: Take what is wrong.
    """
    publish = config.publish
    if "csv" in publish.formats:
        released = {name for product in config.products.values() for name in product.columns}
        for name in config.domain:
            if name in released and name.startswith(tuple(formats.FORMULA_MARKS)):
                findings.errors.append(
                    ConfigError(
                        f"A spreadsheet would take the name of the column {name!r} for a formula "
                        "in the header of CSV files.",
                        where=document.where(("domain", name)),
                        next_step="Rename it in the source, or leave 'csv' out of publish.formats.",
                    )
                )
    for form in (each for each in formats.STAT if each in publish.formats):
        where = document.where(("publish", "formats"))
        for fault, change in _faults(config, columns, form):
            findings.errors.append(
                ConfigError(
                    f"{fault} in files of {formats.PACKAGES[form]}.",
                    where=where,
                    next_step=f"{change}, or leave '{form}' out of publish.formats.",
                )
            )
    if publish.sdmx and config.about.publisher is None:
        findings.errors.append(
            ConfigError(
                "SDMX names the agency that maintains a table's structure, and the config names no "
                "publisher.",
                where=document.where(("publish", "sdmx")),
                next_step="Add a publisher with its name to the section 'about', or leave out "
                "'sdmx'.",
            )
        )


def check_exports_installed(config: ReleaseConfig, document: Document) -> None:
    """See that what writes the config's formats is there.

    Raises:
        DependencyError: An extra is not installed.
    """
    formats.check_writable(config.publish.formats, document.where(("publish", "formats")))
    if config.publish.sdmx and importlib.util.find_spec("pysdmx") is None:
        raise DependencyError(
            "Tables in SDMX need the extra 'sdmx', which is not installed.",
            where=document.where(("publish", "sdmx")),
            next_step="Install it with: pip install 'statpress[sdmx]'",
        )


def _faults(
    config: ReleaseConfig, columns: Mapping[str, Column], form: str
) -> Iterator[tuple[str, str]]:
    """Names of two columns that become one, values that would not come back; and what to do."""
    used: dict[str, None] = {}
    for product in config.products.values():
        names = {name: stored_name(name, form) for name in product.columns}
        taken = {each: each for each in (*RESERVED_COLUMNS, *OF_BANDS)}
        for name, stored in names.items():
            other = taken.setdefault(stored.casefold(), name)
            if other != name:
                yield (
                    f"The columns '{other}' and '{name}' would both be called '{stored}'",
                    f"Rename '{name}' in the source",
                )
        used |= dict.fromkeys(names)
    for name in used:
        for value in _values(columns.get(name)):
            fault = fault_of(value, form)
            if fault is not None:
                what = f"The value {value!r} of '{name}' would be lost ({fault})"
                yield what, "Declare another value"


def _values(column: Column | None) -> list[object]:
    """The declared values that may be beyond what a file holds."""
    if isinstance(column, Categorical):
        return list(column.categories)
    if isinstance(column, Numeric):
        return list(column.edge_array.tolist())
    return []
