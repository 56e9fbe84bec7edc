"""The release config: what a methodologist writes and a disclosure officer reviews."""

from __future__ import annotations

import re
from dataclasses import fields
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, Union, get_type_hints

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StrictStr,
    Tag,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from configs.models.amounts import Count, Delta, Epsilon, Share
from configs.models.domain import ColumnConfig, Section, ZeroConfig
from configs.models.formats import FORMATS, Format
from configs.models.source import SourceConfig
from configs.models.text import Line, Name
from mechanisms.base.mechanism import Mechanism
from mechanisms.base.user_defined import UserDefined
from mechanisms.domain.privacy_unit import Adjacency, Privacy, Unit
from mechanisms.planning.mechanism_choice import AUTO
from mechanisms.planning.registry import REGISTRY, kinds


def _short(value: Any) -> Any:
    """Refuse text such as 1e99999999, whose exact value would fill the memory."""
    if isinstance(value, str) and (len(value) > 100 or re.search("[0-9.][eE]", value)):
        raise PydanticCustomError("RecordsError", "must be written out in at most 100 characters")
    return value


Fraction01 = Annotated[Decimal, Field(ge=0, le=1)]


class UnitColumn(Section):
    """A source column that names the privacy unit of every record."""

    column: Annotated[Line, Field(max_length=150)]
    max_records: Count = Field(
        description="Records of a unit that are used, chosen at random; it is padded to as many."
    )


def _unit_form(value: Any) -> str:
    return "by column" if isinstance(value, (dict, UnitColumn)) else "by record"


class PrivacyConfig(Section):
    """What the guarantee protects. Nothing here has a default but what the unit decides."""

    adjacency: Adjacency
    unit: Annotated[
        Annotated[Unit, Tag("by record")] | Annotated[UnitColumn, Tag("by column")],
        Discriminator(_unit_form),
    ]
    n_records: Count | None = Field(
        default=None,
        description="Number of records in the source, public under replace_one; "
        "for 'unit: record'.",
    )
    n_units: Count | None = Field(
        default=None,
        description="Number of units in the source, public under replace_one; for a unit column.",
    )

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        by_column = isinstance(self.unit, UnitColumn)
        if (self.n_records is None) != by_column or (self.n_units is None) == by_column:
            wanted = "n_units and not n_records" if by_column else "n_records and not n_units"
            form = "a unit column" if by_column else "'unit: record'"
            raise PydanticCustomError("ConfigError", f"give {wanted} with {form}")
        return self

    @property
    def pads(self) -> bool:
        """Whether a unit may have fewer records than are counted for it."""
        return isinstance(self.unit, UnitColumn) and self.unit.max_records > 1

    def build(self) -> Privacy:
        """The guarantee's frame of reference."""
        if isinstance(self.unit, UnitColumn):
            assert self.n_units is not None
            return Privacy.of_units(
                adjacency=self.adjacency,
                column=self.unit.column,
                max_records=self.unit.max_records,
                n_units=self.n_units,
            )
        assert self.n_records is not None
        return Privacy(adjacency=self.adjacency, unit=self.unit, n_records=self.n_records)


class BudgetConfig(Section):
    """Privacy loss that this release may cost in all: epsilon at delta, or rho."""

    epsilon: Epsilon | None = None
    delta: Delta = Field(description="Beside rho: where the epsilon of the release is stated.")
    rho: Epsilon | None = Field(default=None, description="Zero-concentrated privacy.")
    rho_delta: Delta | None = Field(
        default=None,
        description="The largest delta with which rho may fail, where that makes it smaller; by "
        "default delta, and 0 for an account of rho whose delta is 0.",
    )

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if (self.epsilon is None) == (self.rho is None):
            raise PydanticCustomError("BudgetValueError", "give either epsilon, or rho")
        if self.rho is not None and not self.delta:
            raise PydanticCustomError(
                "BudgetValueError", "a budget of rho needs a delta above 0, to state epsilon at"
            )
        return self


class CheckConfig(Section):
    """Declared expectations on one source column, as shares of the records."""

    missing_at_most: Fraction01 | None = Field(
        default=None,
        description="Share of nulls; by default 0 unless the column has a missing cell.",
    )
    outside_at_most: Fraction01 | None = Field(
        default=None,
        description="Share of undeclared or clamped values; by default 0 for categories "
        "without an 'other' cell, and not checked where values are clamped.",
    )
    unreadable_at_most: Fraction01 | None = Field(
        default=None,
        description="Share of values in a CSV that are there and cannot be read as declared; by "
        "default 0. Those that are allowed count as missing.",
    )


class ProductConfig(Section):
    """Fields that every product has."""

    columns: Annotated[list[StrictStr], Field(min_length=1)]  # of an estimate or function: its own
    share: Share | None = Field(
        default=None,
        description="Share of the release's budget. Products without one divide equally what "
        "the others leave.",
    )
    accept: Literal["mostly_noise"] | None = Field(
        default=None,
        description="Release the product although the plan says that it is mostly noise.",
    )


class PublishConfig(Section):
    """Where the bundle goes."""

    directory: Line = Field(description="Relative to the folder of the config.")
    formats: Annotated[list[Format], Field(min_length=1)] = Field(
        default_factory=lambda: list(FORMATS), description="By default all of them."
    )
    plots: bool = Field(
        default=True, description="Draw estimates and functions; needs the extra 'plots'."
    )
    name: Name | None = Field(
        default=None, description="Name of the bundle; by default dataset, time and run."
    )
    review: Literal["required"] | None = Field(
        default=None,
        description="Charge nothing unless the ledger names who approves releases of the "
        "dataset; where it does, every release waits for them, with or without this line.",
    )


def _written(hint: Any) -> Any:
    """The type of a knob in the file, where a user-defined object is named."""
    return str | None if hint == UserDefined | None else hint


def _product_model(title: str, mechanism: Any, knobs: type, served: tuple[str, ...]) -> Any:
    """A product model: the kinds it is for, the key ``mechanism``, and knobs as keys."""
    hints = {
        name: Annotated[_written(hint), BeforeValidator(_short)]
        for name, hint in get_type_hints(knobs).items()
    }
    keys: dict[str, Any] = {
        "kind": (Literal[served], ...),
        "mechanism": mechanism,
        **{knob.name: (hints[knob.name], knob.default) for knob in fields(knobs)},
    }
    for further in (KINDS[name].further for name in served):
        if further is not None:
            own = get_type_hints(further)
            keys |= {each.name: (own[each.name], each.default) for each in fields(further)}
    return create_model(f"{title}Product", __base__=ProductConfig, **keys)


def _named_model(mechanism: type[Mechanism]) -> Any:
    """The model of products by a mechanism that the config names."""
    title = mechanism.name.title().replace("_", "")
    served = tuple(kind.name for kind in mechanism.kinds)
    return _product_model(title, (Literal[mechanism.name], ...), mechanism.knobs, served)


def _open_models() -> dict[str, Any]:
    """The models of products whose mechanism is left open, by form."""
    groups: dict[tuple[type, bool], list[str]] = {}
    for kind in KINDS.values():
        groups.setdefault((kind.left_open, kind.may_omit), []).append(kind.name)
    models = {}
    for (knobs, may_omit), served in groups.items():
        form = f"{AUTO} {served[0]}" if may_omit or AUTO in models else AUTO
        mechanism = (Literal[AUTO], AUTO if may_omit else ...)
        title = form.title().replace(" ", "")
        models[form] = _product_model(title, mechanism, knobs, tuple(served))
        OPEN_FORMS.update(dict.fromkeys(served, form))
    return models


def _form(value: Any) -> str | None:
    """Which model a product is of: its mechanism, or its kind where that is left open."""
    said = value if isinstance(value, dict) else vars(value)
    kind = KINDS.get(said["kind"]) if isinstance(said.get("kind"), str) else None
    named: str | None = said.get("mechanism", AUTO if kind and kind.may_omit else None)
    return OPEN_FORMS[kind.name] if named == AUTO and kind else named


KINDS = kinds()
"""All kinds of product by name."""

OPEN_FORMS: dict[str, str] = {}
"""By kind of product the form of a config that leaves its mechanism open."""

PRODUCTS = _open_models() | {name: _named_model(each) for name, each in REGISTRY.items()}
_UNION: Any = Union[tuple(Annotated[m, Tag(tag)] for tag, m in PRODUCTS.items())]  # noqa: UP007
AnyProduct: Any = Annotated[_UNION, Discriminator(_form)]


class ReleaseConfig(Section):
    """One release, as it stands in the file."""

    title: Line
    dataset: Annotated[Line, Field(max_length=200)]
    source: SourceConfig
    privacy: PrivacyConfig
    budget: BudgetConfig
    domain: Annotated[dict[StrictStr, ColumnConfig], Field(min_length=1)]
    structural_zeros: list[ZeroConfig] = Field(
        default_factory=list,
        description="Combinations of values that no record can have: per pattern some columns, "
        "each with a list of values or a range of whole cells.",
    )
    products: Annotated[dict[Name, AnyProduct], Field(min_length=1)]
    checks: dict[StrictStr, CheckConfig] = Field(default_factory=dict)
    publish: PublishConfig
