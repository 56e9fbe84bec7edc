"""Tables as files of Stata and SPSS, and read back from there; needs the extra ``stat``.

Files of Stata have the format of version 14 (118), which Stata 14 and later read; SPSS's system
files are compressed, which every version reads. Declared text categories are numbered from 1 and
have value labels, as statisticians expect: the value itself, or ``value = label`` where the config
labels it. Days are dates of the package. Other text stays text. The display format says which a
column is, so that a file can be read back without anything else:

==============  ========  =======  ==============================================
column          Stata     SPSS     holds
==============  ========  =======  ==============================================
whole number    %12.0f    F12.0    a whole number; text beyond 53 bits
number          %16.0g    F16.6    a double
yes or no       %1.0f     F1.0     0 or 1
category        %8.0g     F8.0     1 and so on, with value labels
day             %td...    SDATE10  days from 1960 (Stata), seconds from 1582 (SPSS)
text            %..s      A..      text; null is empty
==============  ========  =======  ==============================================

The library writes a data frame at once, so a table is gathered in memory: what may be too large is
refused before anything is charged (``MOST_VALUES``). It puts the time of writing into a file, which
is overwritten, so that the same rows give the same bytes.

Sources: Stata, "Description of .dta file format 118" (help dta_118); PSPP developers' manual,
"System File Format", of the header record.
"""

from __future__ import annotations

import datetime
import errno
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from statpress.configs.formats import fault_of, stored_name
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.bundle.file_formats import FileFormat

if TYPE_CHECKING:
    import pyarrow as pa


FACTS = b"statpress"
"""Of an Arrow field: what the writer of such a file has to know of the column, as JSON."""
MOST_CODES = 10_000
_IS = " = "
_WHOLE = 2**53
_LABEL_BYTES = 250


@dataclass(frozen=True)
class Package:
    """What differs between Stata and SPSS.

    Attributes:
        form: Suffix of its files.
        formats: By kind of column its display format.
        epoch: Day 0.
        per_day: Units of a day.
        first_day: That it can show.
        label_length: Characters of a variable's label, at most.
        code_length: Bytes of a value's label, at most.
        write_frame: Writes a data frame to a path, given its ``StoredColumn``s.
        stamp: Takes the time of writing out of an open file.
    """

    form: str
    formats: Mapping[str, str]
    epoch: datetime.date
    per_day: int
    first_day: datetime.date
    label_length: int
    code_length: int
    write_frame: Callable[..., None]
    stamp: Callable[[BinaryIO], None]

    def kind_of(self, shown: str) -> str:
        """The kind of a column by its display format."""
        found = (kind for kind, each in self.formats.items() if shown.startswith(each))
        return next(found, "number")


@dataclass(frozen=True)
class StoredColumn:
    """A column of a file.

    Attributes:
        name: In the file.
        kind: One of those of ``Package.formats``, or ``text``.
        label: For people.
        codes: By code from 0 the value label; empty without any.
        texts: By code from 1 the text that it stands for, of a category.
        measure: Of SPSS: nominal, ordinal or scale.
    """

    name: str
    kind: str
    label: str
    codes: Mapping[int, str]
    texts: Sequence[str]
    measure: str


def labelled(schema: pa.Schema, fields: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The schema with what a data package says of its columns, as far as it names them."""
    import pyarrow as pa

    said = {field["name"]: {FACTS: json.dumps(field)} for field in fields}
    return pa.schema([each.with_metadata(said.get(each.name, {})) for each in schema])


def stored_column(field: pa.Field, package: Package) -> StoredColumn:
    """How a column is to be written."""
    import pyarrow as pa

    said = json.loads((field.metadata or {}).get(FACTS, b"{}"))
    declared = said.get("declared", {})
    label = said.get("title") or said.get("description") or field.name
    if said.get("unit"):
        label = f"{label} ({said['unit']})"
    kind, codes = "text", dict[int, str]()
    texts: list[str] = []
    if pa.types.is_boolean(field.type):
        kind, codes = "boolean", {0: "false", 1: "true"} | _value_labels(said)
    elif pa.types.is_integer(field.type):
        kind, codes = "whole", _value_labels(said)
    elif pa.types.is_floating(field.type):
        kind, codes = "number", _value_labels(said)
    elif pa.types.is_date(field.type) or _is_day(said, package):
        kind = "day"
    else:
        codes, texts = _categories(said, package)
        kind = "category" if codes else "text"
    measures = {"categorical": "nominal", "ordinal": "ordinal"}
    measure = "nominal" if kind in ("text", "boolean") else "scale"
    return StoredColumn(
        stored_name(field.name, package.form),
        kind,
        _shortened(label, package.label_length),
        codes,
        texts,
        measures.get(declared.get("kind", ""), measure),
    )


def stored_values(column: StoredColumn, values: pa.Array, package: Package) -> Any:
    """The values of a column as pandas holds them."""
    import pandas as pd
    import pyarrow as pa

    if column.kind in ("number", "boolean"):
        numbers = values.cast(pa.float64()) if column.kind == "number" else values.cast(pa.int8())
        return numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    if column.kind == "category":
        listed = pa.array(column.texts, pa.string())
        codes = values.dictionary_encode()
        places = pa.compute.index_in(codes.dictionary, value_set=listed)
        found = places.take(codes.indices).to_numpy(zero_copy_only=False)
        return found.astype(np.float64) + 1
    if column.kind == "day":
        days = values.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False)
        since = (package.epoch - datetime.date(1970, 1, 1)).days
        return (days.astype(np.float64) - since) * package.per_day
    if column.kind == "whole":
        bounds = pa.compute.min_max(values).as_py()
        if all(bounds[end] is None or abs(bounds[end]) <= _WHOLE for end in ("min", "max")):
            return values.to_numpy(zero_copy_only=False).astype(np.float64)
        values = values.cast(pa.string())
    return pd.Series(values.to_pandas(), dtype=object)


def read_values(
    values: Sequence[Any], kind: str, labels: Mapping[Any, str], wanted: pa.DataType | None,
    package: Package,
) -> pa.Array:  # fmt: skip
    """The values of a column of a file.

    Args:
        values: As pyreadstat lists them, dates as numbers.
        kind: Of the column.
        labels: By value its label.
        wanted: The type, if it is known.
        package: Which wrote the file.
    """
    import pyarrow as pa

    if kind == "text":
        found = pa.array([value or None for value in values], pa.string())
        return found if wanted is None else found.cast(wanted)
    numbers = pa.array(np.asarray(values, dtype=np.float64), from_pandas=True)
    if kind == "category":
        texts = _texts([labels[code] for code in sorted(labels)])
        places = numbers.cast(pa.int32())
        found = pa.array(texts, pa.string()).take(pa.compute.subtract(places, 1))
    elif kind == "day":
        days = numbers.to_numpy(zero_copy_only=False) / package.per_day
        days = days + (package.epoch - datetime.date(1970, 1, 1)).days
        dates = pa.array(days, from_pandas=True).cast(pa.int32()).cast(pa.date32())
        found = dates if wanted == pa.date32() else dates.cast(pa.string())
    elif kind == "whole":
        found = numbers.cast(pa.int64())
    elif kind == "boolean":
        found = numbers.cast(pa.int8()).cast(pa.bool_())
    else:
        found = numbers
    return found if wanted is None else found.cast(wanted)


def _is_day(said: Mapping[str, Any], package: Package) -> bool:
    """Whether a column of text holds days that the package can show."""
    declared = said.get("declared", {})
    days = said.get("type") == "date" or declared.get("by") == "day"
    if not days:
        return False
    earliest: str = min((declared["first"], *declared.get("special", ())))
    return earliest >= package.first_day.isoformat()


def _value_labels(said: Mapping[str, Any]) -> dict[int, str]:
    """Of whole numbers and booleans, as far as the config labels them; no two are the same."""
    labelled = (*said.get("categories", ()), *said.get("special", ()))
    listed = [each for each in labelled if each["value"] % 1 == 0]
    found = {int(each["value"]): each["label"] for each in listed}
    if len({*found.values()}) < len(found):
        return {value: f"{value}{_IS}{label}" for value, label in found.items()}
    return found


def _categories(said: Mapping[str, Any], package: Package) -> tuple[dict[int, str], list[str]]:
    """Codes and texts of declared categories; none of those that cannot be told from labels."""
    if said.get("declared", {}).get("kind") not in ("categorical", "ordinal"):
        return {}, []
    texts = said.get("constraints", {}).get("enum", [])
    told = [each["label"] for each in said.get("categories", ())]
    told += texts[len(told) :]  # 'other' has none of its own
    both = [f"{text}{_IS}{label}" for text, label in zip(texts, told, strict=True)]
    for labels in (both, texts) if told != texts else (texts,):
        short = all(0 < len(each.encode()) <= package.code_length for each in labels)
        if short and _texts(labels) == texts and len(texts) <= MOST_CODES:
            return dict(enumerate(labels, 1)), texts
    return {}, []


def _texts(labels: Sequence[str]) -> list[str]:
    """What labels of categories stand for."""
    if all(_IS in label for label in labels):
        return [label.partition(_IS)[0] for label in labels]
    return list(labels)


def _shortened(text: str, length: int) -> str:
    """Text of at most so many characters, and of 250 bytes, in one line."""
    plain = " ".join(text.split())
    if len(plain) <= length and len(plain.encode()) <= _LABEL_BYTES:
        return plain
    cut = plain[: length - 3].encode()[: _LABEL_BYTES - 3].decode(errors="ignore")
    return f"{cut}..."


MOST_VALUES = 25_000_000
"""Of a product: some 1 GB of memory, and a quarter of a minute."""
_READ_VALUES = 1 << 21
"""Values that are read at once."""


@dataclass
class _Writer:
    """Gathers the rows of a file, and writes them when it is closed.

    Attributes:
        package: Whose file it is.
        sink: The open file.
        schema: Of its rows.
    """

    package: Package
    sink: BinaryIO
    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch, /) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        import pandas as pd
        import pyarrow as pa
        import pyreadstat

        table = pa.Table.from_batches(self.batches, schema=self.schema)
        self.batches = []
        columns = [stored_column(each, self.package) for each in self.schema]
        self._check(table, [column.name for column in columns])
        frame = pd.DataFrame(
            {
                column.name: stored_values(column, table.column(i).combine_chunks(), self.package)
                for i, column in enumerate(columns)
            }
        )
        whole = frame.dtypes.map(lambda dtype: dtype.kind == "f").to_dict()
        try:
            self.package.write_frame(
                frame,
                self.sink.name,
                column_labels=[column.label for column in columns],
                variable_value_labels={c.name: dict(c.codes) for c in columns if c.codes},
                variable_format={
                    c.name: self.package.formats[c.kind]
                    for c in columns
                    if c.kind != "text" and whole[c.name]
                },
                columns=columns,
            )
        except pyreadstat.ReadstatError as error:
            if "write" in str(error).lower():
                raise OSError(errno.EIO, "writing a file of Stata or SPSS") from None
            raise
        self.package.stamp(self.sink)
        self.sink.seek(0, 2)

    def _check(self, table: pa.Table, names: Sequence[str]) -> None:
        """Refuse what would be lost: a config is refused for it before anything is charged."""
        import pyarrow as pa

        lost = ""
        if len({name.casefold() for name in names}) < len(names):
            lost = f"two of its columns would have one name ({', '.join(names)})"
        for name in table.column_names if not lost else ():
            if pa.types.is_string(table.schema.field(name).type):
                faults = (fault_of(v, self.package.form) for v in table[name].unique().to_pylist())
                fault = next((each for each in faults if each), None)
                lost = f"a value of '{name}' would be lost ({fault})" if fault else lost
        if lost:
            raise ConfigError(
                f"The table cannot be written as {self.package.form}: {lost}.",
                where=Path(self.sink.name).name,
                next_step="Choose another format.",
            )


def _read(package: Package, path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file; names are those of the schema as far as it has them."""
    import pyarrow as pa
    import pyreadstat

    read = getattr(pyreadstat, f"read_{package.form}")
    _, stated = read(str(path), metadataonly=True, output_format="dict")
    names: Sequence[str] = stated.column_names
    known = {stored_name(each.name, package.form): each for each in schema or ()}
    kinds = {}
    for name in names:
        text = stated.readstat_variable_types[name].startswith("string")
        shown = stated.original_variable_types.get(name) or ""
        kinds[name] = "text" if text else package.kind_of(shown)
    rows, start = max(1, _READ_VALUES // max(1, len(names))), 0
    while True:
        chunk, _ = read(
            str(path),
            row_offset=start,
            row_limit=rows,
            output_format="dict",
            disable_datetime_conversion=True,
        )
        arrays = {
            known[name].name if name in known else name: read_values(
                chunk[name],
                kinds[name],
                stated.variable_value_labels.get(name, {}),
                known[name].type if name in known else None,
                package,
            )
            for name in names
        }
        batch = pa.record_batch(arrays)
        yield batch
        start += batch.num_rows
        if batch.num_rows < rows:
            break


def _format(package: Package, media_type: str) -> FileFormat:
    return FileFormat(
        open_writer=partial(_Writer, package),
        read_batches=partial(_read, package),
        media_type=media_type,
        labelled=True,
    )


_STAMP, _STATA_TIME = b"<timestamp>\x11", b"01 Jan 1960 00:00"
_PLACE, _SPSS_TIME = 92, b"01 Jan 6000:00:00"
"""Of date and time in the header, of 9 and 8 characters."""


def _write_stata(frame: Any, path: str, *, columns: Any, **words: Any) -> None:
    import pyreadstat

    del columns
    pyreadstat.write_dta(frame, path, version=14, **words)


def _stamp_stata(sink: BinaryIO) -> None:
    with open(sink.name, "rb") as file:
        place = file.read(1 << 12).index(_STAMP) + len(_STAMP)
    sink.seek(place)
    sink.write(_STATA_TIME)


def _write_spss(frame: Any, path: str, *, columns: Any, **words: Any) -> None:
    import pyreadstat

    measures = {column.name: column.measure for column in columns}
    pyreadstat.write_sav(frame, path, row_compress=True, variable_measure=measures, **words)


def _stamp_spss(sink: BinaryIO) -> None:
    sink.seek(_PLACE)
    sink.write(_SPSS_TIME)


STATA = _format(
    Package(
        form="dta",
        formats={
            "whole": "%12.0f",
            "number": "%16.0g",
            "boolean": "%1.0f",
            "category": "%8.0g",
            "day": "%tdCCYY-NN-DD",
        },
        epoch=datetime.date(1960, 1, 1),
        per_day=1,
        first_day=datetime.date(100, 1, 1),
        label_length=80,
        code_length=32_000,
        write_frame=_write_stata,
        stamp=_stamp_stata,
    ),
    "application/x-stata-dta",
)
SPSS = _format(
    Package(
        form="sav",
        formats={
            "whole": "F12.0",
            "number": "F16.6",
            "boolean": "F1.0",
            "category": "F8.0",
            "day": "SDATE10",
        },
        epoch=datetime.date(1582, 10, 14),
        per_day=86_400,
        first_day=datetime.date(1582, 10, 15),
        label_length=250,
        code_length=120,
        write_frame=_write_spss,
        stamp=_stamp_spss,
    ),
    "application/x-spss-sav",
)
