"""The section ``weight`` of a config with what its files hold, checked without data.

A file of totals is read by the form of those that records meet exactly (``configs.checks``), and
has to list every cell: a population that is not listed is not one of 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statpress.configs.checks import counts_of_file
from statpress.configs.release_config import ReleaseConfig
from statpress.configs.tables import LINKED_KIND
from statpress.configs.yaml_text import Document, Findings, placed
from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, DuplicateColumnError

if TYPE_CHECKING:
    from statpress.mechanisms.marginals.survey_weights import SurveyWeight

SECTION = "weight"


WEIGHTED = {"microdata": "marginals", LINKED_KIND: "linked_marginals"}
"""By kind the mechanism that has weights, imported only when a config has a product by it."""


def survey_weight(
    config: ReleaseConfig, domain: Domain, document: Document, folder: Path, findings: Findings
) -> SurveyWeight | None:
    """The weight of a config; None if it has none, or one at fault.

    Args:
        config: As far as it is valid.
        domain: Of the columns that are in order.
        document: Places of the values, for messages.
        folder: Of the config, where paths of totals go from.
        findings: Take what is wrong.
    """
    said = config.weight
    if said is None:
        return None
    from statpress.mechanisms.marginals.survey_weights import SurveyWeight

    before = len(findings.errors)
    with findings.noting(), placed(document, (SECTION,)):
        if said.column in config.domain and config.linked is None:
            raise DuplicateColumnError(
                f"'{said.column}' is a column of 'domain' as well.",
                where="column",
                next_step="Leave it out of 'domain': its edges here declare it.",
            )
    with findings.noting(), placed(document, (SECTION,)):
        _check_listed(config)
    design = said.design
    own = domain
    if config.linked is not None:  # those of households, and their size
        own = Domain(tuple(c for c in domain.columns if not isinstance(c, Slot)))
    for key, name in (("strata", design.strata), ("cluster", design.cluster)):
        with findings.noting(), placed(document, (SECTION, "design")):
            if name is not None:
                _check_declared(name, key, said.column, own)
            if key == "cluster" and name is not None:
                _check_clusters(name, design.strata, own)
    totals = {}
    for name, given in said.calibrate.items():
        with findings.noting(), placed(document, (SECTION, "calibrate")):
            _check_declared(name, name, said.column, own)
            column = own[name]
            if isinstance(given, str):
                files = config.source.files
                given = list(counts_of_file(given, [column], folder, files, where=name, whole=True))
            if len(given) != column.size:
                raise ConfigError(
                    f"There are {len(given)} totals for the {column.size} cells of '{name}'.",
                    where=name,
                )
            totals[name] = tuple(map(float, given))
    with findings.noting(), placed(document, (SECTION, "calibrate")):
        _check_sums(totals, said.calibrate)
    if len(findings.errors) > before:
        return None
    return SurveyWeight(
        column=said.column, totals=totals, strata=design.strata, cluster=design.cluster
    )


def _check_listed(config: ReleaseConfig) -> None:
    assert config.weight is not None
    name = config.weight.column
    able = [each for each in config.products.values() if name in each.columns]
    if not any(each.kind in WEIGHTED for each in able):
        raise ConfigError(
            f"No records have the weight: none lists '{name}' among its columns.",
            where="column",
            next_step=f"List '{name}' among the columns of microdata by 'marginals', or of linked "
            "records.",
        )


def _check_declared(name: str, key: str, weight: str, domain: Domain) -> None:
    if name not in domain.names or name == weight:
        raise ConfigError(
            f"The domain declares no column '{name}'"
            + (" besides that of the weight." if name == weight else "."),
            where=key,
            next_step=f"Name one of: {', '.join(each for each in domain.names if each != weight)}.",
        )


def _check_clusters(name: str, strata: str | None, domain: Domain) -> None:
    """Refuse a column with a cell that is no cluster which was drawn."""
    if name == strata:
        raise ConfigError("The clusters are those of the strata.", where="cluster")
    column = domain[name]
    if column.missing or getattr(column, "other", False):
        raise ConfigError(
            f"'{name}' has a cell for missing or other values, which would count as a cluster.",
            where="cluster",
            next_step="Declare the clusters that were drawn, all of them and no others.",
        )


def _check_sums(totals: dict[str, tuple[float, ...]], given: object) -> None:
    """Refuse totals of nobody, and such as are of different populations."""
    assert isinstance(given, dict)
    first = ""
    for name, total in totals.items():
        file = f" ('{given[name]}')" if isinstance(given[name], str) else ""
        said = f"The totals of '{name}'{file} add up to {sum(total):,.0f}"
        if not sum(total):
            raise ConfigError(f"{said}.", where=name)
        if first and sum(total) != sum(next(iter(totals.values()))):
            raise ConfigError(
                f"{said}, and {first[0].lower()}{first[1:]}.",
                where=name,
                next_step="Give totals of one population.",
            )
        first = first or said
