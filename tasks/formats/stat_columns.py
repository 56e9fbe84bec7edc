"""How columns stand in files of Stata and SPSS, and are read back from there.

Declared text categories are numbered from 1 and have value labels, as statisticians expect:
the value itself, or ``value = label`` where the config labels it. Days are dates of the package.
Other text stays text. The display format says which a column is, so that a file can be read back
without anything else:

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
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.models.stat_names import stored_name

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
    """

    form: str
    formats: Mapping[str, str]
    epoch: datetime.date
    per_day: int
    first_day: datetime.date
    label_length: int
    code_length: int

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
    return days and str(declared["first"]) >= package.first_day.isoformat()


def _value_labels(said: Mapping[str, Any]) -> dict[int, str]:
    """Of whole numbers and booleans, as far as the config labels them; no two are the same."""
    listed = [each for each in said.get("categories", ()) if each["value"] % 1 == 0]
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
