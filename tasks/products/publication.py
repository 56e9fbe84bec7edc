"""What is published of a product, as values: its tables and other files.

A kind gives the tables of a product (``ProductKind.publication``); all else follows from these
values: the files in every format, the aggregates that the release gate checks, the rehearsal before
the charge, the sizes, and the resources of the data package.

Declared columns are written here as a data package describes them, and read back from there, with
what no file of them holds: structural zeros and absent records, and the number of records.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from statpress.configs import formats
from statpress.mechanisms.domain.columns import (
    Categorical,
    Column,
    Date,
    Integer,
    Numeric,
    Ordinal,
    Slot,
)
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.bundle.file_formats import (
    LISTED,
    arrow_type,
    format_named,
    read_batches,
    schema_of,
)
from statpress.tasks.bundle.rows import Progress, Rows, code_rows, write_rows
from statpress.tasks.bundle.stat_tables import MOST_VALUES

if TYPE_CHECKING:
    from statpress.configs.declared_columns import ColumnConfig
    from statpress.configs.release_config import PublishConfig

Field = dict[str, Any]
"""A column as a Frictionless table schema describes it."""

Profile = tuple[dict[str, dict[str, int]], dict[str, int]]
"""By file the aggregates of ``DataTable.profile``, and the number of rows that it should have."""


def described(columns: Mapping[str, tuple[str, str]]) -> list[Field]:
    """Columns as fields, given type and description of each."""
    return [
        {"name": name, "type": kind, "description": words}
        for name, (kind, words) in columns.items()
    ]


def _nothing_else(path: Path) -> dict[str, int]:
    """No check of a written file beyond its rows, names and declared values."""
    del path
    return {}


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """A table of a product, which is written in every format that the config names.

    Attributes:
        stem: Name of its files without suffix.
        fields: The columns, as a data package describes them.
        title: What the table is, in a few words; may be empty.
        description: What a reader of the data package has to know; may be empty.
        most_rows: Rows at most, from public figures only.
        domain: The declared columns, which come first and whose values are checked; None without.
        spread: Whether values lie anywhere within their cells.
        blank: How many rows at the beginning have no values of the domain.
        keys: The columns that tell rows apart.
        refers: A column whose values are keys of another table, and the stem of that table.
        instead: By format the table that is written in place of this one; None for none.
        check: Of a written file what else may be wrong, and how often it is.
        expected: The number of rows that was planned; None before anything is drawn.
        rows: The rows; None before anything is drawn.
    """

    stem: str
    fields: Sequence[Field] = field(repr=False)
    title: str = ""
    description: str = ""
    most_rows: int
    domain: Domain | None = None
    spread: bool = False
    blank: int = 0
    keys: tuple[str, ...] = ()
    refers: tuple[str, str] | None = None
    instead: Mapping[str, DataTable | None] = field(default_factory=dict, repr=False)
    check: Callable[[Path], Mapping[str, int]] = _nothing_else
    expected: int | None = None
    rows: Rows | None = field(default=None, repr=False)

    def path(self, folder: Path, suffix: str) -> Path:
        """The file of one format in the folder of a bundle."""
        return folder / "data" / f"{self.stem}.{suffix}"

    def resource(self, suffix: str) -> dict[str, Any]:
        """The file of one format as a resource of a data package."""
        words = {"title": self.title, "description": self.description}
        return {
            "name": f"{self.stem}-{suffix}".lower(),
            "path": f"data/{self.stem}.{suffix}",
            **{key: text for key, text in words.items() if text},
            "format": suffix,
            **media_facts(suffix),
            "schema": {"fields": list(self.fields), **self._keys(suffix)},
        }

    def _keys(self, suffix: str) -> dict[str, Any]:
        """Primary and foreign keys as a table schema has them."""
        keys: dict[str, Any] = {"primaryKey": list(self.keys)} if self.keys else {}
        if self.refers is not None:
            column, stem = self.refers
            to = {"resource": f"{stem}-{suffix}".lower(), "fields": [column]}
            keys["foreignKeys"] = [{"fields": [column], "reference": to}]
        return keys

    def write(
        self, path: Path, advance: Progress | None = None, fields: Sequence[Field] | None = None
    ) -> None:
        """Write the rows to a new file, whose suffix gives the format.

        Args:
            path: Of the file.
            advance: Called with the number of rows written since the last call.
            fields: The columns with the words of a config, for formats that hold labels.
        """
        assert self.rows is not None
        write_rows(self.rows, path, self.fields if fields is None else fields, advance)

    def profile(self, path: Path) -> dict[str, int]:
        """Aggregates of a written file: ``rows``; of everything else how often it is wrong."""
        names = [column["name"] for column in self.fields]
        if self.domain is not None:
            further = tuple(names[len(self.domain.columns) :])
            profile = profile_file(path, self.domain, further, spread=self.spread, blank=self.blank)
        else:
            profile = {"rows": 0, "schema": 0}
            for batch in read_batches(path, None):
                profile["rows"] += batch.num_rows
                profile["schema"] |= int(batch.schema.names != names)
        return profile | ({} if profile["schema"] else dict(self.check(path)))


def media_facts(name: str) -> dict[str, str]:
    """What a data package says of a format's files: ``type``, ``mediatype`` and ``encoding``."""
    form = format_named(name)
    facts = {"type": form.resource_type, "mediatype": form.media_type, "encoding": form.encoding}
    return {key: value for key, value in facts.items() if value}


_PLAIN_FILES: Mapping[str, tuple[str | None, str, str | None]] = {
    "json": ("json", "application/json", "utf-8"),
    "png": (None, "image/png", None),
    "py": (None, "text/x-python", "utf-8"),
}
"""Of a suffix its type in a data package, which frictionless needs where JSON is not a descriptor
of its own, its media type and its encoding."""


@dataclass(frozen=True)
class OtherFile:
    """A file of a product that is not a table.

    Attributes:
        path: In the folder of a bundle.
        name: In the data package.
        title: What the file is, in a few words.
        description: What a reader has to know; may be empty.
        most_values: Values in it at most, from public figures only.
        text: What it holds; None before anything is drawn.
    """

    path: str
    name: str
    title: str
    description: str = ""
    most_values: int = 0
    text: str | None = field(default=None, repr=False)

    def resource(self) -> dict[str, Any]:
        """The file as a resource of a data package."""
        return plain_file(self.name, self.path, self.title, self.description)


def plain_file(name: str, path: str, title: str, description: str = "") -> dict[str, Any]:
    """A file that is not a table, as a resource of a data package."""
    suffix = path.rpartition(".")[2]
    kind, mediatype, encoding = _PLAIN_FILES[suffix]
    facts = {
        "name": name.replace("_", "-").lower(),
        "path": path,
        "title": title,
        "description": description,
        "type": kind,
        "format": suffix,
        "mediatype": mediatype,
        "encoding": encoding,
    }
    return {key: value for key, value in facts.items() if value}


@dataclass(frozen=True)
class Publication:
    """The files of a product.

    Attributes:
        tables: The main one first, each in every format that the config names.
        others: What is not a table.
    """

    tables: Sequence[DataTable]
    others: Sequence[OtherFile] = ()

    @property
    def most_values(self) -> int:
        """How many values the files hold, at most."""
        tables = sum(table.most_rows * len(table.fields) for table in self.tables)
        return tables + sum(other.most_values for other in self.others)

    def in_format(self, suffix: str) -> list[DataTable]:
        """The tables that are written in a format."""
        tables = (table.instead.get(suffix, table) for table in self.tables)
        return [table for table in tables if table is not None]

    def resources(self, publish: PublishConfig) -> list[dict[str, Any]]:
        """All files as resources of a data package."""
        tables = [
            each.resource(suffix) for suffix in publish.formats for each in self.in_format(suffix)
        ]
        return tables + [other.resource() for other in self.others]

    def write(
        self,
        folder: Path,
        publish: PublishConfig,
        advance: Progress,
        words: Mapping[str, Field] = MappingProxyType({}),
    ) -> None:
        """Write all files.

        Args:
            folder: Of the bundle, with its subfolder ``data``.
            publish: Which formats.
            advance: Called with the number of rows written since the last call.
            words: What the config says of columns, see ``codebook``.
        """
        for suffix in publish.formats:
            for table in self.in_format(suffix):
                fields = fields_with_words(table.fields, words)
                table.write(table.path(folder, suffix), advance, fields)
        for other in self.others:
            assert other.text is not None
            (folder / other.path).write_text(other.text, encoding="utf-8")

    def profile(self, folder: Path, publish: PublishConfig) -> Profile:
        """Profile all tables as they were written."""
        profiles, rows = {}, {}
        for suffix in publish.formats:
            for table in self.in_format(suffix):
                assert table.expected is not None
                path = table.path(folder, suffix)
                profiles[path.name] = table.profile(path)
                rows[path.name] = table.expected
        return profiles, rows

    def rehearse(self, folder: Path, publish: PublishConfig, where: str) -> None:
        """Write every declared value and read it back; the files are removed again.

        Raises:
            ConfigError: A value does not come back as it was written.
        """
        own = {each.domain.names: each for each in reversed(self.tables) if each.domain is not None}
        for table in own.values():
            self._rehearse(table, folder, publish, where)

    def _rehearse(self, table: DataTable, folder: Path, publish: PublishConfig, where: str) -> None:
        assert table.domain is not None
        domain = Domain(table.domain.columns)  # every value, in whatever combination
        places = np.arange(min(max(column.size for column in domain.columns), LISTED))
        within = (lambda: np.random.default_rng(0)) if table.spread else None
        rows = code_rows(domain, [places % column.size for column in domain.columns], within)
        for suffix in publish.formats:
            path = folder / f"rehearsal.{suffix}"
            write_rows(rows, path, table.fields)
            profile = profile_file(path, domain, spread=table.spread)
            path.unlink()
            if profile.pop("rows") != len(places) or any(profile.values()):
                raise ConfigError(
                    f"A declared value cannot be written to {suffix} and read back.", where=where
                )

    def check_size(self, publish: PublishConfig, where: str) -> None:
        """Refuse before a charge files that are written whole and may not fit into memory.

        Raises:
            ConfigError: There may be more values than files of Stata or SPSS are written of.
        """
        whole = [form for form in publish.formats if form in formats.STAT]
        most = max((replace(self, tables=self.in_format(f)).most_values for f in whole), default=0)
        if most > MOST_VALUES:
            raise ConfigError(
                f"The product may have {most:,} values; files of Stata and SPSS are "
                f"written in one piece, of at most {MOST_VALUES:,}.",
                where=where,
                next_step=f"Leave {' and '.join(map(repr, whole))} out of publish.formats.",
            )


def codebook(declared: Mapping[str, ColumnConfig], domain: Domain) -> dict[str, Field]:
    """By column its words, of those that have any.

    Returns:
        Per column, as far as they are given, ``title``, ``description``, ``unit`` and
        ``categories`` with the ``label`` of each ``value``: names of Frictionless Table Schema,
        except for ``unit``, which it leaves to us, and ``special``, which has labels for some of
        the values of a range.
    """
    found = {}
    for name, column in declared.items():
        words: Field = {"title": column.label, "description": column.description}
        words["unit"] = column.unit
        labels = getattr(column, "value_labels", None)
        if labels is not None:
            special = getattr(column, "special", None)
            codes = [domain[name].code_of(value) for value in special or ()] or range(len(labels))
            labelled = dict(sorted(zip(codes, labels, strict=True)))
            values = domain[name].decode(np.array(list(labelled))).tolist()
            words["special" if special else "categories"] = [
                {"value": value, "label": label}
                for value, label in zip(values, labelled.values(), strict=True)
            ]
        words = {key: said for key, said in words.items() if said is not None}
        if words:
            found[name] = words
    return found


def fields_with_words(fields: Iterable[Field], words: Mapping[str, Field]) -> list[Field]:
    """The columns of a table, with the words of those that are declared."""
    return [_field(field, words) for field in fields]


def _field(field: Field, words: Mapping[str, Field]) -> Field:
    """A field with its words; figures that a mechanism adds have none of the config's."""
    if "declared" not in field or field["name"] not in words:
        return field
    first = {"name": field["name"], "type": field["type"]}
    return first | words[field["name"]] | field


LISTED_CELLS = 10_000
"""Cells of a column up to which they are listed in full."""

_COLUMNS = MappingProxyType(
    {kind.kind: kind for kind in (Categorical, Ordinal, Integer, Numeric, Date, Slot)}
)
_DATES = ("first", "last")


def column_field(column: Column) -> Field:
    """A column with its declaration and, if that is short enough, its codebook."""
    values = column.decode(np.arange(min(column.size, LISTED_CELLS) - column.missing))
    types = {"i": "integer", "f": "number", "b": "boolean"}
    kind = types.get(np.asarray(values.tolist()).dtype.kind, "string")
    field: Field = {"name": column.name, "type": kind, "declared": describe_column(column)}
    if column.size <= LISTED_CELLS:
        field["constraints"] = {"enum": values.tolist(), "required": not column.missing}
    return field


def range_field(column: Column, sloped: bool = False) -> Field:
    """A column whose values are drawn within its cells, evenly or by slopes."""
    assert column.ends is not None
    low, high = column.ends
    types: dict[type, str] = {int: "integer", float: "number"}
    kind = types.get(type(low), "date")
    constraints = {"minimum": low, "maximum": high, "required": not column.missing}
    declared = describe_column(column)
    field = {"name": column.name, "type": kind, "declared": declared, "constraints": constraints}
    return field | ({"within": "slope"} if sloped else {})


def describe_column(column: Column) -> dict[str, Any]:
    """A column's full public declaration, as JSON values."""
    declared = {f.name: getattr(column, f.name) for f in fields(column)}
    for name in ("special", "whole"):  # later additions, which earlier versions do not know
        if not declared.get(name, True):
            del declared[name]
    return {"kind": column.kind} | {name: _stated(value) for name, value in declared.items()}


def _stated(value: Any) -> Any:
    """A declared value, or several, as JSON has them."""
    if isinstance(value, tuple):
        return tuple(map(_stated, value))
    if isinstance(value, Column):
        return describe_column(value)
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def column_from(description: Mapping[str, Any]) -> Column:
    """Rebuild a column from ``describe_column``.

    Raises:
        ValueError: It is of a kind that this version does not know.
        ConfigError: It is not a valid declaration.
    """
    fields = dict(description)
    kind = fields.pop("kind")
    if kind not in _COLUMNS:
        raise ValueError(f"there is no kind of column '{kind}' in this version")
    read = datetime.date.fromisoformat if kind == Date.kind else None
    for name, value in fields.items():
        if isinstance(value, Mapping):  # of a place in a household, the column of persons
            fields[name] = column_from(value)
        elif isinstance(value, (list, tuple)):
            fields[name] = tuple(map(read, value)) if read else tuple(value)
        elif read and name in _DATES:
            fields[name] = read(value)
    return _COLUMNS[kind](**fields)


def zeros_by_codes(domain: Domain) -> list[dict[str, list[list[int]]]]:
    """Of each structural zero the runs of codes by column, first and last code of each."""
    return [
        {name: [list(run) for run in runs] for name, runs in zero.sets} for zero in domain.zeros
    ]


def unlisted_in_words(domain: Domain) -> str:
    """Which records and combinations of values a domain's files do not hold; may be empty."""
    words = []
    if domain.zeros:
        words.append("Combinations of values that no record can have (structural zeros).")
    if domain.absent:
        words.append(
            "Absent records, which units do not have: every unit counts for the same number of "
            "records, and one with fewer is filled up with absent ones, which have no values. "
            "What is listed adds up to the public number of records only together with these."
        )
    return " ".join(words)


def not_in_it(domain: Domain) -> str:
    """What is not in a file, as its description in a data package says it; may be empty."""
    words = unlisted_in_words(domain)
    return f"Not in it: {words}" if words else ""


_LARGEST = 2**62


def zero_from(sets: Mapping[str, Any]) -> ZeroPattern:
    """A structural zero from its runs of codes by column."""
    runs = {
        name: tuple((whole(first), whole(last)) for first, last in runs)
        for name, runs in sets.items()
    }
    if any(last < first for pairs in runs.values() for first, last in pairs):
        raise ValueError("a structural zero has a run of codes that ends before it begins")
    return ZeroPattern(tuple(runs.items()))


def whole(number: object) -> int:
    """A count or a code as a file states it."""
    if type(number) is not int or not -_LARGEST < number < _LARGEST:
        raise ValueError("a count or a code is no integer, or too large")
    return number


def size_stated(stated: Mapping[str, Any]) -> int:
    """The number of records that a statement is of: the public one, or that of its noisy counts."""
    number: int = stated.get("estimated_records", stated["n_records"])
    return number


def profile_file(
    path: Path,
    domain: Domain,
    extra: tuple[str, ...] = (),
    *,
    spread: bool = False,
    blank: int = 0,
) -> dict[str, int]:
    """Count the rows of a file and what does not fit the domain; reads it in batches.

    Args:
        path: The file.
        domain: Its first columns.
        extra: The names of the others.
        spread: Whether values lie anywhere within their cells.
        blank: How many rows at the beginning have no values of the domain.

    Returns:
        ``rows``; ``schema``, 1 if names or types differ from the declared ones;
        and per column the number of values outside the domain.
    """
    import pyarrow.compute as pc

    schema = schema_of(domain, spread=spread)
    figures = {"rows": 0, "schema": 0} | {f"outside {c.name}": 0 for c in domain.columns}
    allowed = {
        c.name: _between(c, c.ends) if spread and c.ends else _allowed(c) for c in domain.columns
    }
    for batch in read_batches(path, schema):
        figures["rows"] += batch.num_rows
        names = [*schema.names, *extra]
        if batch.schema.names != names or any(
            not batch.schema.field(f.name).type.equals(f.type) for f in schema
        ):
            figures["schema"] = 1
            continue
        empty, batch = batch.slice(0, blank), batch.slice(blank)
        blank -= empty.num_rows
        for column in domain.columns:
            inside = allowed[column.name](batch.column(column.name))
            wrong = batch.num_rows - (pc.sum(inside).as_py() or 0)
            filled = empty.num_rows - empty.column(column.name).null_count
            figures[f"outside {column.name}"] += wrong + filled
    return figures


def _allowed(column: Column) -> Callable[[Any], Any]:
    """A function of an Arrow array: which of its values the domain declares."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n_declared = column.size - column.missing
    if n_declared <= LISTED or isinstance(column, Categorical):  # which may be in any order
        listed = pa.array(column.decode(np.arange(n_declared)), arrow_type(column))

        def inside(values: Any) -> Any:
            found = pc.is_in(values, value_set=listed)
            return pc.or_(found, pc.is_null(values)) if column.missing else found

        return inside
    return _between(column, column.decode(np.array([0, n_declared - 1])).tolist())


def _between(column: Column, ends: Sequence[Any]) -> Callable[[Any], Any]:
    """A function of an Arrow array: which of its values lie between two, or may be missing."""
    import pyarrow.compute as pc

    def between(values: Any) -> Any:
        found = pc.and_(pc.greater_equal(values, ends[0]), pc.less_equal(values, ends[1]))
        return pc.fill_null(found, column.missing)

    return between
