"""Objects of an S3-compatible store, and versions of Delta and Iceberg tables.

Credentials are those of the AWS SDK: ``AWS_ACCESS_KEY_ID`` and the like, ``~/.aws``, or the role of
the machine. Only reading and listing are asked for.

A version of such a table never changes, and objects have a tag. Only wanted columns are read, some
row groups at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from statpress.configs.formats import SourceFormat
from statpress.mechanisms.errors import (
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from statpress.tasks.source.engine import Limits, Schema
from statpress.tasks.source.files import FileState, changed

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import fs


_ATTEMPTS = 3
_SECONDS_TO_CONNECT, _SECONDS_OF_SILENCE = 10, 60
_FAULT = re.compile(r"AWS Error ([A-Z_]+)")
_NO_SERVER = re.compile("NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|REQUEST_TIMEOUT|INTERNAL")
_NO_RIGHT = re.compile(
    "DENIED|SIGNATURE|ACCESS_KEY|TOKEN|EXPIRED|UNRECOGNIZED_CLIENT|Forbidden|40[13]|lack "
)


@dataclass(frozen=True)
class ObjectStore:
    """A store, and nothing of its credentials.

    Attributes:
        endpoint: Its address; None for that of AWS.
        region: None for what environment or profile say.
    """

    endpoint: str | None = None
    region: str | None = None

    def system(self, **settings: Any) -> fs.S3FileSystem:
        """The store as a file system; takes more of its settings."""
        from pyarrow import fs

        return fs.S3FileSystem(
            endpoint_override=self.endpoint,
            region=self.region,
            connect_timeout=_SECONDS_TO_CONNECT,
            request_timeout=_SECONDS_OF_SILENCE,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **settings,
        )

    def matching(self, pattern: str) -> list[str]:
        """Keys, with their bucket, of the objects that a pattern matches, in order.

        Args:
            pattern: ``s3://bucket/key``, where ``*`` and ``?`` stand for parts of a name between
                slashes, and ``**`` for any.

        Raises:
            SourceNotFoundError: None does.
        """
        from pyarrow import fs

        key = pattern.removeprefix("s3://")
        known = re.split(r"[*?\[]", key)[0].rpartition("/")[0]
        system = self.system()
        if not re.search(r"[*?\[]", key):
            found = [key] if system.get_file_info(key).is_file else []
        else:
            chosen = fs.FileSelector(known, recursive=True, allow_not_found=True)
            listed = [each.path for each in system.get_file_info(chosen) if each.is_file]
            found = sorted(filter(re.compile(_expression(key)).fullmatch, listed))
        if not found:
            raise SourceNotFoundError("No object matches the source's path.", where=pattern)
        return found

    def states_of(self, keys: Sequence[str]) -> tuple[FileState, ...]:
        """What the store says of objects now: size, tag and time of the last change."""
        system = self.system()
        return tuple(FileState(key, _mark(system, key)) for key in keys)

    def check_unchanged(self, states: Sequence[FileState], where: str) -> None:
        """Raise if an object is another.

        Raises:
            SourceChangedError: One is.
        """
        if states and self.states_of([state.path for state in states]) != tuple(states):
            raise changed(where)


def failure_of(error: Exception, where: str) -> SourceError | None:
    """The error that stands for the store's; None if it is not of the store.

    The words are those of the AWS SDK, by Arrow, and of Rust's ``object_store``, by Delta.
    """
    text = str(error)
    found = _FAULT.search(text)
    if found is None and "Generic S3 error" not in text and "Forbidden" not in text:
        return None
    kind = text if found is None else found[1]
    no_right = _NO_RIGHT.search(kind)
    if _NO_SERVER.search(kind) or (found is None and not no_right):
        return SourceUnavailableError("The store cannot be reached, or fails.", where=where)
    if no_right:
        return SourceAccessError(
            "The store refuses the credentials, or they lack a right.",
            where=where,
            next_step="Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile or role.",
        )
    return None


def _expression(pattern: str) -> str:
    """A pattern of names as a regular expression."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(words.get(part, re.escape(part)) for part in parts)


def _mark(system: fs.S3FileSystem, key: str) -> tuple[object, ...] | None:
    if not system.get_file_info(key).is_file:
        return None
    with system.open_input_file(key) as file:
        said = file.metadata()
        return file.size(), said.get(b"ETag", said.get("ETag")), said.get("Last-Modified")


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
    store: ObjectStore = field(default_factory=ObjectStore)
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
    """The records of a source, of one version or of objects that must not change.

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
