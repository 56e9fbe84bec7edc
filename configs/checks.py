"""What a config must be by itself: its keys and values, names of columns, limits on the input.

Every finding of the validator becomes an error of the right kind and place.

No file of the source is opened here: whether it has the declared columns is checked where it is
read (``tasks.source.engine.check_source_columns``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from statpress.configs import sources
from statpress.configs.about import AboutConfig, OtherLicence
from statpress.configs.declared_columns import COLUMNS, CategoriesFile, RangeConfig
from statpress.configs.geography import GeographyConfig
from statpress.configs.order import nearest
from statpress.configs.products import PRODUCTS, open_forms
from statpress.configs.release_config import CheckConfig, ReleaseConfig, RoughSize, UnitColumn
from statpress.configs.upload_targets import TARGETS, tag_of
from statpress.configs.yaml_text import Document, Findings
from statpress.configs.yaml_text import Place as Keys
from statpress.mechanisms import errors
from statpress.mechanisms.domain.columns import Column, Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, DuplicateColumnError, UnknownKeyError, together
from statpress.mechanisms.planning.choice import AUTO
from statpress.mechanisms.registry import KINDS, REGISTRY, serving

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
        if keys[0] == "products" and len(keys) == 3 and (others := _taking(str(key))):
            return UnknownKeyError(
                f"This product has no key '{key}': only products by {' or '.join(others)} do.",
                where=where,
                next_step="Remove the key, or name one of these mechanisms if it serves this kind.",
            )
        hint = nearest(key, _known_keys(detail["loc"]))
        if keys[0] == "privacy" and key in UnitColumn.model_fields:
            hint = f" It belongs into privacy.unit: {{column: ..., {key}: ...}}."
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


def _taking(key: str) -> list[str]:
    """The mechanisms whose products have a key."""
    return [name for name in REGISTRY if key in PRODUCTS[name].model_fields]


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


def declared_columns(document: Document) -> frozenset[str]:
    """Names of all columns of the domain, those at fault as well."""
    written = document.value if isinstance(document.value, dict) else {}
    sections = [written.get("domain")]
    if isinstance(tables := written.get("tables"), dict):
        sections = [each.get("domain") for each in tables.values() if isinstance(each, dict)]
        sections.append({f"n_{name}": None for name in tables})
    weight = _written(document, "weight").get("column")
    if isinstance(weight, str):
        sections.append({weight.partition(".")[2] if isinstance(tables, dict) else weight: None})
    return frozenset(name for each in sections if isinstance(each, dict) for name in each)


_PARTS = (
    "", "_debiased", "_estimates", "_table", "_raw", "_distribution", "_cells_band",
    "_cumulative_band", "_households", "_persons",
)  # fmt: skip
"""Of the names of files."""
RESERVED_COLUMNS = ("estimate", "projected", "raw", "raw_block", "standard_error")
OF_BANDS = ("count_lower", "count_upper", "share_lower", "share_upper")
OF_PLACES = ("lower", "upper")


def check_product_columns(document: Document, findings: Findings) -> None:
    """Check names of columns and of files; what is wrong with them goes to the findings.

    Products and checks with other faults are checked as well.
    """
    stems: set[str] = set()
    declared = declared_columns(document)
    for product, said in _written(document, "products").items():
        parts = (*_PARTS, *_parts_of_places(said))
        written = {f"{product}{part}".casefold() for part in parts}
        twice = len(written) < len(parts)
        if twice or written & stems:
            which = "Two tables of this product" if twice else "This product and another"
            found = ConfigError(
                f"{which} would be written to the same file.",
                where=document.where(("products", product)),
                next_step="Name each level once in 'at', or rename a level of the geography."
                if twice
                else "Rename one of them.",
            )
            findings.errors.append(found)
        stems |= written
        before: list[str] = []
        for place, name in _named_columns(said):
            with findings.noting():
                where = document.where(("products", product, *place))
                if name in OF_BANDS and said.get("bands"):
                    raise ConfigError(
                        f"'{name}' is the name of a column of every band.",
                        where=where,
                        next_step="Rename the column in the source, or leave out 'bands'.",
                    )
                _check_column(name, before, declared, where)
            before.append(name)
        for place, name, is_level in _names_at_levels(said):
            with findings.noting():
                where = document.where(("products", product, *place))
                if name in (*OF_PLACES, *(RESERVED_COLUMNS if is_level else ())):
                    raise ConfigError(
                        f"'{name}' is the name of a column of every table of places.",
                        where=where,
                        next_step="Rename the column in the source, or the level.",
                    )
                if not is_level and place[0] == "at":
                    _check_column(name, (), declared, where)
    for name in _written(document, "checks"):
        if name not in declared:
            findings.errors.append(_undeclared(name, document.where(("checks", name))))


def _written(document: Document, section: str) -> dict[str, Any]:
    """A section as it is written, with the entries that are at fault."""
    said = document.value.get(section) if isinstance(document.value, dict) else None
    if not isinstance(said, dict):
        return {}
    return {key: value for key, value in said.items() if isinstance(key, str)}


def _named_columns(product: Any) -> list[tuple[Keys, str]]:
    """The columns of a product as it is written, with their places; none that are not all names."""
    written = product if isinstance(product, dict) else {}
    found: list[tuple[Keys, Any]] = _listed(("columns",), written.get("columns", []))
    statistic = written.get("statistic")
    regression = statistic.get("regression") if isinstance(statistic, dict) else None
    if isinstance(regression, dict):
        place: Keys = ("statistic", "regression")
        found.append(((*place, "of"), regression.get("of")))
        on = regression.get("on")
        found += [((*place, "on"), on)] if isinstance(on, str) else _listed((*place, "on"), on)
    return found if all(isinstance(name, str) for _, name in found) else []


def _names_at_levels(product: Any) -> Iterator[tuple[Keys, str, bool]]:
    """The names of columns of tables of places, with their places and whether they are levels."""
    at = product.get("at") if isinstance(product, dict) else None
    if isinstance(at, list):
        found = [(place, name, True) for place, name in _listed(("at",), at)]
        found += [(place, name, False) for place, name in _named_columns(product)]
    else:
        found = []
        for level, groups in at.items() if isinstance(at, dict) else ():
            found.append((("at", level), level, True))
            for i, group in enumerate(groups if isinstance(groups, list) else ()):
                own = _listed(("at", level, i), group)
                found += [(place, name, False) for place, name in own]
    return (each for each in found if isinstance(each[1], str))


def _parts_of_places(product: Any) -> list[str]:
    """Of the names of files of tables of places."""
    at = product.get("at") if isinstance(product, dict) else None
    if not isinstance(at, dict | list):
        return []
    parts = ["_places", *(f"_{level}" for level in at)]
    for level, groups in at.items() if isinstance(at, dict) else ():
        further = len(groups) if isinstance(groups, list) else 0
        parts += [f"_{level}_{number}" for number in range(2, further + 1)]
    return parts


def _listed(place: Keys, values: Any) -> list[tuple[Keys, Any]]:
    """The values of a list with their places; what is not a list as it is."""
    if not isinstance(values, list):
        return [(place, None)]
    return [((*place, i), value) for i, value in enumerate(values)]


def _check_column(name: str, before: Sequence[str], declared: Collection[str], where: str) -> None:
    """Refuse a column of a product that is not declared, is reserved, or is named twice."""
    if name not in declared:
        raise _undeclared(name, where)
    if name in RESERVED_COLUMNS:
        raise ConfigError(
            f"'{name}' is the name of a column of every debiased table.",
            where=where,
            next_step="Rename the column in the source.",
        )
    if name in before:
        raise DuplicateColumnError(f"Column '{name}' is named twice.", where=where)


def _undeclared(name: str, where: str) -> ConfigError:
    return ConfigError(f"The domain declares no column '{name}'.", where=where)


Fate = Literal["missing", "outside", "unreadable"]
"""What a value can be besides one of a declared cell of its own."""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True)
class Limits:
    """The largest shares of a column's values that the input gate accepts.

    Attributes:
        missing: Of nulls.
        outside: Of undeclared or clamped values; None if they are not limited.
        unreadable: Of values that are there and cannot be read as declared.
    """

    missing: Decimal
    outside: Decimal | None
    unreadable: Decimal


def limits(column: Column, checks: Mapping[str, CheckConfig]) -> Limits:
    """What the input gate accepts of a column, in every place of a household alike.

    Without a declaration a value that has no cell of its own is not accepted, nor is one that
    cannot be read; clamped values are not limited.
    """
    if isinstance(column, Slot):
        column = column.of
    declared = checks.get(column.name) or CheckConfig()
    missing, outside = declared.missing_at_most, declared.outside_at_most
    if missing is None:
        missing = Decimal(1) if column.missing else Decimal(0)
    if outside is None and column.kind in ("categorical", "ordinal") and column.other_code is None:
        outside = Decimal(0)
    return Limits(missing, outside, declared.unreadable_at_most or Decimal(0))


def compared(
    domain: Domain, checks: Mapping[str, CheckConfig]
) -> Iterator[tuple[str, Fate, Decimal]]:
    """The counts that the input gate compares: column, fate, and the largest share that passes.

    A share of 1 is never passed, so it is not compared.
    """
    for column in domain.columns:
        most = limits(column, checks)
        for fate in FATES:
            share = getattr(most, fate)
            if share is not None and share < 1:
                yield column.name, fate, share
