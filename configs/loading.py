"""From a file to a checked and planned release, with errors that name file, line and field.

Of a faulty config the parts that are in order are checked as well, so that their faults are named
in the same run: the declared domain, the products, and what the formats cannot hold.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context, Decimal, localcontext
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from statpress.configs import formats
from statpress.configs.checks import (
    OF_BANDS,
    RESERVED_COLUMNS,
    check_product_columns,
    compared,
    validate,
)
from statpress.configs.declared_columns import CategoriesFile, build_zero
from statpress.configs.formats import fault_of, stored_name
from statpress.configs.geography import geographies
from statpress.configs.order import Applied, Order, Override, apply, with_values
from statpress.configs.release_config import ReleaseConfig
from statpress.configs.requests import public_path, requests_of
from statpress.configs.series import dated
from statpress.configs.tables import key_faults
from statpress.configs.yaml_text import (
    Document,
    Findings,
    as_value,
    lines_of,
    parse,
    placed,
    read_text,
)
from statpress.configs.yaml_text import Place as Keys
from statpress.mechanisms.domain.columns import Categorical, Column, Numeric, Ordinal
from statpress.mechanisms.domain.domain import Domain, Privacy, Size, ZeroPattern
from statpress.mechanisms.errors import BudgetValueError, ConfigError, DependencyError, together
from statpress.mechanisms.periods import SeriesPeriod
from statpress.mechanisms.places.tree import Geography
from statpress.mechanisms.planning.choice import Budget, ProductRequest, part_of
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import plan_release

CHECKS_OF_INPUT = "checks of the input"
"""What a ledger and a bundle call the noisy checks; no product can have this name."""


@dataclass(frozen=True)
class Release:
    """A config that has passed every check that needs no data.

    Attributes:
        config: The values as written, overrides applied.
        folder: Where its paths go from.
        text: The file's text with the overrides and the lines of categories files in it.
        domain: The declared domain, categories files read in.
        frame: Frame of reference of the guarantee; None until a run has counted the size in the
            source, where the config takes it from there and does not say about what it is.
        requests: The products with their knobs.
        document: Places of the values, for messages.
        overrides: What differs from the file.
        supersedes: Seal of the bundle that this release follows.
    """

    config: ReleaseConfig
    folder: Path
    text: str
    domain: Domain
    frame: Privacy | None
    requests: tuple[ProductRequest, ...]
    document: Document
    overrides: tuple[Applied, ...] = ()
    supersedes: str | None = None

    @property
    def privacy(self) -> Privacy:
        """Frame of reference of the guarantee.

        Raises:
            ConfigError: Its size is not known before a run.
        """
        if self.frame is None:
            name = self.config.privacy.size_name
            raise ConfigError(
                "A run counts the size in the source before it plans, so nothing can be planned"
                " before the run.",
                where=self.document.where(("privacy", name)),
                next_step=f"Write '{name}: {{from_source: true, about: NUMBER}}', or plan for a"
                f" number with --set privacy.{name}=NUMBER.",
            )
        return self.frame

    def sized(self, size: int, origin: Size = Size.FROM_SOURCE) -> Release:
        """The release with the number of records, or of units, that its source has."""
        return replace(self, frame=self.config.privacy.build(size, origin))

    def plan(
        self,
        *,
        rho_delta: Decimal | None = None,
        times: Decimal = Decimal(1),
        briefly: bool = False,
        shares: Mapping[str, Decimal] | None = None,
    ) -> Plan:
        """Fix every parameter; needs no data.

        Args:
            rho_delta: In place of the config's.
            times: Above 0: plan for so many times the budget's epsilon or rho, to compare with.
            briefly: Only what the plan comes to is asked for, not what choices were between.
            shares: Of the whole release by product, in place of the config's.

        Raises:
            InfeasibleBudgetError: The knobs of a product do not fit its budget.
        """
        if shares is not None:
            fixed = [
                replace(each, share=shares[each.name], open_share=False) for each in self.requests
            ]
            return self._planned(fixed, rho_delta, times, briefly)
        findings = Findings()
        with findings.noting():
            return self._planned(self._beside_gate(), rho_delta, times, briefly)
        first = findings.errors[0]
        for request in self.requests if len(self.requests) > 1 else ():
            with findings.noting():  # what fails with the whole budget fails with a part
                alone = Decimal(1) if self.config.gate is None else 1 - self.config.gate.share
                self._planned((replace(request, share=alone),), rho_delta, times, briefly)
        raise together([first, *(each for each in findings.errors if each.where != first.where)])

    @property
    def gate(self) -> ProductRequest | None:
        """The noisy checks of the input as a product of their own; None if they are exact.

        Raises:
            ConfigError: The checks compare nothing.
        """
        if self.config.gate is None:
            return None
        from statpress.mechanisms.tables.noisy_checks import CHECKS, NoisyChecks, NoisyChecksKnobs

        by_column = Counter(column for column, _, _ in compared(self.domain, self.config.limits))
        zeros, keys = bool(self.domain.patterns), len(key_faults(self.config.linked))
        if not by_column and not zeros and not keys:
            raise ConfigError(
                "The checks compare no count of the records, so there is nothing to add noise to.",
                where=self.document.where(("gate",)),
                next_step="Leave out 'gate'.",
            )
        return ProductRequest(
            name=CHECKS_OF_INPUT,
            kind=CHECKS,
            mechanism=NoisyChecks.name,
            knobs=NoisyChecksKnobs.of(
                by_column.values(),
                zeros=zeros,
                adjacency=self.config.privacy.adjacency,
                keys=keys,
            ),
            columns=self.domain.names,
            share=self.config.gate.share,
        )

    def _beside_gate(self) -> Sequence[ProductRequest]:
        """The products with their shares of the whole release."""
        if self.config.gate is None:
            return self.requests
        left = 1 - self.config.gate.share
        return [replace(each, share=part_of(each.share, left)) for each in self.requests]

    def _planned(
        self,
        requests: Sequence[ProductRequest],
        rho_delta: Decimal | None,
        times: Decimal,
        briefly: bool,
    ) -> Plan:
        gate = self.gate
        with placed(self.document, ("products",)):
            return plan_release(
                requests,
                gate=gate,
                domain=self.domain,
                privacy=self.privacy,
                budget=self.budget(rho_delta=rho_delta, times=times),
                briefly=briefly,
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

    @property
    def period(self) -> SeriesPeriod | None:
        """The period that the release is of; None unless it is one of a series."""
        return None if self.config.series is None else self.config.series.of

    @property
    def period_text(self) -> str | None:
        """The text of its period, if the name of its source has it.

        Else nothing shows that the records are of that period, and what is charged counts for
        everybody: the same file could be released once for each period.
        """
        text = None if self.period is None else str(self.period)
        return text if text and text in self.config.source.place else None

    @property
    def directory(self) -> Path:
        """Where its bundle goes; a period of a series has a folder of its own."""
        directory, series = self.located(self.config.publish.directory), self.config.series
        if series is None or self.period is None:
            return directory
        return directory / series.name / str(self.period)

    def located(self, relative: str) -> Path:
        """A path of the config, taken from its folder."""
        return (self.folder / relative).absolute()


def load(path: str | Path, overrides: Iterable[Override] = ()) -> Release:
    """Read and check a config as it stands; opens no data.

    Raises:
        ConfigError: Or one of its kinds, naming file, line and field, or the override.
    """
    return load_order(Order(Path(path), tuple(overrides)))


_STATA = 2_000


def load_order(order: Order) -> Release:
    """Read and check the config of an order; opens no data.

    Raises:
        ConfigError: Or one of its kinds, naming file, line and field, or the override.
        DependencyError: The source needs an extra that is not installed.
    """
    path = order.path.absolute()
    document = parse(read_text(path, str(path)), path.name)
    marked = document.blanks
    written, overrides = apply(document, order.overrides)
    findings, blanks = Findings(), [keys for keys in marked if written.at(keys) is None]
    document = dated(written, findings)
    config = _as_far_as_valid(document, blanks, findings)
    columns = _columns_in_order(config, document, path.parent, findings)
    check_product_columns(document, findings)
    _check_exports(config, columns, document, findings)
    shares = dict.fromkeys(config.products, Decimal(1))
    if config.products.keys() == document.value["products"].keys():
        with findings.noting(), placed(document, ("products",)):
            shares = complete_shares(
                {name: product.share for name, product in config.products.items()}
            )
    with findings.noting(), placed(document, ("privacy",)):
        frame = config.privacy.build()
    if not columns:
        findings.settle()
    with findings.noting():
        domain = _domain_of(config, columns, document, findings)
        places, texts = geographies(
            config.geography,
            columns,
            document,
            lambda named, where, endings: public_path(
                named, path.parent, config.source.files, "places", where=where, endings=endings
            ),
            findings,
        )
        check_outlines(places, config.publish.formats, document)
        requests = tuple(
            requests_of(config, domain, shares, document, path.parent, findings, places)
        )
    findings.settle()
    place: Keys = ("source", "path") if ("source", "path") in document.places else ("source",)
    place = place if config.tables is None else ("tables",)
    config.source.check_installed(document.where(place))
    check_exports_installed(config, document)
    return Release(
        config=config,
        folder=(order.folder or path.parent).absolute(),
        text=_whole_text(written, config, domain, requests, texts),
        domain=domain,
        frame=frame,
        requests=requests,
        document=document,
        overrides=overrides,
        supersedes=order.supersedes,
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


def check_outlines(
    places: Mapping[str, Geography], formats: Sequence[str], document: Document
) -> None:
    """Refuse outlines that are too long for text in files of Stata.

    Raises:
        ConfigError: The config asks for such files.
    """
    for name, geography in places.items():
        drawn = geography.outlines
        longest = max(map(len, drawn.paths)) if drawn else 0
        if "dta" in formats and longest > _STATA:
            raise ConfigError(
                f"An outline takes {longest:,} bytes, and text in files of Stata at most "
                f"{_STATA:,}.",
                where=document.where(("geography", name, "boundaries")),
                next_step="Leave 'dta' out of publish.formats, or give tiles.",
            )


def leaves_period_open(order: Order) -> bool:
    """Whether the config of an order is of a series, and neither says which period is released.

    Raises:
        ConfigError: The config cannot be read, or an override leads nowhere.
    """
    text = read_text(order.path.absolute(), str(order.path.absolute()))
    if "series" not in text:
        return False
    document, _ = apply(parse(text, order.path.name), order.overrides)
    series = document.value.get("series") if isinstance(document.value, dict) else None
    return isinstance(series, dict) and series.get("current") is None


def _as_far_as_valid(
    document: Document, blanks: Sequence[Keys], findings: Findings
) -> ReleaseConfig:
    """The config; of one with faults, which go to the findings, the parts that have none."""
    config = None
    try:
        config = validate(document, ReleaseConfig)
    except ConfigError as error:
        # A section that is at fault since something in it is blank is not named as well.
        sections = {document.where(keys[:-1]) for keys in blanks}
        found = (error, *error.also)
        error.also = ()
        findings.errors += [each for each in found if each.where not in sections]
    findings.errors += [
        ConfigError(f"'{keys[-1]}' is blank: fill it in.", where=document.where(keys))
        for keys in blanks
    ]
    if config is not None:
        return config
    rest = _rest_of(document)
    if rest is None:
        findings.settle()
    assert rest is not None
    return rest


_NAMED = ("domain", "geography", "products", "checks")
_STAND_INS: dict[str, Any] = {
    "title": "-",
    "about": {},
    "dataset": "-",
    "source": {"path": "-"},
    "privacy": {"adjacency": "replace_one", "unit": "record", "n_records": 1},
    "budget": {"epsilon": 1, "delta": 0},
    "publish": {"directory": "-"},
    "resources": {},
}
"""For sections at fault. Nothing comes of them: a config with a fault is never returned."""


def _rest_of(document: Document) -> ReleaseConfig | None:
    """The config without the columns, products, checks and sections that are at fault.

    Returns:
        None if too little is left to be checked.
    """
    if not isinstance(document.value, dict):
        return None
    value = dict(document.value)
    try:
        return ReleaseConfig.model_validate(value)
    except ValidationError as error:
        places = [detail["loc"] for detail in error.errors(include_url=False)]
    except ConfigError:
        return None
    if () in places:  # the config as a whole
        return None
    for part, *inner in places:
        if part in _NAMED and inner and isinstance(value.get(part), dict):
            value[part] = {k: v for k, v in value[part].items() if k != inner[0]}
        elif part in _STAND_INS:
            value[part] = _STAND_INS[part]
        else:
            value.pop(part, None)
    try:
        return ReleaseConfig.model_validate(value)
    except (ValidationError, ConfigError):
        return None


def _place_of_column(config: ReleaseConfig, name: str) -> Keys:
    """Where a column is declared."""
    if config.weight is not None and name == config.weight.column:
        return ("weight", "edges")
    return ("domain", name) if config.linked is None else config.linked.place_of(name)


def _columns_in_order(
    config: ReleaseConfig, document: Document, folder: Path, findings: Findings
) -> dict[str, Column]:
    """The columns that are in order, by name."""
    columns = {}
    for name, column in config.columns.items():

        def read_lines(relative: str, name: str = name) -> list[str]:
            if (listed := lines_of(relative)) is not None:
                return [line for line in listed if line.strip()]
            where = document.where((*_place_of_column(config, name), "categories"))
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

        with findings.noting(), placed(document, _place_of_column(config, name)):
            columns[name] = column.build(name, read_lines)
            source = config.source if config.linked is None else config.linked.source_of(name)
            source.check_column(columns[name])
    return columns


def _domain_of(
    config: ReleaseConfig, columns: dict[str, Column], document: Document, findings: Findings
) -> Domain:
    """The domain of the columns that are in order."""
    linked = config.linked
    with placed(document, ("domain",)):
        domain = Domain(tuple(columns.values() if linked is None else linked.flat(columns)))
    zeros: list[ZeroPattern] = []
    rules: list[ZeroPattern] = []
    for i, declared in enumerate(config.structural_zeros):
        if not columns.keys() >= declared.keys() & config.columns.keys():
            continue  # of a column that is not in order, which is said already
        with findings.noting(), placed(document, ("structural_zeros", i)):
            zero = build_zero(declared, columns)
            patterns = [zero] if linked is None else list(linked.patterns(zero))
            (zeros if patterns == [zero] else rules).extend(patterns)
    for i, rule in enumerate(config.rules if linked is not None else ()):
        with findings.noting(), placed(document, ("rules", i)):
            assert linked is not None
            rules.extend(linked.broken(rule, columns))
    with placed(document, ("structural_zeros",)):
        # A unit of one record lacks none, and needs no cell for what it lacks.
        full = Domain(domain.columns, tuple(zeros), absent=config.privacy.pads, rules=tuple(rules))
    with placed(document, ("rules",)):
        if linked is not None:
            linked.check_possible(full)
    return full


def _check_exports(
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
        for name in config.columns:
            if name in released and name.startswith(tuple(formats.FORMULA_MARKS)):
                findings.errors.append(
                    ConfigError(
                        f"A spreadsheet would take the name of the column {name!r} for a formula "
                        "in the header of CSV files.",
                        where=document.where(_place_of_column(config, name)),
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
        return [*column.edge_array.tolist(), *column.special]
    return []


_DIGITS = Context(prec=12, rounding=ROUND_DOWN)


def complete_shares(given: Mapping[str, Decimal | None]) -> dict[str, Decimal]:
    """Every product's share; they add up to 1 exactly.

    Those without a share divide equally what the others leave, where planning begins to find theirs
    (``mechanisms.planning.shares``). Each gets twelve digits of its part,
    and the last of them the rest.

    Args:
        given: By product its share, None where it is left out.

    Raises:
        BudgetValueError: The shares do not add up to 1, or leave nothing for the others.

    >>> complete_shares({"a": Decimal("0.5"), "b": None, "c": None})
    {'a': Decimal('0.5'), 'b': Decimal('0.25'), 'c': Decimal('0.25')}
    """
    without = [name for name, share in given.items() if share is None]
    known = {name: share for name, share in given.items() if share is not None}
    with localcontext(prec=1000):
        total = sum(known.values(), Decimal(0))
        left = 1 - total
        if not without and left:
            raise BudgetValueError(f"The products' shares add up to {total}, not 1.")
        if without and left <= 0:
            named = ", ".join(f"'{name}'" for name in without)
            raise BudgetValueError(
                f"The shares that are given add up to {total} and leave nothing for {named}."
            )
        parts = {}
        if without:
            each = _DIGITS.divide(left, len(without))
            parts = dict.fromkeys(without, each)
            parts[without[-1]] = left - each * (len(without) - 1)
    return {name: known[name] if name in known else parts[name] for name in given}


def _whole_text(
    document: Document,
    config: ReleaseConfig,
    domain: Domain,
    requests: Iterable[ProductRequest],
    texts: Mapping[Keys, Any],
) -> str:
    """The document's text with what files of categories, places and totals hold in their place."""
    lines: dict[Keys, Any] = dict(texts)
    declared = {column.name: column for column in domain.declared}
    for name, column in config.domain.items():
        if isinstance(getattr(column, "categories", None), CategoriesFile):
            built = declared[name]
            assert isinstance(built, Categorical | Ordinal)
            listed = as_value([str(each) for each in built.categories])
            whole = {"file": listed} if isinstance(listed, str) else list(built.categories)
            lines[*_place_of_column(config, name), "categories"] = whole
    for request in requests:
        written = getattr(config.products[request.name], "known", None) or {}
        for key, total in (getattr(request.knobs, "known", None) or {}).items():
            if written[key].file is not None:
                inline = {"columns": list(total.columns), "counts": list(total.counts)}
                lines["products", request.name, "known", key] = inline
        weight = getattr(request.knobs, "weight", None)
        for name, totals in weight.totals.items() if weight else ():
            lines["weight", "calibrate", name] = list(map(int, totals))
    return with_values(document, lines, where=document.name).text


@dataclass(frozen=True)
class PlannedOrder:
    """What is asked of a run, with the release and the plan that it comes to.

    Attributes:
        order: The config, and what differs from it.
        release: The config, read and checked.
        plan: Every mechanism with its parameters.
    """

    order: Order
    release: Release
    plan: Plan

    @classmethod
    def of(cls, order: Order) -> PlannedOrder:
        """Read, check and plan an order; opens no data.

        Raises:
            ConfigError: The config is not in order.
            InfeasibleBudgetError: The knobs of a product do not fit its budget.
        """
        release = load_order(order)
        return cls(order, release, release.plan())
