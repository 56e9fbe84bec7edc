"""The release config: what a methodologist writes and a disclosure officer reviews."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StrictInt,
    StrictStr,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from statpress.configs.about import AboutConfig
from statpress.configs.declared_columns import (
    ColumnConfig,
    Count,
    Delta,
    Epsilon,
    FiniteNumber,
    KeyPath,
    Line,
    Name,
    NumericColumn,
    Section,
    ZeroConfig,
)
from statpress.configs.formats import DEFAULT, Format
from statpress.configs.geography import GeographyConfig
from statpress.configs.products import AnyProduct
from statpress.configs.series import SeriesConfig
from statpress.configs.sources import AnySourceConfig, ResourcesConfig
from statpress.configs.tables import RuleConfig, TableConfig, Tables
from statpress.configs.upload_targets import Targets
from statpress.mechanisms.domain.domain import Adjacency, Privacy, Size, Unit
from statpress.mechanisms.errors import ConfigError

LIMITS = (
    *map(Decimal, ("0", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05")),
    *map(Decimal, ("0.1", "0.2", "0.5", "1")),
)
"""The shares that a check may allow. Whether it passes is an exact answer, and with any share
allowed whoever may change a config could close in on a count."""


def next_limit(share: Decimal) -> Decimal:
    """The smallest of ``LIMITS`` that allows a share, from 0 to 1."""
    return next(each for each in LIMITS if each >= share)


def _limit(share: Decimal) -> Decimal:
    if share not in LIMITS:
        listed = ", ".join(map(str, LIMITS[:-1]))
        raise PydanticCustomError(
            "ConfigError",
            "must be {listed} or {last}; the next larger one is {larger}",
            {"listed": listed, "last": str(LIMITS[-1]), "larger": str(next_limit(share))},
        )
    return share


Limit = Annotated[Decimal, Field(ge=0, le=1), AfterValidator(_limit)]


class UnitColumn(Section):
    """A source column that names the privacy unit of every record."""

    column: Annotated[Line, Field(max_length=150)]
    max_records: Count = Field(
        description="Records of a unit that are used, chosen at random; it is padded to as many."
    )
    expected_records: Count | None = Field(
        default=None,
        description="About how many of them all units have together, by what is public anyway. "
        "Plans go by it; else they take every unit to have max_records.",
    )


def _unit_form(value: Any) -> str:
    return "by column" if isinstance(value, (dict, UnitColumn)) else "by record"


class RoughSize(Section):
    """About how many records or units the source has, for planning."""

    about: Count = Field(description="About how many there are; plans go by it.")
    from_source: Literal[True] | None = Field(
        default=None, description="The number is public: a run counts it in the source first."
    )


def _size_form(value: Any) -> str:
    if isinstance(value, (dict, RoughSize)):
        return "rough"
    return "from_source" if value == "from_source" else "number"


SizeConfig = Annotated[
    Annotated[Count, Tag("number")]
    | Annotated[Literal["from_source"], Tag("from_source")]
    | Annotated[RoughSize, Tag("rough")],
    Discriminator(_size_form),
]


def _size_of(unit: Unit | UnitColumn) -> tuple[str, str]:
    """Name of the size that goes with a unit, and the unit in words."""
    if isinstance(unit, UnitColumn):
        return "n_units", "a unit column"
    return "n_records", f"'unit: {unit}'"


class PrivacyConfig(Section):
    """What the guarantee protects. Nothing here has a default but what the unit decides."""

    adjacency: Adjacency
    unit: Annotated[
        Annotated[Unit, Tag("by record")] | Annotated[UnitColumn, Tag("by column")],
        Discriminator(_unit_form),
    ]
    n_records: SizeConfig | None = Field(
        default=None,
        description="Number of records in the source, public under replace_one; "
        "for 'unit: record', and of households for 'unit: household'. 'from_source' if a run is to "
        "count and publish it. Under add_remove about how many, for planning.",
    )
    n_units: SizeConfig | None = Field(
        default=None,
        description="Number of units in the source, public under replace_one; for a unit column. "
        "'from_source' if a run is to count and publish it. Under add_remove about how many, for "
        "planning.",
    )

    @field_validator("n_records", "n_units")
    @classmethod
    def _of_the_unit(
        cls, size: int | str | RoughSize | None, info: ValidationInfo
    ) -> int | str | RoughSize | None:
        """Refuse the size that goes with the other kind of unit, at its own place."""
        if size is None or "unit" not in info.data:
            return size
        name, form = _size_of(info.data["unit"])
        if name != info.field_name:
            raise PydanticCustomError(
                "ConfigError",
                "leave out {given}: with {form} the size is {name}",
                {"given": info.field_name, "form": form, "name": name},
            )
        return size

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        name, form = _size_of(self.unit)
        if getattr(self, name) is None:
            raise PydanticCustomError(
                "ConfigError",
                "'{name}' is missing, the public number of {what} in the source: it goes with "
                "{form}",
                {"name": name, "what": name.removeprefix("n_"), "form": form},
            )
        rough = isinstance(self.size, RoughSize) and not self.size.from_source
        if self.adjacency is Adjacency.ADD_REMOVE and not rough:
            raise PydanticCustomError(
                "ConfigError",
                "under add_remove the number of {what} is private: write '{name}: {form}' with "
                "about how many you expect, by what is public anyway",
                {"name": name, "what": name.removeprefix("n_"), "form": "{about: NUMBER}"},
            )
        if rough and self.adjacency is Adjacency.REPLACE_ONE:
            assert isinstance(self.size, RoughSize)
            raise PydanticCustomError(
                "ConfigError",
                "under replace_one the number of {what} is public: give it exactly, or write "
                "'{name}: {form}' if a run is to count and publish it",
                {
                    "name": name,
                    "what": name.removeprefix("n_"),
                    "form": f"{{from_source: true, about: {self.size.about}}}",
                },
            )
        return self

    @property
    def pads(self) -> bool:
        """Whether a unit may have fewer records than are counted for it."""
        return isinstance(self.unit, UnitColumn) and self.unit.max_records > 1

    @property
    def size_name(self) -> str:
        """The key of the size."""
        return _size_of(self.unit)[0]

    @property
    def size(self) -> int | str | RoughSize:
        """The size as it is written, of records or of units."""
        size = getattr(self, self.size_name)
        assert isinstance(size, int | str | RoughSize)
        return size

    @property
    def is_from_source(self) -> bool:
        """Whether a run counts the size in the source before it plans."""
        return isinstance(self.size, str) or (
            isinstance(self.size, RoughSize) and bool(self.size.from_source)
        )

    def build(
        self, size: int | str | RoughSize | None = None, origin: Size = Size.DECLARED
    ) -> Privacy | None:
        """The guarantee's frame of reference; None if its size is not known before a run.

        Args:
            size: Number of records, or of units; by default as it is written.
            origin: Where that comes from.
        """
        size = self.size if size is None else size
        if isinstance(size, RoughSize):
            size, origin = size.about, Size.ROUGH
        if isinstance(size, str):
            return None
        if isinstance(self.unit, UnitColumn):
            return Privacy.of_units(
                adjacency=self.adjacency,
                column=self.unit.column,
                max_records=self.unit.max_records,
                n_units=size,
                size=origin,
                expected_records=self.unit.expected_records,
            )
        return Privacy(adjacency=self.adjacency, unit=self.unit, n_records=size, size=origin)


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

    missing_at_most: Limit | None = Field(
        default=None,
        description="Share of nulls; by default 0 unless the column has a missing cell.",
    )
    outside_at_most: Limit | None = Field(
        default=None,
        description="Share of undeclared or clamped values; by default 0 for categories "
        "without an 'other' cell, and not checked where values are clamped.",
    )
    unreadable_at_most: Limit | None = Field(
        default=None,
        description="Share of values in a CSV that are there and cannot be read as declared; by "
        "default 0. Those that are allowed count as missing.",
    )


class GateConfig(Section):
    """How the checks of the input compare what they count of the records."""

    noise: Literal[True] = Field(
        description="Noise on every count, which the budget pays for before the source is opened, "
        "also where the run is then refused. Without this section checks are exact, outside the "
        "guarantee, and the ledger counts them."
    )
    share: Annotated[Decimal, Field(gt=0, le=Decimal("0.5"))] = Field(
        default=Decimal("0.01"), description="Of the budget."
    )


class DesignConfig(Section):
    """How the records were drawn, for the sampling variance of weighted figures."""

    strata: StrictStr | None = Field(
        default=None, description="The column of the strata that records were drawn in."
    )
    cluster: StrictStr | None = Field(
        default=None, description="The column of the clusters that were drawn, within the strata."
    )


class WeightConfig(Section):
    """The survey weight of every record, by classes; it is one more column of the domain."""

    column: Annotated[Line, Field(max_length=150)] = Field(
        description="Of the weight in the source; products list it by this name. With 'tables' it "
        "is one of households, after the name of their table and a dot."
    )
    edges: Annotated[list[FiniteNumber], Field(min_length=3)] = Field(
        description="Of its classes, public, from 0 or more; the last is the largest weight. A "
        "weight outside is refused.",
    )
    calibrate: dict[StrictStr, StrictStr | list[Annotated[StrictInt, Field(ge=0)]]] = Field(
        default_factory=dict,
        description="By column a CSV file of its public totals, or these by cell, which the "
        "weights of synthetic records are raked to.",
    )
    design: DesignConfig = Field(
        default_factory=DesignConfig, description="How the records were drawn."
    )

    @field_validator("edges")
    @classmethod
    def _not_negative(cls, edges: list[float]) -> list[float]:
        if edges[0] < 0:
            raise PydanticCustomError("EdgesError", "must not be negative: a weight is not")
        return edges

    @property
    def declared(self) -> NumericColumn:
        """The column of the classes as ``domain`` would declare it."""
        return NumericColumn(
            type="numeric",
            edges=self.edges,
            label="Survey weight, by classes",
            description="The weight as it was given, as the middle of its class.",
        )


class PublishConfig(Section):
    """Where the bundle goes."""

    directory: Line = Field(description="Relative to the folder of the config.")
    formats: Annotated[list[Format], Field(min_length=1)] = Field(
        default_factory=lambda: list(DEFAULT),
        description="By default parquet and csv; dta (Stata) and sav (SPSS) need the extra 'stat'.",
    )
    plots: bool = Field(
        default=True, description="Whether the report has charts, or their figures as tables."
    )
    sdmx: bool = Field(
        default=False,
        description="Write tables as SDMX-CSV 2.0 too, with their structure; needs the extra "
        "'sdmx'.",
    )
    name: Name | None = Field(
        default=None, description="Name of the bundle; by default dataset, time and run."
    )
    targets: Targets = Field(
        default_factory=list,
        description="Where the bundle is uploaded to once it is published in the directory.",
    )
    review: Literal["required"] | None = Field(
        default=None,
        description="Charge nothing unless the ledger names who approves releases of the "
        "dataset; where it does, every release waits for them, with or without this line.",
    )
    sign: KeyPath | None = Field(
        default=None,
        description="File of the private Ed25519 key that signs the bundle, relative to the folder "
        "of the config; without a passphrase, and for its owner only.",
    )


class CuratorConfig(Section):
    """What a run leaves in the home for the curator only, and never in the bundle."""

    report: bool = Field(
        default=False,
        description="Once the release is out, write a report of its exact errors into the home's "
        "private folder. Beside the release it reveals exact counts.",
    )


class ReleaseConfig(Section):
    """One release, as it stands in the file."""

    title: Line
    about: AboutConfig = Field(
        default_factory=AboutConfig,
        description="Who publishes, on what terms, and what the release is about.",
    )
    dataset: Annotated[Line, Field(max_length=200)]
    series: SeriesConfig | None = Field(
        default=None, description="Releases that follow one another, one for each period."
    )
    source: AnySourceConfig
    privacy: PrivacyConfig
    budget: BudgetConfig
    domain: Annotated[dict[StrictStr, ColumnConfig], Field(min_length=1)]
    tables: Annotated[dict[Name, TableConfig], AfterValidator(both_tables)] | None = Field(
        default=None,
        description="Households and their persons, in place of 'source' and 'domain'.",
    )
    rules: list[RuleConfig] = Field(
        default_factory=list, description="With 'tables': what the persons of a household keep."
    )
    weight: WeightConfig | None = Field(
        default=None,
        description="Survey weights, for microdata by 'marginals' and for linked records.",
    )
    geography: dict[StrictStr, GeographyConfig] = Field(
        default_factory=dict,
        description="By column of places who lies in whom, for tables of places at every level.",
    )
    structural_zeros: list[ZeroConfig] = Field(
        default_factory=list,
        description="Combinations of values that no record can have: per pattern some columns, "
        "each with a list of values or a range of whole cells.",
    )
    products: Annotated[dict[Name, AnyProduct], Field(min_length=1)]
    checks: dict[StrictStr, CheckConfig] = Field(default_factory=dict)
    gate: GateConfig | None = Field(
        default=None, description="Noise for the checks of the input; by default they are exact."
    )
    publish: PublishConfig
    curator: CuratorConfig = Field(
        default_factory=CuratorConfig,
        description="What a run leaves in the home for the curator only.",
    )
    resources: ResourcesConfig = Field(
        default_factory=ResourcesConfig,
        description="What a run may take of its machine.",
    )

    @model_validator(mode="before")
    @classmethod
    def _stand_in(cls, value: Any) -> Any:
        """With tables there is neither source nor domain: what stands for them follows later."""
        if not isinstance(value, dict) or value.get("tables") is None:
            return value
        for name in ("source", "domain"):
            if name in value:
                raise PydanticCustomError(
                    "ConfigError", "each table has its own {name}: leave out '{name}' beside "
                    "'tables'", {"name": name}
                )  # fmt: skip
        privacy = value.get("privacy")
        if isinstance(privacy, dict) and privacy.get("unit", Unit.HOUSEHOLD) != Unit.HOUSEHOLD:
            raise ConfigError(
                "With 'tables' a record holds a household with all its persons, so the unit cannot "
                "be less than that; each person is protected with their household.",
                where="unit",
                next_step="Write 'unit: household'.",
            )
        nothing = {"type": "integer", "lower": 0, "upper": 1}
        return {**value, "source": {"path": "-", "format": "csv"}, "domain": {"-": nothing}}

    @model_validator(mode="after")
    def _of_tables(self) -> Self:
        by_household = self.privacy.unit is Unit.HOUSEHOLD
        if self.linked is None:
            if by_household or self.rules:
                raise PydanticCustomError(
                    "ConfigError",
                    "'unit: household' and 'rules' are for 'tables' of households and persons",
                )
            return self
        if self.weight is not None:
            self._weigh_households(self.linked, self.weight)
        object.__setattr__(self, "domain", self.linked.columns)
        object.__setattr__(self, "source", self.linked.source)
        return self

    def _weigh_households(self, linked: Tables, weight: WeightConfig) -> None:
        """Make the weight a column of the table of households, by its name there."""
        table, _, name = weight.column.partition(".")
        households = linked.households
        if table != linked.names[0] or not name:
            raise PydanticCustomError(
                "ConfigError",
                "with 'tables' the weight is a column of households, which their persons have "
                "too: write 'column: {table}.NAME' under 'weight'",
                {"table": linked.names[0]},
            )
        if name in linked.columns:
            raise PydanticCustomError(
                "DuplicateColumnError",
                "{name} is declared by the edges of 'weight': leave it out of 'tables'",
                {"name": f"'{name}'"},
            )
        declared = {**households.domain, name: weight.declared}
        own = households.model_copy(update={"domain": declared})
        object.__setattr__(self, "tables", {**(self.tables or {}), table: own})
        object.__setattr__(self, "weight", weight.model_copy(update={"column": name}))

    @property
    def linked(self) -> Tables | None:
        """The tables of households and persons; None of a single source."""
        return None if self.tables is None else Tables.of(self.tables)

    @property
    def columns(self) -> dict[str, ColumnConfig]:
        """The columns of the domain, that of the survey weight among them."""
        if self.weight is None:
            return self.domain
        return {**self.domain, self.weight.column: self.weight.declared}

    @property
    def limits(self) -> dict[str, CheckConfig]:
        """What the checks of the input allow, by column; by default no weight out of its range."""
        if self.weight is None:
            return self.checks
        own = self.checks.get(self.weight.column, CheckConfig())
        if own.outside_at_most is None:
            own = own.model_copy(update={"outside_at_most": Decimal(0)})
        return self.checks | {self.weight.column: own}

    @field_validator("gate")
    @classmethod
    def _with_delta(cls, gate: GateConfig | None, info: ValidationInfo) -> GateConfig | None:
        budget = info.data.get("budget")
        if gate is not None and budget is not None and not budget.delta:
            raise PydanticCustomError(
                "InfeasibleBudgetError",
                "the noise of the checks is Gaussian, which needs a delta above 0; without one "
                "leave out 'gate', and the checks are exact",
            )
        return gate


def both_tables(tables: dict[str, TableConfig]) -> dict[str, TableConfig]:
    """See that the tables are of households and of their persons."""
    of = [table.of for table in tables.values()]
    if len(tables) != 2 or of.count(None) != 1 or not {*of} - {None} <= {*tables}:
        raise PydanticCustomError(
            "ConfigError", "must be two tables: households, and persons whose 'of' names these"
        )
    sources = [table.source for table in tables.values()]
    same = len({type(each) for each in sources}) == 1
    readers = {each.reader for each in sources}
    if not same or readers not in ({"duckdb"}, {"postgres"}, {"spark"}):
        raise PydanticCustomError(
            "ConfigError",
            "must be files on this machine, tables of one PostgreSQL database, or both read by "
            "Spark",
        )
    for names in (("credentials",), ("master", "remote")):
        if len({repr([getattr(each, name, None) for name in names]) for each in sources}) > 1:
            raise PydanticCustomError(
                "ConfigError", "must have the same {names}", {"names": " and ".join(names)}
            )
    return tables
