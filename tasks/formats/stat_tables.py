"""Writing tables for Stata and SPSS whole, and reading them back in parts.

The library writes a data frame at once, so a table is gathered in memory: what may be too large is
refused before anything is charged (``MOST_VALUES``). It puts the time of writing into a file, which
is overwritten, so that the same rows give the same bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from configs.models.stat_names import fault_of, stored_name
from mechanisms.errors import ConfigError
from tasks.formats.stat_columns import Package, read_values, stored_column, stored_values

if TYPE_CHECKING:
    import pyarrow as pa

MOST_VALUES = 25_000_000
"""Of a product: some 1 GB of memory, and a quarter of a minute."""
_READ_VALUES = 1 << 21
"""Values that are read at once."""


@dataclass
class StatWriter:
    """Gathers the rows of a file, and writes them when it is closed.

    Attributes:
        package: Whose file it is.
        write_frame: Writes a data frame to a path.
        stamp: Takes the time of writing out of the file.
        sink: The open file.
        schema: Of its rows.
    """

    package: Package
    write_frame: Callable[..., None]
    stamp: Callable[[BinaryIO], None]
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
            self.write_frame(
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
        self.stamp(self.sink)
        self.sink.seek(0, 2)

    def _check(self, table: pa.Table, names: Sequence[str]) -> None:
        """Refuse what would be lost: a config is refused for it before anything is charged.

        Raises:
            ConfigError: Two columns would have one name, or a text would not come back.
        """
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


def read_stat(
    read: Callable[..., Any], package: Package, path: Path, schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file; names are those of the schema as far as it has them."""
    import pyarrow as pa

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
