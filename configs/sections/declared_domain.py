"""The domain that a config declares: its columns and structural zeros, as far as in order."""

from __future__ import annotations

from pathlib import Path

from configs.file_text import read_text
from configs.findings import Findings, placed
from configs.models.domain import build_zero
from configs.models.release import ReleaseConfig
from configs.yaml_text import Document
from mechanisms.domain.columns import Column
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError


def columns_in_order(
    config: ReleaseConfig, document: Document, folder: Path, findings: Findings
) -> dict[str, Column]:
    """The columns that are in order, by name."""
    columns = {}
    for name, column in config.domain.items():

        def read_lines(relative: str, name: str = name) -> list[str]:
            where = document.where(("domain", name, "categories"))
            path = (folder / relative).resolve()
            if path.suffix != ".txt" or folder.resolve() not in path.parents:
                # Its lines are published, so it must not be a data file by mistake.
                raise ConfigError(
                    f"'{relative}' is not a .txt file in or below the config's folder.",
                    where=where,
                    next_step="Keep the categories in a .txt file in the config's folder.",
                )
            text = read_text(path, f"{where}: {relative}")
            return [line for line in text.splitlines() if line.strip()]

        with findings.noting(), placed(document, ("domain", name)):
            columns[name] = column.build(name, read_lines)
            config.source.check_column(columns[name])
    return columns


def domain_of(
    config: ReleaseConfig, columns: dict[str, Column], document: Document, findings: Findings
) -> Domain:
    """The domain of the columns that are in order."""
    with placed(document, ("domain",)):
        domain = Domain(tuple(columns.values()))
    zeros = []
    for i, declared in enumerate(config.structural_zeros):
        if not columns.keys() >= declared.keys() & config.domain.keys():
            continue  # of a column that is not in order, which is said already
        with findings.noting(), placed(document, ("structural_zeros", i)):
            zeros.append(build_zero(declared, columns))
    with placed(document, ("structural_zeros",)):
        # A unit of one record lacks none, and needs no cell for what it lacks.
        return Domain(domain.columns, tuple(zeros), absent=config.privacy.pads)
