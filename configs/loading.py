"""From a file to a checked release, with errors that name file, line and field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from configs.file_text import read_text
from configs.findings import Findings, placed
from configs.models.domain import CategoriesFile
from configs.models.release import ReleaseConfig
from configs.models.targets import PublishTargets, Target
from configs.order import Order, Override
from configs.overrides import Applied, apply
from configs.partial import rest_of
from configs.sections.checks import check_columns
from configs.sections.declared_domain import columns_in_order, domain_of
from configs.sections.exports import check_exports, check_exports_installed
from configs.sections.requests import requests_of
from configs.sections.shares import divided
from configs.validation import validate
from configs.yaml_changes import with_values
from configs.yaml_text import Document, parse
from configs.yaml_text import Path as Keys
from mechanisms.domain.columns import Categorical, Ordinal
from mechanisms.domain.domain import Domain
from mechanisms.domain.privacy_unit import Privacy
from mechanisms.errors import together
from mechanisms.planning.budget_split import Budget
from mechanisms.planning.calibration import ProductRequest
from mechanisms.planning.plan import Plan
from mechanisms.planning.planner import plan_release


@dataclass(frozen=True)
class Release:
    """A config that has passed every check that needs no data.

    Attributes:
        config: The values as written, overrides applied.
        folder: Where its paths go from.
        text: The file's text with the overrides and the lines of categories files in it.
        domain: The declared domain, categories files read in.
        privacy: Frame of reference of the guarantee.
        requests: The products with their knobs.
        document: Places of the values, for messages.
        overrides: What differs from the file.
        supersedes: Seal of the bundle that this release follows.
    """

    config: ReleaseConfig
    folder: Path
    text: str
    domain: Domain
    privacy: Privacy
    requests: tuple[ProductRequest, ...]
    document: Document
    overrides: tuple[Applied, ...] = ()
    supersedes: str | None = None

    def plan(self, *, rho_delta: Decimal | None = None, times: Decimal = Decimal(1)) -> Plan:
        """Fix every parameter; needs no data.

        Args:
            rho_delta: In place of the config's.
            times: Above 0: plan for so many times the budget's epsilon or rho, to compare with.

        Raises:
            InfeasibleBudgetError: The knobs of a product do not fit its budget.
        """
        findings = Findings()
        with findings.noting():
            return self._planned(self.requests, rho_delta, times)
        first = findings.errors[0]
        for request in self.requests if len(self.requests) > 1 else ():
            with findings.noting():  # what fails with the whole budget fails with a part
                self._planned((replace(request, share=Decimal(1)),), rho_delta, times)
        raise together([first, *(each for each in findings.errors if each.where != first.where)])

    def _planned(
        self, requests: Sequence[ProductRequest], rho_delta: Decimal | None, times: Decimal
    ) -> Plan:
        with placed(self.document, ("products",)):
            return plan_release(
                requests,
                domain=self.domain,
                privacy=self.privacy,
                budget=self.budget(rho_delta=rho_delta, times=times),
            )

    def budget(self, *, rho_delta: Decimal | None = None, times: Decimal = Decimal(1)) -> Budget:
        """The budget of the config, or some multiple of it."""
        said = self.config.budget
        return Budget(
            epsilon=None if said.epsilon is None else said.epsilon * times,
            delta=said.delta,
            rho=None if said.rho is None else said.rho * times,
            rho_delta=said.rho_delta if rho_delta is None else rho_delta,
        )

    @property
    def sha256(self) -> str:
        """Hash of the text, which is that of the bundle's ``config.yaml``."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def located(self, relative: str) -> Path:
        """A path of the config, taken from its folder."""
        return (self.folder / relative).absolute()


def load(path: str | Path, overrides: Iterable[Override] = ()) -> Release:
    """Read and check a config as it stands; opens no data.

    Raises:
        ConfigError: Or one of its kinds, naming file, line and field, or the override.
    """
    return load_order(Order(Path(path), tuple(overrides)))


def load_order(order: Order) -> Release:
    """Read and check the config of an order; opens no data.

    Raises:
        ConfigError: Or one of its kinds, naming file, line and field, or the override.
        DependencyError: The source needs an extra that is not installed.
    """
    path = order.path.absolute()
    document = parse(read_text(path, str(path)), path.name)
    document, overrides = apply(document, order.overrides)
    findings = Findings()
    config = _as_far_as_valid(document, findings)
    columns = columns_in_order(config, document, path.parent, findings)
    check_columns(document, findings)
    check_exports(config, columns, document, findings)
    shares = dict.fromkeys(config.products, Decimal(1))
    if config.products.keys() == document.value["products"].keys():
        with findings.noting(), placed(document, ("products",)):
            shares = divided({name: product.share for name, product in config.products.items()})
    with findings.noting(), placed(document, ("privacy",)):
        privacy = config.privacy.build()
    if not columns:
        findings.settle()
    with findings.noting():
        domain = domain_of(config, columns, document, findings)
        requests = tuple(requests_of(config, domain, shares, document, path.parent, findings))
    findings.settle()
    place = ("source", "path") if ("source", "path") in document.places else ("source",)
    config.source.check_installed(document.where(place))
    check_exports_installed(config, document)
    return Release(
        config=config,
        folder=(order.folder or path.parent).absolute(),
        text=_whole_text(document, config, domain, requests),
        domain=domain,
        privacy=privacy,
        requests=requests,
        document=document,
        overrides=overrides,
        supersedes=order.supersedes,
    )


def load_targets(path: Path) -> Sequence[Target]:
    """The targets that a config names, whatever else it says; none where it names none.

    Args:
        path: Of the config, such as that of a bundle.

    Raises:
        ConfigError: A target is not in order.
    """
    document = parse(read_text(path, str(path)), path.name)
    said = document.value.get("publish") if isinstance(document.value, dict) else None
    if not isinstance(said, dict) or "targets" not in said:
        return ()
    return validate(document, PublishTargets, ("publish",)).targets


def _as_far_as_valid(document: Document, findings: Findings) -> ReleaseConfig:
    """The config; of one with faults, which go to the findings, the parts that have none."""
    with findings.noting():
        return validate(document, ReleaseConfig)
    rest = rest_of(document)
    if rest is None:
        findings.settle()
    assert rest is not None
    return rest


def _whole_text(
    document: Document,
    config: ReleaseConfig,
    domain: Domain,
    requests: Iterable[ProductRequest],
) -> str:
    """The document's text with what files of categories and totals hold in place of their names."""
    lines: dict[Keys, Any] = {}
    for name, column in config.domain.items():
        if isinstance(getattr(column, "categories", None), CategoriesFile):
            built = domain[name]
            assert isinstance(built, Categorical | Ordinal)
            lines["domain", name, "categories"] = list(built.categories)
    for request in requests:
        written = getattr(config.products[request.name], "known", None) or {}
        for key, total in (getattr(request.knobs, "known", None) or {}).items():
            if written[key].file is not None:
                inline = {"columns": list(total.columns), "counts": list(total.counts)}
                lines["products", request.name, "known", key] = inline
    return with_values(document, lines, where=document.name).text
