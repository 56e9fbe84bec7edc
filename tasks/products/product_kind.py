"""What a bundle needs of a kind of product, and the registry of kinds.

A kind is imported when it is asked for, so that a plan takes no time over those it does not have.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.contingency_table import CodedColumns, ContingencyTable, Counted
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.mechanism import Kind, Mechanism
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.registry import KINDS as PLANNED
from statpress.mechanisms.registry import REGISTRY, Registry
from statpress.tasks.pages.blocks import Fact, Relations, Section
from statpress.tasks.products.publication import Publication

if TYPE_CHECKING:
    from statpress.tasks.products.distributions import TrackedFigure
    from statpress.tasks.products.published_counts import PublishedProduct
    from statpress.tasks.products.true_errors import TrueErrors


CHUNK_ROWS = 1 << 20
"""Most rows that are written at once (tasks.bundle.rows)."""
_WRITERS = 256 * 2**20
"""Of the libraries that write files, their buffers, and those that drew before."""
_VALUE = 28
_CODED = 1 << 10
_SAMPLERS = 96 * 2**20
"""Of the libraries that draw, with their compiled kernels."""


@dataclass(frozen=True, kw_only=True)
class WorkingMemory:
    """Bytes that a product needs at most, besides what the run has in memory anyway.

    Attributes:
        draw: While its mechanism releases.
        derive: While it is post-processed, what was released included.
        write: While its files are written and checked, without ``kept``.
        kept: From post-processing to the end of the run.
        figure: What decides, in words, such as ``1,000,000 cells``.
        next_step: What helps.
        files: Bytes on disk, in the run's private folder, from the draw to the end of the run.
    """

    draw: int
    derive: int
    write: int
    kept: int
    figure: str
    next_step: str
    files: int = 0

    def check(self, where: str, there: int | None = None) -> None:
        """Refuse before the charge what could not be post-processed here after it.

        Args:
            where: Path of the product in the config.
            there: Bytes of memory that there are, by default this machine's.

        Raises:
            ConfigError: The product would not fit into this machine's memory.
        """
        there = machine_memory() if there is None else there
        if self.derive > there:
            raise ConfigError(
                f"The product needs up to {self.derive / 2**30:,.1f} GiB of memory, for "
                f"{self.figure}, and this machine has {there / 2**30:,.1f} GiB.",
                where=where,
                next_step=f"{self.next_step} Or run on a larger machine.",
            )


def machine_memory() -> int:
    """Bytes of memory that this machine, or the container around the process, has."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return installed
    return min(installed, int(most)) if most.isdigit() else installed


def of_cells(cells: int, columns: Sequence[Column], rows: int, next_step: str) -> WorkingMemory:
    """The memory of a product that works on arrays of at most ``cells`` cells."""
    return WorkingMemory(
        draw=_SAMPLERS + 160 * cells,
        derive=_SAMPLERS + 200 * cells,
        write=of_rows(rows, columns) + 100 * cells,
        kept=100 * cells,
        figure=f"{cells:,} cells",
        next_step=next_step,
    )


def of_rows(rows: int, columns: Sequence[Column]) -> int:
    """Bytes to write and check files of so many rows: a chunk of them, and the libraries."""
    values = sum(_VALUE + 2 * _text(column) for column in columns)
    listed = sum(column.size for column in columns if column.size <= CHUNK_ROWS)
    return _WRITERS + min(rows, CHUNK_ROWS) * (values + 4 * _VALUE) + 128 * listed


def _text(column: Column) -> int:
    """Bytes of the longest value of a column of text; few values are written as their codes."""
    listed = getattr(column, "categories", ())
    long = max((len(str(value).encode()) for value in listed), default=16)
    return long if column.size > _CODED else 0


M = TypeVar("M", bound=Mechanism)
Raw = TypeVar("Raw")
Derived = TypeVar("Derived")


@dataclass(frozen=True)
class ReportPart:
    """What a product contributes to the report of its bundle.

    Attributes:
        words: What kind of thing it is, for whoever has not read the config.
        section: Its part of the page; files, mechanism and expected errors are added to it.
        figure: A typical figure of the product with its error, for the summary; None where
            there is none, as before anything is drawn.
        opening: What the bundle's README and report begin with; may be empty, as before anything is
            drawn.
        relations: What the front of the page tells of it; None where nothing stands out.
    """

    words: str
    section: Section
    figure: Fact | None = None
    opening: str = ""
    relations: Relations | None = None


@dataclass(frozen=True)
class ReaderWords:
    """What a reader of a bundle has to know of a product, as Markdown.

    Attributes:
        item: Of the product itself, one list item.
        notes: Paragraphs by topic, of which a bundle with several products shows one a topic, the
            longest.
    """

    item: str
    notes: Mapping[str, str] = field(default_factory=dict)


class ProductKind(ABC, Generic[M, Raw, Derived]):
    """A kind of product in a bundle, of mechanisms M that release Raw.

    Attributes:
        core: The kind as the planner sees it.
    """

    core: Kind

    @abstractmethod
    def postprocess(self, product: PlannedProduct[M], raw: Raw, n_records: int) -> Derived:
        """Free post-processing of what was released, as it will be published."""

    @abstractmethod
    def publication(
        self, product: PlannedProduct[M], derived: Derived | None = None
    ) -> Publication:
        """The product's files; before anything is drawn, as they are planned."""

    @abstractmethod
    def words(self, product: PlannedProduct[M], plan: Plan) -> ReaderWords:
        """What a reader of the bundle has to know of a product."""

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

    def working_memory(self, product: PlannedProduct[M]) -> WorkingMemory:
        """What the product needs of memory at most, by default for some values a cell."""
        columns, most = product.domain.columns, self.publication(product).most_values
        cells = max(min(product.domain.n_possible, product.target.n_records), most)
        return of_cells(cells, columns, cells, "Use fewer columns or cells in the product.")

    def parameters(self, product: PlannedProduct[M]) -> dict[str, str | int]:
        """The mechanism's parameters for readers of a plan; what is charged is in its own words."""
        return dict(product.mechanism.describe())

    def stated(self, product: PlannedProduct[M], raw: Raw | None = None) -> dict[str, Any]:
        """What ``privacy.json`` says of the product besides its loss.

        Before anything is drawn, only what the config asks of the product.
        """
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

    def tracked(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> Iterable[TrackedFigure]:  # fmt: skip
        """The product's figures that a series shows over its periods; by default none.

        Args:
            folder: A verified bundle.
            name: Of the product.
            stated: What ``privacy.json`` says of it.
            resources: Its files as the data package describes them.

        Raises:
            ValueError: The bundle's files do not fit each other.
        """
        del folder, name, stated, resources
        return ()

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


if TYPE_CHECKING:
    AnyKind = ProductKind[Any, Any, Any]

_ROOM = "statpress.tasks.products"

KINDS: Registry[AnyKind] = Registry(
    {kind: f"{_ROOM}.{kind}_product:FILES" for kind in PLANNED.shipped()}
    | {
        "microdata": f"{_ROOM}.count_product:MICRODATA_FILES",
        "table": f"{_ROOM}.count_product:TABLE_FILES",
        "microdata_by_marginals": f"{_ROOM}.marginal_product:MARGINAL_FILES",
        "tables_of_places": f"{_ROOM}.place_product:PLACE_FILES",
    }
)
"""By name the kinds of product: ``FILES`` of the module named after the planner's kind, but for two
kinds that share a module, and for mechanisms that say ``published_as``, whose products have files
of their own."""


def register(kind: AnyKind) -> None:
    """Add a kind of product.

    Raises:
        ValueError: There is another of this name.
    """
    if kind.core.name in KINDS:
        raise ValueError(f"there is a kind of product '{kind.core.name}' already")
    KINDS.add(kind.core.name, kind)


def kind_of(product: PlannedProduct[Any]) -> AnyKind:
    """The kind of a planned product."""
    return kind_named(product.kind.name, product.mechanism.name)


def kind_named(name: str, mechanism: str) -> AnyKind:
    """The kind of a product by what a privacy statement says of it."""
    return KINDS[getattr(REGISTRY.get(mechanism), "published_as", "") or name]


def private_input(
    product: PlannedProduct[Any], counted: Counted
) -> ContingencyTable | CodedColumns:
    """What the product's mechanism is given of what was counted, as it needs it; private."""
    if product.mechanism.needs == "columns":
        return counted.columns(product.request.columns)
    return counted.marginal(product.request.columns, product.domain)
