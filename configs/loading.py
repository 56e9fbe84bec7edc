"""From a file to a checked release, with errors that name file, line and field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from configs.findings import Findings
from configs.models.domain import CategoriesFile, build_zero
from configs.models.release import KINDS, ReleaseConfig
from configs.models.source_formats import check_installed
from configs.order import Order, Override
from configs.overrides import Applied, apply
from configs.partial import declared_columns, rest_of
from configs.sections.checks import check_columns
from configs.sections.known_totals import with_counts
from configs.sections.shares import divided
from configs.sections.user_defined import user_defined
from configs.validation import validate
from configs.yaml_changes import with_values
from configs.yaml_text import LONGEST, Document, parse
from configs.yaml_text import Path as Keys
from mechanisms.domain.columns import Categorical, Column, Ordinal
from mechanisms.domain.domain import Domain
from mechanisms.domain.privacy_unit import Privacy
from mechanisms.errors import (
    ConfigError,
    ConfigNotFoundError,
    InfeasibleBudgetError,
    StatpressError,
    together,
)
from mechanisms.planning.budget_split import Budget
from mechanisms.planning.calibration import ProductRequest
from mechanisms.planning.mechanism_choice import AUTO
from mechanisms.planning.plan import Plan, plan_release
from mechanisms.planning.registry import REGISTRY, serving


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

    def plan(self, *, rho_delta: Decimal | None = None) -> Plan:
        """Fix every parameter; needs no data.

        Args:
            rho_delta: In place of the config's.

        Raises:
            InfeasibleBudgetError: The knobs of a product do not fit its budget.
        """
        findings = Findings()
        with findings.noting():
            return self._planned(self.requests, rho_delta)
        first = findings.errors[0]
        for request in self.requests if len(self.requests) > 1 else ():
            with findings.noting():  # what fails with the whole budget fails with a part
                self._planned((replace(request, share=Decimal(1)),), rho_delta)
        raise together([first, *(each for each in findings.errors if each.where != first.where)])

    def _planned(self, requests: Sequence[ProductRequest], rho_delta: Decimal | None) -> Plan:
        budget = self.config.budget
        most = budget.rho_delta if rho_delta is None else rho_delta
        with _placed(self.document, ("products",)):
            return plan_release(
                requests,
                domain=self.domain,
                privacy=self.privacy,
                budget=Budget(
                    epsilon=budget.epsilon, delta=budget.delta, rho=budget.rho, rho_delta=most
                ),
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
    document = parse(_read(path, str(path)), path.name)
    document, overrides = apply(document, order.overrides)
    findings = Findings()
    config = _as_far_as_valid(document, findings)
    columns = _columns(config, document, path.parent, findings)
    check_columns(config, document, findings)
    shares = dict.fromkeys(config.products, Decimal(1))
    if config.products.keys() == document.value["products"].keys():
        with findings.noting(), _placed(document, ("products",)):
            shares = divided({name: product.share for name, product in config.products.items()})
    with findings.noting(), _placed(document, ("privacy",)):
        privacy = config.privacy.build()
    if not columns:
        findings.settle()
    with findings.noting():
        domain = _domain(config, columns, document, findings)
        requests = tuple(_requests(config, domain, shares, document, path.parent, findings))
    findings.settle()
    check_installed(config.source.form, document.where(("source", "path")))
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


def _as_far_as_valid(document: Document, findings: Findings) -> ReleaseConfig:
    """The config; of one with faults, which go to the findings, the parts that have none."""
    with findings.noting():
        return validate(document, ReleaseConfig)
    rest = rest_of(document)
    if rest is None:
        findings.settle()
    assert rest is not None
    return rest


def _read(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)  # what is longer is not held
        if len(content) <= LONGEST:
            text = content.decode("utf-8-sig")
            return text.replace("\r\n", "\n").replace("\r", "\n")
        problem = f"The file is longer than {LONGEST // 10**6} MB. No config is; is this the data?"
    except UnicodeDecodeError:
        problem = "The file is not UTF-8 text."
    except ValueError:
        problem = "This is not a path."
    except FileNotFoundError:
        problem = "There is no such file."
    except OSError as error:
        problem = f"The file cannot be read ({error.strerror})."
    raise ConfigNotFoundError(problem, where=where)


def _columns(
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
            text = _read(path, f"{where}: {relative}")
            return [line for line in text.splitlines() if line.strip()]

        with findings.noting(), _placed(document, ("domain", name)):
            columns[name] = column.build(name, read_lines)
            config.source.check_column(columns[name])
    return columns


def _domain(
    config: ReleaseConfig, columns: dict[str, Column], document: Document, findings: Findings
) -> Domain:
    """The domain of the columns that are in order."""
    with _placed(document, ("domain",)):
        domain = Domain(tuple(columns.values()))
    zeros = []
    for i, declared in enumerate(config.structural_zeros):
        if not columns.keys() >= declared.keys() & config.domain.keys():
            continue  # of a column that is not in order, which is said already
        with findings.noting(), _placed(document, ("structural_zeros", i)):
            zeros.append(build_zero(declared, columns))
    with _placed(document, ("structural_zeros",)):
        # A unit of one record lacks none, and needs no cell for what it lacks.
        return Domain(domain.columns, tuple(zeros), absent=config.privacy.pads)


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


def _requests(
    config: ReleaseConfig,
    domain: Domain,
    shares: Mapping[str, Decimal],
    document: Document,
    folder: Path,
    findings: Findings,
) -> Iterator[ProductRequest]:
    declared = declared_columns(document)
    for name, product in config.products.items():
        if not {*domain.names} >= {*product.columns}:
            continue  # which is said already
        mechanism, kind = product.mechanism, KINDS[product.kind]
        able = serving(kind)
        if mechanism == AUTO and [each.knobs for each in able] == [kind.left_open]:
            mechanism = able[0].name  # the only one, of which everything can be said
        known = REGISTRY.get(mechanism)
        knobs = kind.left_open if known is None else known.knobs
        with findings.noting(), _placed(document, ("products", name)):
            values = {f.name: getattr(product, f.name) for f in fields(knobs)}
            if values.get("known"):
                own = domain.project(product.columns)
                values["known"] = with_counts(
                    values["known"], own, folder, config.source.path, _read
                )
            if values.get("function") is not None:
                values["function"] = user_defined(values["function"], kind.user_defined)
            said = knobs(**values)
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
            )


@contextmanager
def _placed(document: Document, keys: Keys) -> Iterator[None]:
    """Give errors of the core the place in the file where they arose."""
    try:
        yield
        return
    except (ConfigError, InfeasibleBudgetError) as error:
        found: StatpressError = error
    inner = found.where
    if document.name not in inner:
        known = (*keys, inner) if inner and (*keys, inner) in document.places else keys
        found.where = document.where(known)
    raise found
