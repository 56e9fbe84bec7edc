"""What a bundle needs of a kind of product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Mechanism, needs_of
from mechanisms.domain.coded_columns import CodedColumns
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.counted import Counted
from mechanisms.planning.plan import Plan, PlannedProduct
from tasks.formats.registry import media_facts
from tasks.formats.writing import Progress
from tasks.pages.blocks import Fact, Section
from tasks.products.true_errors import TrueErrors
from tasks.products.working_memory import WorkingMemory, of_cells

if TYPE_CHECKING:
    from configs.models.release import PublishConfig
    from tasks.products.counts.published import PublishedProduct

M = TypeVar("M", bound=Mechanism)
Raw = TypeVar("Raw")
Derived = TypeVar("Derived")

Field = dict[str, Any]
"""A column as a Frictionless table schema describes it."""


def described(columns: Mapping[str, tuple[str, str]]) -> list[Field]:
    """Columns as fields, given type and description of each."""
    return [
        {"name": name, "type": kind, "description": words}
        for name, (kind, words) in columns.items()
    ]


_PLAIN_FILES: Mapping[str, tuple[str | None, str, str | None]] = {
    "json": ("json", "application/json", "utf-8"),
    "png": (None, "image/png", None),
    "py": (None, "text/x-python", "utf-8"),
}
"""Of a suffix its type in a data package, which frictionless needs where JSON is not a descriptor
of its own, its media type and its encoding."""


def plain_file(name: str, path: str, title: str, description: str = "") -> dict[str, Any]:
    """A file that is not a table, as a resource of a data package."""
    suffix = path.rpartition(".")[2]
    kind, mediatype, encoding = _PLAIN_FILES[suffix]
    found = {
        "name": name.replace("_", "-").lower(),
        "path": path,
        "title": title,
        "description": description,
        "type": kind,
        "format": suffix,
        "mediatype": mediatype,
        "encoding": encoding,
    }
    return {key: value for key, value in found.items() if value}


@dataclass(frozen=True)
class TableForm:
    """A table of a product, which is written in every format that the config names.

    Attributes:
        stem: Name of its files without suffix.
        fields: Its columns.
        description: What a reader of the data package has to know; may be empty.
        title: What it is, in a few words; may be empty.
    """

    stem: str
    fields: Sequence[Field] = field(repr=False)
    description: str = ""
    title: str = ""

    def path(self, folder: Path, suffix: str) -> Path:
        """Its file of one format in the folder of a bundle."""
        return folder / "data" / f"{self.stem}.{suffix}"

    def resource(self, suffix: str) -> dict[str, Any]:
        """Its file of one format as a resource of a data package."""
        words = {"title": self.title, "description": self.description}
        return {
            "name": f"{self.stem}-{suffix}".lower(),
            "path": f"data/{self.stem}.{suffix}",
            **{key: said for key, said in words.items() if said},
            "format": suffix,
            **media_facts(suffix),
            "schema": {"fields": list(self.fields)},
        }


@dataclass(frozen=True)
class ReportPart:
    """What a product contributes to the report of its bundle.

    Attributes:
        words: What kind of thing it is, for whoever has not read the config.
        section: Its part of the page; files, mechanism and expected errors are added to it.
        figure: A typical figure of the product with its error, for the summary; None where
            there is none, as before anything is drawn.
    """

    words: str
    section: Section
    figure: Fact | None = None


class ProductKind(ABC, Generic[M, Raw, Derived]):
    """A kind of product in a bundle, of mechanisms M that release Raw.

    Attributes:
        core: The kind as the planner sees it.
        only: Names of the mechanisms that it is limited to; empty for all that no other is for.
        family: Kinds of one family share their notes in the bundle's README.
    """

    core: Kind
    only: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """By default a kind is a family of its own."""
        return self.core.name

    def private_input(
        self, product: PlannedProduct[M], counted: Counted
    ) -> ContingencyTable | CodedColumns:
        """What the mechanism is given of what was counted, as it needs it; private."""
        if needs_of(product.mechanism) == "columns":
            return counted.columns(product.request.columns)
        return counted.marginal(product.request.columns)

    @abstractmethod
    def postprocess(self, product: PlannedProduct[M], raw: Raw, n_records: int) -> Derived:
        """Free post-processing of what was released, as it will be published."""

    @abstractmethod
    def forms(self, product: PlannedProduct[M]) -> Sequence[TableForm]:
        """The product's tables."""

    @abstractmethod
    def write_table(
        self, form: TableForm, product: PlannedProduct[M], derived: Derived, path: Path,
        advance: Progress,
    ) -> None:  # fmt: skip
        """Write one of the tables to a path, whose suffix says the format."""

    @abstractmethod
    def rows(self, form: TableForm, product: PlannedProduct[M], derived: Derived) -> int:
        """How many rows a table has to have."""

    @abstractmethod
    def profile_table(
        self, form: TableForm, product: PlannedProduct[M], derived: Derived, path: Path
    ) -> dict[str, int]:
        """Aggregates of a table as written, for the release gate.

        Returns:
            ``rows``; of everything else how often it is wrong.
        """

    @abstractmethod
    def size(self, product: PlannedProduct[M]) -> int:
        """About how many values the files will hold, at most."""

    def working_memory(self, product: PlannedProduct[M]) -> WorkingMemory:
        """What the product needs of memory at most, by default for some values a cell."""
        columns = product.domain.columns
        cells = max(min(product.domain.n_possible, product.target.n_records), self.size(product))
        return of_cells(cells, columns, cells, "Use fewer columns or cells in the product.")

    @abstractmethod
    def rehearse(self, folder: Path, product: PlannedProduct[M], publish: PublishConfig) -> None:
        """Write, read back and remove what can be without a draw.

        Raises:
            ConfigError: What the config declares cannot be written.
        """

    @abstractmethod
    def advice(self, product: PlannedProduct[M], plan: Plan) -> str:
        """What a reader of the bundle has to know of a product, in one list item."""

    @abstractmethod
    def notes(self, products: Sequence[PlannedProduct[M]]) -> list[str]:
        """What a reader has to know of all products of the family, as paragraphs."""

    def write_others(
        self, folder: Path, product: PlannedProduct[M], derived: Derived, publish: PublishConfig
    ) -> None:
        """Write the files that are not tables, if there are any."""
        del folder, product, derived, publish

    def other_resources(
        self, product: PlannedProduct[M], publish: PublishConfig
    ) -> list[dict[str, Any]]:
        """The same files as resources of a data package."""
        del product, publish
        return []

    def parameters(self, product: PlannedProduct[M]) -> dict[str, str | int]:
        """The mechanism's parameters for readers of a plan; what is charged is in its own words."""
        return dict(product.mechanism.describe())

    def declared(self, product: PlannedProduct[M]) -> dict[str, Any]:
        """What the config asks of the product and ``privacy.json`` says besides its loss."""
        del product
        return {}

    def stated(self, product: PlannedProduct[M], raw: Raw) -> dict[str, Any]:
        """What ``privacy.json`` says of the product besides its loss."""
        del product, raw
        return {}

    def published(
        self, folder: Path, name: str, stated: Mapping[str, Any], resources: Mapping[str, Any]
    ) -> PublishedProduct | None:
        """The product's counts in a bundle, from which its files can be derived anew.

        Args:
            folder: A verified bundle.
            name: Of the product.
            stated: What ``privacy.json`` says of it.
            resources: The bundle's files by path, as the data package describes them.

        Returns:
            None if nothing of the kind is published.

        Raises:
            ValueError: The bundle's files do not fit each other.
        """
        del folder, name, stated, resources
        return None

    def true_errors(
        self,
        product: PlannedProduct[M],
        derived: Derived,
        private: ContingencyTable | CodedColumns,
    ) -> TrueErrors | None:
        """How far what is published is from what was counted; private.

        For the curator's report only, which is written after the release is out.

        Args:
            product: As planned.
            derived: As published.
            private: What the mechanism was given (``private_input``).

        Returns:
            None if the kind says nothing.
        """
        del product, derived, private
        return None

    @abstractmethod
    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The product's part of the report, from the public files of its bundle only.

        It is asked for once before the charge, when there are no data files, and must then do
        without them: whatever can fail must fail there.

        Args:
            folder: Of the bundle, or of what will be one.
            name: Of the product.
            stated: What ``privacy.json`` says of it.
            resources: Its files as the data package describes them.
        """
