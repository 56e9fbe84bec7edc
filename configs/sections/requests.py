"""The products of a config, each with its mechanism, knobs, columns and share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

from configs.findings import Findings, placed
from configs.models.release import ReleaseConfig
from configs.partial import declared_columns
from configs.sections.further import further_of, may_have_nulls
from configs.sections.known_totals import with_counts
from configs.sections.user_defined import user_defined
from configs.yaml_text import Document
from mechanisms.domain.domain import Domain
from mechanisms.planning.calibration import ProductRequest
from mechanisms.planning.mechanism_choice import AUTO
from mechanisms.planning.registry import KINDS, REGISTRY, serving


def requests_of(
    config: ReleaseConfig,
    domain: Domain,
    shares: Mapping[str, Decimal],
    document: Document,
    folder: Path,
    findings: Findings,
) -> Iterator[ProductRequest]:
    """The products that are in order, without those of columns that are not.

    Args:
        config: The config, as far as it is valid.
        domain: Of the columns that are in order.
        shares: Of the budget, by product.
        document: Places of the values, for messages.
        folder: Of the config, where paths of known totals go from.
        findings: Take what is wrong with the others.
    """
    declared = declared_columns(document)
    for name, product in config.products.items():
        if not {*domain.names} >= {*product.columns}:
            continue  # which is said already
        mechanism, kind = product.mechanism, KINDS[product.kind]
        if mechanism == AUTO and [each.knobs for each in serving(kind)] == [kind.left_open]:
            mechanism = serving(kind)[0].name  # the only one, of which everything can be said
        known = REGISTRY.get(mechanism)
        knobs = kind.left_open if known is None else known.knobs
        with findings.noting(), placed(document, ("products", name)):
            values = {f.name: getattr(product, f.name) for f in fields(knobs)}
            if values.get("known"):
                own = domain.project(product.columns)
                values["known"] = with_counts(values["known"], own, folder, config.source.files)
            if values.get("function") is not None:
                values["function"] = user_defined(values["function"], kind.user_defined)
            said = knobs(**values)
            further = further_of(kind, product)
            if further is not None:
                own = domain.project(product.columns)
                kind.check_further(further, own, may_have_nulls(config, product))
            extra = kind.extra_columns(said)
            for column in extra:
                if column in domain.names or column not in declared:
                    domain[column]  # or an error
            yield ProductRequest(
                name=name,
                kind=kind,
                mechanism=mechanism,
                knobs=said,
                columns=tuple(dict.fromkeys((*product.columns, *extra))),
                share=shares[name],
                further=further,
            )
