"""A document against its model: every finding as an error of the right kind and place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from configs.models import server_sources
from configs.models.about import AboutConfig, OtherLicence
from configs.models.domain import COLUMNS, CategoriesFile, RangeConfig
from configs.models.products import PRODUCTS, open_forms
from configs.models.release import CheckConfig, ReleaseConfig, UnitColumn
from configs.models.targets import TARGETS, tag_of
from configs.overrides import nearest
from configs.yaml_text import Document
from configs.yaml_text import Path as Keys
from mechanisms import errors
from mechanisms.errors import ConfigError, UnknownKeyError, together
from mechanisms.planning.mechanism_choice import AUTO
from mechanisms.planning.registry import KINDS, REGISTRY, serving

Model = TypeVar("Model", bound=BaseModel)
_TAGS: dict[Any, type[BaseModel]] = {
    "by column": UnitColumn, "as range": RangeConfig, "CategoriesFile": CategoriesFile,
    "by name": OtherLicence, **COLUMNS, **{tag_of(key): model for key, model in TARGETS.items()},
    **{server_sources.tag_of(key): model for key, model in server_sources.ENGINES.items()},
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
        found = error.errors(include_url=False, include_context=False)
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
    if loc[0] == "checks":
        model = CheckConfig
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
        hint = nearest(keys[-1], _known_keys(detail["loc"]))
        return UnknownKeyError(f"There is no key '{keys[-1]}' here.{hint}", where=where)
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
    return error_class(f"{message[0].upper()}{message[1:]}.", where=where)


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
