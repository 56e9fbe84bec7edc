"""Records that Arrow reads: objects in a store, and versions of Delta and Iceberg tables.

A version of such a table never changes, and objects have a tag. Only wanted columns are read, some
row groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from configs.models.source_formats import SourceFormat
from tasks.source.column_faults import Schema
from tasks.source.engine import Limits
from tasks.source.file_states import FileState
from tasks.source.object_store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

_ROWS = 1 << 16
"""Of a batch."""
Read = Callable[[Sequence[str]], "pa.RecordBatchReader"]


@dataclass(frozen=True)
class Lake:
    """Where the records are.

    Attributes:
        path: ``s3://`` key or pattern of Parquet objects, or place of a table.
        format: ``parquet``, ``delta`` or ``iceberg``.
        store: Where ``s3://`` leads.
        version: Of a Delta table, or the snapshot of an Iceberg one; None for the newest.
        unit: A column that names the units.
        states: Of the objects, which are then these, and stay as they are.
        limits: Of the engine that reads them.
    """

    path: str
    format: SourceFormat
    store: Store = field(default_factory=Store)
    version: int | None = None
    unit: str | None = None
    states: tuple[FileState, ...] = ()
    limits: Limits = field(default_factory=Limits)
    engine: ClassVar[str] = "arrow"

    @property
    def where(self) -> str:
        """Its public name."""
        return self.path


@dataclass(frozen=True)
class Records:
    """Wanted columns as a stream that can be read again; they are named ``c0``, ``c1``, ...

    Attributes:
        names: Of the columns.
        read: Gives them, in this order.
    """

    names: tuple[str, ...]
    read: Read

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records anew, by Arrow's protocol; the engine casts nothing."""
        del requested_schema
        import pyarrow as pa

        reader = self.read(self.names)
        kinds = [(f"c{i}", kind) for i, kind in enumerate(reader.schema.types)]
        schema = pa.schema(kinds)
        batches = (pa.record_batch(each.columns, schema=schema) for each in reader)
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()


@contextmanager
def held(source: Lake) -> Iterator[Lake]:
    """The same records, of one version or of objects that must not change.

    Raises:
        SourceError: There are none; they changed.
    """
    if source.format == "parquet":
        states = source.store.states_of(source.store.matching(source.path))
        yield replace(source, states=states)
        source.store.check_unchanged(states, source.where)
    elif source.format == "delta":
        yield replace(source, version=_delta(source).version())
    else:
        yield replace(source, version=source.version or _snapshot(source))


def opened(source: Lake) -> tuple[list[Schema], Read]:
    """Names and types of the columns of each file, and what reads some of them."""
    return _OPENED[source.format](source)


def _objects(source: Lake) -> tuple[list[Schema], Read]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    system, form = source.store.system(), ds.ParquetFileFormat()
    keys = [state.path for state in source.states]
    schemas = [form.make_fragment(key, system).physical_schema for key in keys]

    def read(names: Sequence[str]) -> pa.RecordBatchReader:
        wanted = [schemas[0].field(name) for name in names]
        fragments = [form.make_fragment(key, system) for key in keys]
        rows = ds.FileSystemDataset(fragments, pa.schema(wanted), form, system)
        return _scanned(rows, names)

    return [_columns(schema) for schema in schemas], read


def _delta(source: Lake) -> Any:
    from deltalake import DeltaTable

    options = {}
    if source.store.endpoint is not None:
        options = {"AWS_ENDPOINT_URL": source.store.endpoint, "AWS_ALLOW_HTTP": "true"}
    if source.store.region is not None:
        options["AWS_REGION"] = source.store.region
    return DeltaTable(source.path, version=source.version, storage_options=options)


def _delta_records(source: Lake) -> tuple[list[Schema], Read]:
    from pyarrow import fs

    system = None
    if source.path.startswith("s3://"):
        system = fs.SubTreeFileSystem(source.path.removeprefix("s3://"), source.store.system())

    table = _delta(source)

    def rows() -> ds.Dataset:
        return table.to_pyarrow_dataset(filesystem=system)  # with new fragments

    return [_columns(rows().schema)], lambda names: _scanned(rows(), names)


def _iceberg(source: Lake) -> Any:
    from pyiceberg.table import StaticTable

    said = {"s3.endpoint": source.store.endpoint, "s3.region": source.store.region}
    known = {key: value for key, value in said.items() if value is not None}
    return StaticTable.from_metadata(source.path, properties=known)


def _snapshot(source: Lake) -> int | None:
    found = _iceberg(source).current_snapshot()
    return None if found is None else int(found.snapshot_id)


def _iceberg_records(source: Lake) -> tuple[list[Schema], Read]:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    table = _iceberg(source)
    scanned = table.scan(snapshot_id=source.version)
    schema = schema_to_pyarrow(scanned.projection())

    def read(names: Sequence[str]) -> pa.RecordBatchReader:
        import pyarrow as pa

        chosen = table.scan(snapshot_id=source.version, selected_fields=tuple(names))
        reader = chosen.to_arrow_batch_reader()
        kept = pa.schema([reader.schema.field(name) for name in names])
        batches = (each.select(list(names)) for each in reader)
        return pa.RecordBatchReader.from_batches(kept, batches)

    return [_columns(schema)], read


def _scanned(rows: ds.Dataset, names: Sequence[str]) -> pa.RecordBatchReader:
    """Columns of a dataset that nothing else reads.

    Fragments that forget what they know of their file must be of one scan: Arrow ends the process
    where another, perhaps given up and still at work, sets what this one clears.
    """
    scanner = rows.scanner(
        columns=list(names), batch_size=_ROWS, batch_readahead=2, fragment_readahead=1,
        cache_metadata=False,
    )  # fmt: skip
    return scanner.to_reader()


def _columns(schema: pa.Schema) -> Schema:
    return [(column.name, str(column.type)) for column in schema]


_OPENED: dict[str, Callable[[Lake], tuple[list[Schema], Read]]] = {
    "parquet": _objects,
    "delta": _delta_records,
    "iceberg": _iceberg_records,
}
