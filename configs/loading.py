"""From a file to a checked and planned release, with errors that name file, line and field.

Every finding of the validator becomes an error of the right kind and place.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from statpress.configs import formats, sources
from statpress.configs.about import AboutConfig, OtherLicence
from statpress.configs.checks import (
    check_exports,
    check_product_columns,
    columns_in_order,
    compared,
    domain_of,
    place_of_column,
    public_path,
    rest_of,
)
from statpress.configs.declared_columns import COLUMNS, CategoriesFile, RangeConfig
from statpress.configs.geography import GeographyConfig, geographies
from statpress.configs.order import Applied, Order, Override, apply, nearest, with_values
from statpress.configs.products import PRODUCTS, open_forms, taking
from statpress.configs.release_config import CheckConfig, ReleaseConfig, RoughSize, UnitColumn
from statpress.configs.requests import complete_shares, requests_of, survey_weight
from statpress.configs.series import dated
from statpress.configs.tables import key_faults
from statpress.configs.upload_targets import TARGETS, PublishTargets, Target, tag_of
from statpress.configs.yaml_text import (
    Document,
    Findings,
    as_value,
    parse,
    placed,
    read_text,
)
from statpress.configs.yaml_text import Place as Keys
from statpress.mechanisms import errors
from statpress.mechanisms.domain.columns import Categorical, Ordinal
from statpress.mechanisms.domain.domain import Domain, Privacy, Size
from statpress.mechanisms.errors import ConfigError, DependencyError, UnknownKeyError, together
from statpress.mechanisms.periods import SeriesPeriod
from statpress.mechanisms.places.tree import Geography
from statpress.mechanisms.planning.choice import AUTO, Budget, ProductRequest, part_of
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.registry import KINDS, REGISTRY, serving

if TYPE_CHECKING:
    pass

Model = TypeVar("Model", bound=BaseModel)
_TAGS: dict[Any, type[BaseModel]] = {
    "by column": UnitColumn, "as range": RangeConfig, "CategoriesFile": CategoriesFile,
    "rough": RoughSize, "by name": OtherLicence, **COLUMNS,
    **{tag_of(key): model for key, model in TARGETS.items()},
    **{sources.tag_of(key): model for key, model in sources.ENGINES.items()},
}  # fmt: skip


def validate(document: Document, model: type[Model], at: Keys = ()) -> Model:
    """The values of a document, or of one of its sections, as a model.

    Args:
        document: Parsed.
        model: What it should be.
        at: Keys of the section.

    Raises:
        ConfigError: The first of all findings, unknown keys before the rest, with the others.
    """
    value = document.value
    for key in at:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        what = f"'{at[-1]}'" if at else "The file"
        raise ConfigError(f"{what} must be a mapping of keys.", where=document.where(at))
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
    except ConfigError as error:  # of a value that checks itself, which cannot say where it is
        places = [keys for keys in document.places if keys and keys[-1] == error.where]
        error.where = document.where(places[0] if len(places) == 1 else at)
        error.args = (str(error),)
        raise
    problems = [_problem({**detail, "loc": (*at, *detail["loc"])}, document) for detail in found]
    problems = list({str(each[0]): each for each in problems}.values())  # of a union, once
    problems.sort(key=lambda each: (not isinstance(each[0], UnknownKeyError), *each[1:]))
    raise together([problem for problem, *_ in problems])


def _problem(detail: Any, document: Document) -> tuple[ConfigError, tuple[int, int], str]:
    """One finding of the validator, with the line and column to sort it by."""
    keys = _existing(detail["loc"], document, whole=detail["type"] == "missing")
    error = _as_error(detail, keys, document)
    known = next((keys[:n] for n in range(len(keys), 0, -1) if keys[:n] in document.places), ())
    return error, document.places.get(known, (1, 1)), error.where


def _known_keys(loc: Keys) -> Iterable[str]:
    """The keys that may stand where the validator found one that may not."""
    model: Any = ReleaseConfig
    if loc[0] in ("checks", "geography") and len(loc) > 2:
        model = CheckConfig if loc[0] == "checks" else GeographyConfig
    elif len(loc) == 2:
        model = ReleaseConfig.model_fields[str(loc[0])].annotation
    elif len(loc) > 2:
        model = _tagged(loc[1:-1])
        if model is None and loc[0] == "about":
            model = get_args(AboutConfig.model_fields[str(loc[1])].annotation)[0]
    return getattr(model, "model_fields", ())


def _tagged(keys: Keys) -> Any:
    """The model of the innermost section whose tag is among the validator's keys."""
    members: tuple[Mapping[Any, type[BaseModel]], ...] = (_TAGS, PRODUCTS)
    found = (models[key] for key in reversed(keys) for models in members if key in models)
    return next(found, None)


def _as_error(detail: Any, keys: Keys, document: Document) -> ConfigError:
    """One finding of the validator as an error of the right kind."""
    kind = detail["type"]
    where = document.where(keys)
    if kind == "extra_forbidden":
        key = keys[-1]
        if keys[0] == "products" and len(keys) == 3 and (others := taking(str(key))):
            return UnknownKeyError(
                f"This product has no key '{key}': only products by {' or '.join(others)} do.",
                where=where,
                next_step="Remove the key, or name one of these mechanisms if it serves this kind.",
            )
        hint = nearest(key, _known_keys(detail["loc"]))
        return UnknownKeyError(f"There is no key '{key}' here.{hint}", where=where)
    if kind == "missing":
        return ConfigError(f"'{keys[-1]}' is missing.", where=where)
    if detail["input"] is None and keys:
        return ConfigError(f"'{keys[-1]}' is blank: fill it in.", where=where)
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return ConfigError("The value must be a mapping of keys.", where=where)
    if kind == "union_tag_not_found" and keys[0] == "products":
        allowed = {name for model in PRODUCTS.values() for name in model.model_fields}
        for key in detail["input"]:
            if key not in allowed:  # perhaps 'mechanism' misspelt
                what = f"There is no key '{key}' here.{nearest(key, sorted(allowed))}"
                return UnknownKeyError(what, where=document.where((*keys, key)))
        if str(detail["input"].get("kind")) not in KINDS:
            return _no_kind(detail["input"], document, keys)
        return ConfigError("'mechanism' is missing.", where=document.where((*keys, "mechanism")))
    if kind == "union_tag_invalid" and keys[0] == "products":
        if detail["input"].get("mechanism") == AUTO:
            return _no_kind(detail["input"], document, keys)
        named, of_kind = (str(detail["input"].get(key)) for key in ("mechanism", "kind"))
        known = KINDS.get(of_kind)
        names = (AUTO, *([each.name for each in serving(known)] if known else REGISTRY))
        whom = f"for '{of_kind}' there are" if known else "there are"
        return ConfigError(
            f"There is no mechanism '{named[:60]}'; {whom} {', '.join(names)}."
            f"{nearest(named, names)}",
            where=document.where((*keys, "mechanism")),
        )
    if kind == "literal_error" and keys[0] == "products" and keys[-1] == "kind":
        chosen = str(detail["loc"][2])
        kind = KINDS.get(str(detail["input"]))
        able = [mechanism.name for mechanism in serving(kind)] if kind else []
        return ConfigError(
            f"The mechanism '{chosen.split()[0]}' serves {' and '.join(_kinds(chosen))}, and not "
            f"'{str(detail['input'])[:60]}', which {', '.join(able) or 'none'} would serve.",
            where=where,
        )
    message = detail["msg"].removeprefix("Input ")
    if message.split()[0] in ("must", "should", "is"):
        message = f"The value {message}"
    error_class = getattr(errors, kind, ConfigError)
    if keys and keys[-1] in ("records", "pseudocount"):
        error_class = errors.RecordsError
    return error_class(
        f"{message[0].upper()}{message[1:].removesuffix('.')}.",
        where=where,
        next_step=detail.get("ctx", {}).get("next_step", ""),
    )


def _no_kind(product: Mapping[str, Any], document: Document, keys: Keys) -> ConfigError:
    """What is wrong with a product of no known kind that leaves its mechanism open."""
    where = document.where((*keys, "kind"))
    if "kind" not in product:
        return ConfigError("'kind' is missing.", where=where)
    return ConfigError(
        f"There is no kind of product '{str(product['kind'])[:60]}'; there are {', '.join(KINDS)}.",
        where=where,
    )


def _kinds(chosen: str) -> tuple[str, ...]:
    """The kinds of product that one form of product can be of."""
    found: tuple[str, ...] = get_args(PRODUCTS[chosen].model_fields["kind"].annotation)
    if chosen != AUTO:
        return found
    return (
        *found,
        *(kind for form, (*_, served) in open_forms().items() if form != AUTO for kind in served),
    )


def _existing(loc: Keys, document: Document, *, whole: bool) -> Keys:
    """The location without the validator's own tags, such as a union's member.

    With ``whole`` the last key is kept although it is not in the file.
    """
    keys: Keys = ()
    for i, key in enumerate(loc):
        if (*keys, key) in document.places or (whole and i == len(loc) - 1):
            keys = (*keys, key)
    return keys


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
    columns = columns_in_order(config, document, path.parent, findings)
    check_product_columns(document, findings)
    check_exports(config, columns, document, findings)
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
        domain = domain_of(config, columns, document, findings)
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
        weight = survey_weight(config, domain, document, path.parent, findings)
        requests = tuple(
            requests_of(config, domain, shares, document, path.parent, findings, places, weight)
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


def load_targets(path: Path) -> Sequence[Target]:
    """The targets that a config names, whatever else it says; none where it names none.

    Args:
        path: Of the config, such as that of a bundle.

    Raises:
        ConfigError: A target is not in order.
    """
    document = parse(read_text(path, str(path)), path.name)
    document = dated(document, Findings())
    said = document.value.get("publish") if isinstance(document.value, dict) else None
    if not isinstance(said, dict) or "targets" not in said:
        return ()
    return validate(document, PublishTargets, ("publish",)).targets


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
            lines[*place_of_column(config, name), "categories"] = whole
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
