"""The models of products: one for each mechanism, and one where the mechanism is left open.

A model follows from the knobs of its mechanism, and is built when a config first has such a
product: building all of them, and importing their mechanisms, takes longer than the rest of a
config.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StrictStr,
    Tag,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    create_model,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from statpress.configs.declared_columns import Line, Paragraphs, Section, Share
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.mechanism import IMPLIES_NOTHING, PlacedBy, UserDefined, own_keys
from statpress.mechanisms.places.tree import Geography
from statpress.mechanisms.planning.choice import AUTO
from statpress.mechanisms.registry import KINDS, REGISTRY, served_by, serving


def _short(value: Any) -> Any:
    """Refuse text such as 1e99999999, whose exact value would fill the memory."""
    if isinstance(value, str) and (len(value) > 100 or re.search("[0-9.][eE]", value)):
        raise PydanticCustomError("RecordsError", "must be written out in at most 100 characters")
    return value


Acceptable = Literal["mostly_noise", "mostly_independent"]


def _listed(value: Any) -> Any:
    """A single word as a list of one."""
    return [value] if isinstance(value, str) else value


class ProductConfig(Section):
    """Fields that every product has."""

    columns: Annotated[list[StrictStr], Field(min_length=1)]  # of an estimate or function: its own
    share: Share | None = Field(
        default=None,
        description="Share of the release's budget. Where two or more products have none, "
        "theirs are found by expected errors from what the others leave.",
    )
    accept: (
        Annotated[
            tuple[Acceptable, ...],
            BeforeValidator(_listed, json_schema_input_type=Acceptable | list[Acceptable]),
        ]
        | None
    ) = Field(
        default=None,
        description="Release the product although the plan gives it this verdict, or one of these.",
    )
    title: Line | None = Field(default=None, description="What it is, in a few words.")
    description: Paragraphs | None = Field(
        default=None, description="What else a reader has to know of it."
    )
    implied: ClassVar[str] = ""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        schema = handler(core)
        if "at" in cls.model_fields:
            handler.resolve_ref_schema(schema)["required"].remove("columns")
        if "statistic" in cls.model_fields:
            _columns_in_one_place(handler.resolve_ref_schema(schema))
        if cls.implied:
            _without_mechanism(handler.resolve_ref_schema(schema), cls.implied)
        return schema


class RegressionColumns(Section):
    """The columns of a regression."""

    of: StrictStr = Field(description="The response.")
    on: Annotated[
        list[StrictStr],
        Field(min_length=1, description="The predictors."),
        BeforeValidator(
            _listed, json_schema_input_type=str | Annotated[list[str], Field(min_length=1)]
        ),
    ]


class Regression(Section):
    """A regression that names its columns, in place of the key ``columns``."""

    regression: RegressionColumns


def _with_columns(value: dict[str, Any]) -> dict[str, Any]:
    """A product with the columns of its regression as its own."""
    if not isinstance(value.get("statistic"), Mapping):
        return value
    if "columns" in value:
        raise PydanticCustomError(
            "ConfigError", "has columns in 'statistic' and in 'columns'; leave out 'columns'"
        )
    columns = Regression.model_validate(value["statistic"]).regression
    return {**value, "statistic": "regression", "columns": [columns.of, *columns.on]}


def _written(hint: Any) -> Any:
    """The type of a knob in the file, where a function, a column or a product is named."""
    named = (UserDefined | None, Geography | None, PlacedBy | None)
    return str | None if hint in named else _checking_itself(hint)


def _checking_itself(hint: Any) -> Any:
    """A type whose dataclasses refuse a value at its own place, which they do not know."""
    if is_dataclass(hint):
        return Annotated[hint, WrapValidator(_refused)]
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (None, Literal):
        return hint
    checking = tuple(map(_checking_itself, inside))
    return Union[checking] if origin is UnionType else origin[checking]  # noqa: UP007


def _refused(value: Any, handler: Callable[[Any], Any]) -> Any:
    """What a value is, or why it refuses itself as a finding of the validator."""
    try:
        return handler(value)
    except ConfigError as error:
        raise PydanticCustomError(
            "ConfigError", "{what}", {"what": error.what, "next_step": error.next_step}
        ) from None


def _columns_of_places(value: dict[str, Any]) -> dict[str, Any]:
    """A product with the columns of its tables by level as its own, where it names none."""
    at = value.get("at")
    if "columns" in value or not isinstance(at, Mapping):
        return value
    named = [name for groups in at.values() if isinstance(groups, list)
             for group in groups if isinstance(group, list) for name in group]  # fmt: skip
    return {**value, "columns": list(dict.fromkeys(named))} if named else value


def _product_model(title: str, mechanism: Any, knobs: type, served: tuple[str, ...]) -> Any:
    """A product model: the kinds it is for, the key ``mechanism``, and knobs as keys."""
    hints: dict[str, Any] = {
        name: hint if hint == str | None else Annotated[_written(hint), BeforeValidator(_short)]
        for name, hint in get_type_hints(knobs).items()
    }
    if "statistic" in hints:
        named = get_type_hints(knobs)["statistic"]
        either = BeforeValidator(_short, json_schema_input_type=named | Regression)
        hints["statistic"] = Annotated[named, either]
    keys: dict[str, Any] = {
        "kind": (Literal[served], ...),
        "mechanism": mechanism,
        **{knob.name: (hints[knob.name], knob.default) for knob in own_keys(knobs)},
    }
    for further in (KINDS[name].further for name in served):
        if further is not None:
            own = get_type_hints(further)
            keys |= {each.name: (own[each.name], each.default) for each in fields(further)}
    return create_model(f"{title}Product", __base__=ProductConfig, **keys)


@functools.cache
def _named_model(mechanism: str) -> Any:
    """The model of products by a mechanism that the config names or implies."""
    title, knobs = mechanism.title().replace("_", ""), REGISTRY[mechanism].knobs
    model = _product_model(title, (Literal[mechanism], ...), knobs, served_by(mechanism))
    model.implied = mechanism
    return model


@functools.cache
def open_forms() -> dict[str, tuple[type, bool, list[str]]]:
    """The forms of products whose mechanism is left open: knobs, may it be omitted, kinds."""
    groups: dict[tuple[type, bool], list[str]] = {}
    for kind in KINDS.values():
        groups.setdefault((kind.left_open, kind.may_omit), []).append(kind.name)
    forms: dict[str, tuple[type, bool, list[str]]] = {}
    for (knobs, may_omit), served in groups.items():
        form = f"{AUTO} {served[0]}" if may_omit or AUTO in forms else AUTO
        forms[form] = (knobs, may_omit, served)
    return forms


@functools.cache
def _open_model(form: str) -> Any:
    """The model of products whose mechanism is left open."""
    knobs, may_omit, served = open_forms()[form]
    mechanism = (Literal[AUTO], AUTO if may_omit else ...)
    return _product_model(form.title().replace(" ", ""), mechanism, knobs, tuple(served))


class _Models(Mapping[str, Any]):
    """Builds a model when it is looked up."""

    def __getitem__(self, form: str) -> Any:
        return _named_model(form) if form in REGISTRY else _open_model(form)

    def __contains__(self, form: object) -> bool:
        return form in REGISTRY or form in open_forms()

    def __iter__(self) -> Iterator[str]:
        yield from open_forms()
        yield from REGISTRY

    def __len__(self) -> int:
        return len(open_forms()) + len(REGISTRY)


PRODUCTS: Mapping[str, Any] = _Models()
"""The models by form: the mechanism, or what stands for one that is left open."""


@functools.cache
def own_knobs(kind: str) -> Mapping[str, str]:
    """By knob the mechanism of a kind that alone has it, or that is meant by it."""
    shared = {knob.name for knob in fields(KINDS[kind].left_open)} | {*ProductConfig.model_fields}
    having = [
        (knob.name, m.name)
        for m in serving(KINDS[kind])
        for knob in own_keys(m.knobs)
        if knob.metadata != IMPLIES_NOTHING
    ]
    number = Counter(name for name, _ in having)
    return {name: m for name, m in having if number[name] == 1 and name not in shared}


def _implied(said: Mapping[str, Any], kind: str) -> str | None:
    """The mechanism that a product which names none can only mean, by the knobs that it has."""
    form = next(form for form, (*_, served) in open_forms().items() if kind in served)
    if said.keys() <= PRODUCTS[form].model_fields.keys():
        return None  # no mechanism need be imported to know it
    meant = {own_knobs(kind)[key] for key in said if key in own_knobs(kind)}
    return meant.pop() if len(meant) == 1 else None


def _form(value: Any) -> Any:
    """Which model a product is of: its mechanism, or that which its knobs imply, or its kind."""
    said = value if isinstance(value, dict) else vars(value)
    if isinstance(said.get("mechanism"), str) and said["mechanism"] in REGISTRY:
        return said["mechanism"]
    kind = KINDS.get(said["kind"]) if isinstance(said.get("kind"), str) else None
    if kind is not None and "mechanism" not in said and (implied := _implied(said, kind.name)):
        return implied
    named = said.get("mechanism", AUTO if kind and kind.may_omit else None)
    if named != AUTO or kind is None:
        return named
    return next(form for form, (*_, served) in open_forms().items() if kind.name in served)


def _product(value: Any) -> Any:
    """A product by its model; where a fault is, its form comes first, as for a tagged union."""
    if not isinstance(value, dict | BaseModel):
        raise PydanticCustomError("ConfigError", "must be a mapping of keys")
    form = _form(value)
    if form is None:
        raise PydanticCustomError("union_tag_not_found", "has neither a mechanism nor a kind")
    if not isinstance(form, str) or form not in PRODUCTS:
        raise PydanticCustomError("union_tag_invalid", "has a mechanism that is not known")
    if isinstance(value, dict) and form in REGISTRY:
        value = {"mechanism": form, **value}
    place: tuple[str, ...] = (form, "statistic")
    try:
        if isinstance(value, dict):
            value = _columns_of_places(_with_columns(value))
        place = (form,)
        return PRODUCTS[form].model_validate(value)
    except ValidationError as error:
        details = [
            InitErrorDetails(
                type=PydanticCustomError(each["type"], each["msg"], each.get("ctx")),
                loc=(*place, *each["loc"]),
                input=each["input"],
            )
            for each in error.errors(include_url=False)
        ]
        raise ValidationError.from_exception_data(error.title, details) from None


def _columns_in_one_place(schema: dict[str, Any]) -> None:
    """Ask for columns in the schema where the statistic does not name them."""
    schema["required"].remove("columns")
    named = {"properties": {"statistic": {"type": "object"}}, "required": ["statistic"]}
    asked = {"required": ["columns"]}
    schema |= {"if": named, "then": {"not": asked}, "else": asked}


def _without_mechanism(schema: dict[str, Any], mechanism: str) -> None:
    """Let the schema of a mechanism's products leave the key out where a knob implies it."""
    implying = {k for kind in served_by(mechanism) for k, m in own_knobs(kind).items()
                if m == mechanism}  # fmt: skip
    if implying:
        schema["required"].remove("mechanism")
        schema["anyOf"] = [{"required": [key]} for key in ("mechanism", *sorted(implying))]


class _ByForm:
    """Validates a product by the model of its form; the JSON Schema has all of them."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(_product)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        members = tuple(Annotated[model, Tag(form)] for form, model in PRODUCTS.items())
        union: Any = Annotated[Union[members], Discriminator(_form)]  # noqa: UP007
        return handler(TypeAdapter(union).core_schema)


AnyProduct: Any = Annotated[Any, _ByForm()]
