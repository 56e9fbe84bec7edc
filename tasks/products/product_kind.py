"""What a bundle needs of a kind of product, and what all kinds share.

What products need of memory, from public figures only: bounds that hold, not estimates.

The bytes of a cell and of a record are those that were measured, with room to spare
(tests/system/test_memory_forecasts.py measures them again).

What a product contributes to the curator's report: its true errors, which are private.
What a bundle needs of a kind of product.
What the config says of columns in words, as the data package of a bundle has it.
The files of any product in the folder of a bundle, in every format that the config names.
Whole bundles whose files do not fit each other, or this version.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from statpress.configs import formats
from statpress.mechanisms.domain.coded_columns import CodedColumns
from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.contingency_table import ContingencyTable, Counted
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import BundleVerificationError, ConfigError
from statpress.mechanisms.mechanism import Kind, Mechanism
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.tasks.bundle.formats import media_facts
from statpress.tasks.bundle.rows import Progress
from statpress.tasks.bundle.stat_tables import MOST_VALUES
from statpress.tasks.pages.blocks import Fact, Grid, Section
from statpress.tasks.pages.numbers import count, measured, share
from statpress.tasks.products.kinds import kind_of

if TYPE_CHECKING:
    from statpress.configs.columns import ColumnConfig
    from statpress.configs.release_config import PublishConfig
    from statpress.mechanisms.estimates.exact_values import Coverage
    from statpress.tasks.products.published_counts import PublishedProduct


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
    """

    draw: int
    derive: int
    write: int
    kept: int
    figure: str
    next_step: str


def of_cells(cells: int, columns: Sequence[Column], rows: int, next_step: str) -> WorkingMemory:
    """Of a product that works on arrays of cells.

    Args:
        cells: Most of them.
        columns: Of its files.
        rows: Of its longest file.
        next_step: What helps.
    """
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


LARGEST = 20
"""Errors that are listed by themselves."""

_ABOUT, _NEARLY = 1.5, 1.0
_RARE = 10


class Compared(NamedTuple):
    """An error next to what the plan promised; private.

    Attributes:
        what: Which error.
        promised: By the plan; empty where it promises nothing.
        true: Of this release.
        verdict: In words.
    """

    what: str
    promised: str
    true: str
    verdict: str


@dataclass(frozen=True, repr=False)
class TrueErrors:
    """A product's part of the curator's report; private, and its ``repr`` shows nothing.

    Attributes:
        compared: For the summary, the most important first.
        section: With all details.
    """

    compared: Sequence[Compared]
    section: Section

    def __repr__(self) -> str:
        return "TrueErrors()"


class Missed(NamedTuple):
    """A figure with its error, for the list of the largest."""

    where: str
    published: float
    true: float

    @property
    def error(self) -> float:
        """Its size."""
        return abs(self.published - self.true)


def compared(what: str, promised: float | None, true: float) -> Compared:
    """An error of which the plan promises the mean for a public reference.

    >>> compared("total variation", 0.02, 0.05)
    Compared(what='total variation', promised='0.02', true='0.05', verdict='2.5 times the promise')
    """
    if promised is None or not math.isfinite(promised) or not math.isfinite(true):
        return Compared(what, "", measured(true, 3), "nothing was promised")
    if promised <= 0:
        return Compared(what, "0", measured(true, 3), "as promised" if not true else "not kept")
    ratio = true / promised
    if ratio <= _NEARLY:
        verdict = "kept"
    elif ratio <= _ABOUT:
        verdict = "nearly kept"
    else:
        verdict = f"{measured(ratio, 2)} times the promise"
    return Compared(what, measured(promised, 3), measured(true, 3), verdict)


def covered(what: str, found: Coverage) -> Compared:
    """How many intervals hold the true value, against what is promised of each.

    >>> covered("cells", Coverage(88, 100)).verdict
    'more miss than promised; honest intervals do so in at most 42 of 100 releases'
    """
    bound = math.ceil(100 * found.at_most)
    verdict = "kept"
    if bound < 100:
        far = "far " if bound <= _RARE else ""
        verdict = (
            f"{far}more miss than promised; honest intervals do so in at most {bound} of 100 "
            "releases"
        )
    true = f"{count(found.inside)} of {count(found.of)}, {share(found.share)}"
    return Compared(what, share(found.level), true, verdict)


def compared_grid(rows: Sequence[Compared], title: str = "") -> Grid:
    """A table of errors beside promises."""
    return Grid(("error", "promised", "true", "verdict"), rows, title=title)


def largest_grid(missed: Iterable[Missed], title: str, unit: str) -> Grid:
    """The largest errors, folded; counts are shown whole."""
    order = sorted(missed, key=lambda each: -each.error)[:LARGEST]
    rows = [
        [each.where, measured(each.published, 6), measured(each.true, 6),
         f"{'+' if each.published >= each.true else '-'}{measured(each.error)}"]
        for each in order
    ]  # fmt: skip
    headings = ("where", f"{unit}, published", f"{unit}, true", "error")
    return Grid(headings, rows, title=title, folded=True)


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
        if product.mechanism.needs == "columns":
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


def codebook(declared: Mapping[str, ColumnConfig], domain: Domain) -> dict[str, Field]:
    """By column its words, of those that have any.

    Args:
        declared: The config's section ``domain``.
        domain: What it declares.

    Returns:
        Per column, as far as they are given, ``title``, ``description``, ``unit`` and
        ``categories`` with the ``label`` of each ``value``: names of Frictionless Table Schema,
        except for ``unit``, which it leaves to us.
    """
    found = {}
    for name, column in declared.items():
        words: Field = {"title": column.label, "description": column.description}
        words["unit"] = column.unit
        labels = getattr(column, "value_labels", None)
        if labels is not None:
            values = domain[name].decode(np.arange(len(labels))).tolist()
            words["categories"] = [
                {"value": value, "label": label}
                for value, label in zip(values, labels, strict=True)
            ]
        words = {key: said for key, said in words.items() if said is not None}
        if words:
            found[name] = words
    return found


def with_words(
    resources: Iterable[Mapping[str, Any]], words: Mapping[str, Field]
) -> list[dict[str, Any]]:
    """The resources of a data package, with the words of their declared columns."""
    return [
        {**resource, "schema": {"fields": fields_with_words(resource["schema"]["fields"], words)}}
        if "schema" in resource
        else dict(resource)
        for resource in resources
    ]


def fields_with_words(fields: Iterable[Field], words: Mapping[str, Field]) -> list[Field]:
    """The columns of a table, with the words of those that are declared."""
    return [_field(field, words) for field in fields]


def _field(field: Field, words: Mapping[str, Field]) -> Field:
    """A field with its words; figures that a mechanism adds have none of the config's."""
    if "declared" not in field or field["name"] not in words:
        return field
    first = {"name": field["name"], "type": field["type"]}
    return first | words[field["name"]] | field


NO_WORDS: Mapping[str, Field] = MappingProxyType({})
Profile = tuple[dict[str, dict[str, int]], dict[str, int]]
"""By file its profile, see ``ProductKind.profile_table``, and the rows it should have."""


def write_product(
    folder: Path,
    product: PlannedProduct[Any],
    derived: Any,
    publish: PublishConfig,
    advance: Progress,
    words: Mapping[str, Field] = NO_WORDS,
) -> None:
    """Write all files of a product.

    Args:
        folder: Of the bundle, with its subfolder ``data``.
        product: As planned.
        derived: What its kind made of what was released.
        publish: Which formats.
        advance: Called with the number of records written since the last call.
        words: What the config says of columns, see ``codebook``.
    """
    kind = kind_of(product)
    for plain in kind.forms(product):
        form = replace(plain, fields=fields_with_words(plain.fields, words))
        for suffix in publish.formats:
            kind.write_table(form, product, derived, form.path(folder, suffix), advance)
    kind.write_others(folder, product, derived, publish)


def profile_product(
    folder: Path, product: PlannedProduct[Any], derived: Any, publish: PublishConfig
) -> Profile:
    """Profile all tables of a product as they were written."""
    kind = kind_of(product)
    profiles, rows = {}, {}
    for form in kind.forms(product):
        for suffix in publish.formats:
            path = form.path(folder, suffix)
            profiles[path.name] = kind.profile_table(form, product, derived, path)
            rows[path.name] = kind.rows(form, product, derived)
    return profiles, rows


def resources_of(product: PlannedProduct[Any], publish: PublishConfig) -> list[dict[str, Any]]:
    """All files of a product as resources of a data package."""
    kind = kind_of(product)
    forms = kind.forms(product)
    tables = [form.resource(suffix) for suffix in publish.formats for form in forms]
    return tables + kind.other_resources(product, publish)


def check_size(product: PlannedProduct[Any], publish: PublishConfig, where: str) -> None:
    """Refuse before a charge files that are written whole and may not fit into memory.

    Raises:
        ConfigError: The product may have more values than files of Stata or SPSS are written of.
    """
    whole = [form for form in publish.formats if form in formats.STAT]
    values = kind_of(product).size(product)
    if whole and values > MOST_VALUES:
        raise ConfigError(
            f"The product may have {values:,} values; files of Stata and SPSS are written in one "
            f"piece, of at most {MOST_VALUES:,}.",
            where=where,
            next_step=f"Leave {' and '.join(map(repr, whole))} out of publish.formats.",
        )


@contextmanager
def understood(place: Path) -> Iterator[None]:
    """Say of a whole bundle that its files do not fit each other, or this version."""
    try:
        yield
        return
    except BundleVerificationError:
        raise
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        problem = (error.what if isinstance(error, ConfigError) else str(error)).rstrip(".")
    raise BundleVerificationError(
        f"The bundle is as its manifest says, and this version cannot read it: {problem}.",
        where=str(place),
        next_step="Use the version of statpress that the manifest names.",
    )
