"""From a file to a checked release, with errors that name file, line and field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from configs.domain import build_zero
from configs.release import OPEN, PRODUCTS, CheckConfig, ReleaseConfig
from configs.yaml_text import Document, parse
from configs.yaml_text import Path as Keys
from mechanisms import errors
from mechanisms.budget_split import Budget
from mechanisms.choice import AUTO, AutoKnobs
from mechanisms.columns import Column
from mechanisms.domain import Domain
from mechanisms.errors import (
    BudgetValueError,
    ConfigError,
    ConfigNotFoundError,
    DuplicateColumnError,
    InfeasibleBudgetError,
    StatpressError,
)
from mechanisms.estimands import EstimandKnobs
from mechanisms.fitting import ProductRequest
from mechanisms.function_knobs import FunctionKnobs
from mechanisms.function_release import FunctionRelease
from mechanisms.planning import Plan, plan_release
from mechanisms.privacy import Privacy
from mechanisms.registry import REGISTRY

_PARTS = ("", "_debiased", "_estimates", "_raw", "_distribution")  # of the names of files
RESERVED_COLUMNS = ("estimate", "projected", "raw", "raw_block", "standard_error")


@dataclass(frozen=True)
class Release:
    """A config that has passed every check that needs no data.

    Attributes:
        config: The values as written.
        path: The file they came from.
        text: Its exact text.
        domain: The declared domain, categories files read in.
        privacy: Frame of reference of the guarantee.
        requests: The products with their knobs.
        document: Places of the values, for messages.
    """

    config: ReleaseConfig
    path: Path
    text: str
    domain: Domain
    privacy: Privacy
    requests: tuple[ProductRequest, ...]
    document: Document

    def plan(self) -> Plan:
        """Fix every parameter; needs no data.

        Raises:
            InfeasibleBudgetError: The knobs of a product do not fit its budget.
        """
        with _placed(self.document, ("products",)):
            return plan_release(
                self.requests,
                domain=self.domain,
                privacy=self.privacy,
                budget=Budget(
                    epsilon=self.config.budget.epsilon,
                    delta=self.config.budget.delta,
                    rho=self.config.budget.rho,
                ),
            )

    @property
    def sha256(self) -> str:
        """Hash of the resolved config, categories files included."""
        resolved = {
            "config": self.config.model_dump(mode="json"),
            "domain": [describe_column(column) for column in self.domain.columns],
        }
        canonical = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def located(self, relative: str) -> Path:
        """A path of the config, taken from the config's folder."""
        return (self.path.parent / relative).absolute()


def load(path: str | Path) -> Release:
    """Read and check a config; opens no data.

    Raises:
        ConfigError: Or one of its kinds, naming file, line and field.
    """
    path = Path(path).absolute()
    text = _read(path, str(path))
    document = parse(text, path.name)
    config = _validate(document)
    domain = _domain(config, document, path.parent)
    _check_columns(config, domain, document)
    with _placed(document, ("privacy",)):
        privacy = config.privacy.build()
    requests = tuple(_requests(config, domain, document))
    return Release(config, path, text, domain, privacy, requests, document)


def describe_column(column: Column) -> dict[str, Any]:
    """A column's full public declaration, as JSON values."""
    declared = {f.name: getattr(column, f.name) for f in fields(column)}
    values = {
        name: str(v) if not isinstance(v, (str, int, float, bool, tuple)) else v
        for name, v in declared.items()
    }
    return {"kind": column.kind, **values}


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problem = "The file is not UTF-8 text."
    except ValueError:
        problem = "This is no path."
    except FileNotFoundError:
        problem = "There is no such file."
    except OSError as error:
        problem = f"The file cannot be read ({error.strerror})."
    raise ConfigNotFoundError(problem, where=where)


def _validate(document: Document) -> ReleaseConfig:
    if not isinstance(document.value, dict):
        raise ConfigError("The file must be a mapping of keys.", where=document.name)
    try:
        return ReleaseConfig.model_validate(document.value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
    problems = [_problem(detail, document) for detail in found]
    problems.sort(key=lambda problem: problem.where)
    first, others = problems[0], problems[1:]
    first.args = (str(first),)
    if others:
        more = "; also ".join(f"{p.where}: {p.what}" for p in others[:9])
        first.what = f"{first.what} Also {more}"
    raise first


def _problem(detail: Any, document: Document) -> ConfigError:
    """One finding of the validator as an error of the right kind."""
    kind = detail["type"]
    keys = _existing(detail["loc"], document, whole=kind == "missing")
    where = document.where(keys)
    if kind == "extra_forbidden":
        return errors.UnknownKeyError(f"There is no key '{keys[-1]}' here.", where=where)
    if kind == "missing":
        return ConfigError(f"'{keys[-1]}' is missing.", where=where)
    if kind == "union_tag_not_found":  # only products are told apart by a tag
        return ConfigError("'mechanism' is missing.", where=document.where((*keys, "mechanism")))
    if kind == "union_tag_invalid":
        known = ", ".join((AUTO, *REGISTRY))
        return ConfigError(
            f"There is no mechanism '{str(detail['input'].get('mechanism'))[:60]}'; "
            f"there are {known}.",
            where=document.where((*keys, "mechanism")),
        )
    if kind == "literal_error" and keys[0] == "products" and keys[-1] == "kind":
        chosen = str(detail["loc"][2])
        serving = [name for name, m in REGISTRY.items() if detail["input"] in m.kinds]
        return ConfigError(
            f"The mechanism '{chosen.split()[0]}' serves {' and '.join(_kinds(chosen))}, and not "
            f"'{str(detail['input'])[:60]}', which {', '.join(serving) or 'none'} would serve.",
            where=where,
        )
    message = detail["msg"].removeprefix("Input ")
    if message.split()[0] in ("must", "should", "is"):
        message = f"The value {message}"
    error_class = getattr(errors, kind, ConfigError)
    if keys and keys[-1] in ("records", "pseudocount"):
        error_class = errors.RecordsError
    return error_class(f"{message[0].upper()}{message[1:]}.", where=where)


def _kinds(chosen: str) -> tuple[str, ...]:
    """The kinds of product that one form of product can be of."""
    found: tuple[str, ...] = get_args(PRODUCTS[chosen].model_fields["kind"].annotation)
    return (*found, *OPEN) if chosen == AUTO else found


def _existing(loc: Keys, document: Document, *, whole: bool) -> Keys:
    """The location without the validator's own tags, such as a union's member.

    With ``whole`` the last key is kept although it is not in the file.
    """
    keys: Keys = ()
    for i, key in enumerate(loc):
        if (*keys, key) in document.places or (whole and i == len(loc) - 1):
            keys = (*keys, key)
    return keys


def _domain(config: ReleaseConfig, document: Document, folder: Path) -> Domain:
    columns = []
    for name, column in config.domain.items():

        def read_lines(relative: str, name: str = name) -> list[str]:
            where = document.where(("domain", name, "categories"))
            path = (folder / relative).resolve()
            if path.suffix != ".txt" or folder.resolve() not in path.parents:
                # Its lines are published, so it must not be a data file by mistake.
                raise ConfigError(
                    f"'{relative}' is no .txt file beside or below the config.",
                    where=where,
                    next_step="Keep the categories in a .txt file in the config's folder.",
                )
            text = _read(path, f"{where}: {relative}")
            return [line for line in text.splitlines() if line.strip()]

        with _placed(document, ("domain", name)):
            columns.append(column.build(name, read_lines))
    with _placed(document, ("domain",)):
        domain = Domain(tuple(columns))
    zeros, named = [], {column.name: column for column in columns}
    for i, declared in enumerate(config.structural_zeros):
        with _placed(document, ("structural_zeros", i)):
            zeros.append(build_zero(declared, named))
    with _placed(document, ("structural_zeros",)):
        # A unit of one record lacks none, and needs no cell for what it lacks.
        return Domain(domain.columns, tuple(zeros), absent=config.privacy.pads)


def _check_columns(config: ReleaseConfig, domain: Domain, document: Document) -> None:
    stems: set[str] = set()
    for product, request in config.products.items():
        place: Keys = ("products", product, "columns")
        written = {f"{product}{part}".casefold() for part in _PARTS}
        if written & stems:
            raise ConfigError(
                "This product and another would be written to the same file.",
                where=document.where(("products", product)),
                next_step="Rename one of them.",
            )
        stems |= written
        for i, name in enumerate(request.columns):
            if name not in domain.names:
                raise ConfigError(
                    f"The domain declares no column '{name}'.", where=document.where((*place, i))
                )
            if name in RESERVED_COLUMNS:
                raise ConfigError(
                    f"'{name}' is the name of a column of every debiased table.",
                    where=document.where((*place, i)),
                    next_step="Rename the column in the source.",
                )
            if name in request.columns[:i]:
                raise DuplicateColumnError(
                    f"Column '{name}' is named twice.", where=document.where((*place, i))
                )
    for name in config.checks:
        if name not in domain.names:
            raise ConfigError(
                f"The domain declares no column '{name}'.", where=document.where(("checks", name))
            )
    with localcontext(prec=1000):
        shares = sum((p.share for p in config.products.values()), Decimal(0))
    if shares != 1:
        raise BudgetValueError(
            f"The products' shares add up to {shares}, not 1 (one that is not given counts as 1).",
            where=document.where(("products",)),
        )


def _requests(
    config: ReleaseConfig, domain: Domain, document: Document
) -> Iterator[ProductRequest]:
    for name, product in config.products.items():
        mechanism = product.mechanism
        if mechanism == AUTO and product.kind in FunctionRelease.kinds:
            mechanism = FunctionRelease.name  # which alone serves it
        known = REGISTRY.get(mechanism)
        knobs = OPEN.get(product.kind, AutoKnobs) if known is None else known.knobs
        with _placed(document, ("products", name)):
            said = knobs(**{f.name: getattr(product, f.name) for f in fields(knobs)})
            named = isinstance(said, (EstimandKnobs, FunctionKnobs))
            beside = said.columns_beside if named else ()
            for column in beside:
                domain[column]  # or an error
            yield ProductRequest(
                name=name,
                kind=product.kind,
                mechanism=mechanism,
                knobs=said,
                columns=tuple(dict.fromkeys((*product.columns, *beside))),
                share=product.share,
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


def default_check(column: Column, declared: CheckConfig | None) -> tuple[Decimal, Decimal | None]:
    """Largest shares of missing and of undeclared values that the input gate accepts.

    Without a declaration a value that has no cell of its own is not accepted;
    clamped values are not limited (None).
    """
    missing = Decimal(1) if column.missing else Decimal(0)
    outside = Decimal(0) if column.kind in ("categorical", "ordinal") else None
    if column.other_code is not None:
        outside = None
    if declared is not None and declared.missing_at_most is not None:
        missing = declared.missing_at_most
    if declared is not None and declared.outside_at_most is not None:
        outside = declared.outside_at_most
    return missing, outside
