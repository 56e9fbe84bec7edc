"""The ``source`` and ``resources`` sections: where records lie, and what a run may take.

Records lie in files, or in a table of a server. A config names the variable or file that has the
credentials for a server, and never those: it is published with the bundle.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, LiteralString, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from statpress.configs.declared_columns import Line, Section
from statpress.configs.formats import SourceFormat, check_installed, format_of
from statpress.configs.upload_targets import Endpoint, Region
from statpress.mechanisms.domain.columns import Categorical, Column, Date
from statpress.mechanisms.errors import ConfigError, DependencyError

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_PATTERN = rf"^[0-9]{{1,9}}(\.[0-9]{{1,6}})? ?({'|'.join(_UNITS)})$"


def _amount(text: str) -> str:
    if not re.fullmatch(_PATTERN.strip("^$"), text):
        raise PydanticCustomError(
            "ConfigError", f"must be a number with one of {', '.join(_UNITS)}, such as 4GB"
        )
    return text


Memory = Annotated[
    StrictStr, AfterValidator(_amount), Field(json_schema_extra={"pattern": _PATTERN})
]


class ResourcesConfig(Section):
    """What a run may take of its machine; it is planned for, and kept by every step."""

    memory: Memory | None = Field(
        default=None,
        description="Of the run and its quality process together, such as 4GB. A plan that may "
        "need more is refused before the charge. By default the engine counts in 300 MB and only "
        "records that do not fit into the machine are refused.",
    )
    threads: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="That work at once; by default as many as the process may use processors.",
    )

    @property
    def memory_bytes(self) -> int | None:
        """The memory in bytes, if it is declared."""
        if self.memory is None:
            return None
        unit = self.memory.lstrip("0123456789. ")
        return int(Decimal(self.memory.removesuffix(unit)) * _UNITS[unit])


Delimiter = Literal[",", ";", "\t", "|", ":", " ", "^", "~"]
Thousands = Literal[".", ",", " ", "'", "\u2019", "\u00a0", "\u202f", "_"]
Encoding = Literal[
    "utf-8", "utf-16", "latin-1", "windows-1250", "windows-1251", "windows-1252", "windows-1253",
    "windows-1254", "windows-1257", "iso-8859-2", "iso-8859-5", "iso-8859-7", "iso-8859-9",
    "iso-8859-15", "koi8-r", "mac-roman", "cp437", "cp850", "shift_jis", "euc-jp", "euc-kr",
    "gb18030", "big5",
]  # fmt: skip
_S3_PATTERN = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^?#@]{1,900}"
_OF = {"endpoint": "s3://", "region": "s3://", "version": "a Delta or Iceberg table"}
_DIRECTIVES = frozenset("YymdbBjHIMSfp%")
_PARTS: Mapping[str, tuple[str, ...]] = {
    "year": ("Yy",),
    "month": ("Yy", "mbBj"),
    "day": ("Yy", "mbBj", "dj"),
}
"""What the format of a date must state, by the period that a column is released by."""


def _date_format(text: str) -> str:
    used = re.findall("%(-?.?)", text)
    unknown = [each for each in used if each.removeprefix("-") not in _DIRECTIVES]
    if unknown:
        raise PydanticCustomError(
            "ConfigError",
            "must be of %Y %y %m %d %b %B %j %H %I %M %S %f %p and the text between",
        )
    if not _states(text, "year"):
        raise PydanticCustomError("ConfigError", "must have the year, %Y")
    return text


def _states(form: str, period: str) -> bool:
    """Whether the format of a date says which period it lies in."""
    stated = {each.removeprefix("-") for each in re.findall("%(-?.?)", form)}
    return all(stated & set(choice) for choice in _PARTS[period])


class SourceConfig(Section):
    """Where the confidential records lie, and how a CSV is written."""

    engine: Literal["duckdb"] = Field(default="duckdb", description="What counts the records.")
    path: Line = Field(description="File or glob, relative to the folder of the config.")
    format: SourceFormat | None = Field(
        default=None, description="By default what the suffix says."
    )
    endpoint: Endpoint | None = Field(
        default=None, description="Address of the store of s3://; by default that of AWS."
    )
    region: Region | None = Field(
        default=None, description="Of that store; by default what environment or profile say."
    )
    version: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="Of a Delta table, or the snapshot of an Iceberg one; by default the newest.",
    )
    delimiter: Delimiter = Field(default=",", description="Between the fields of a CSV.")
    encoding: Encoding = Field(default="utf-8", description="Of the text of a CSV.")
    decimal: Literal[".", ","] = Field(default=".", description="Decimal mark of a CSV's numbers.")
    thousands: Thousands | None = Field(
        default=None, description="Between the groups of digits of a CSV's numbers."
    )
    date_format: Annotated[Line, AfterValidator(_date_format)] | None = Field(
        default=None, description="Of a CSV's dates, such as '%d.%m.%Y'; by default ISO 8601."
    )
    null_values: list[Annotated[StrictStr, Field(max_length=100)]] = Field(
        default_factory=list,
        description="Fields of a CSV that stand for no value, as an empty one always does.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        remote, table = self.path.startswith("s3://"), self.form in ("delta", "iceberg")
        allowed = {"engine", "path", "format"}
        allowed |= ({"endpoint", "region"} if remote else set()) | ({"version"} if table else set())
        if "://" in self.path and not re.fullmatch(_S3_PATTERN, self.path):
            raise PydanticCustomError(
                "ConfigError",
                "path must be a file, or s3://bucket/key without user, password or query",
            )
        if remote and not table and self.form != "parquet":
            raise PydanticCustomError("ConfigError", "files in a store must be of Parquet")
        for name in sorted(self.model_fields_set & {"endpoint", "region", "version"} - allowed):
            raise PydanticCustomError("ConfigError", f"'{name}' is for {_OF[name]} only")
        if self.form != "csv":
            for name in sorted(self.model_fields_set - allowed):
                raise PydanticCustomError(
                    "ConfigError", f"'{name}' is for a CSV only; say 'format: csv' if it is one"
                )
        if self.thousands == self.decimal:
            raise PydanticCustomError("ConfigError", "decimal and thousands must differ")
        return self

    @property
    def reader(self) -> str:
        """The module that opens it."""
        arrow = self.path.startswith("s3://") or self.form in ("delta", "iceberg")
        return "arrow" if arrow else self.engine

    @property
    def kind(self) -> str:
        """What it is, in words."""
        place = " in an object store" if self.path.startswith("s3://") else ""
        return f"files ({self.form}){place}"

    @property
    def place(self) -> str:
        """Its public name."""
        return self.path

    @property
    def files(self) -> tuple[str, ...]:
        """The path or glob of its files on this machine."""
        return (self.path,) if self.reader == self.engine else ()

    def check_installed(self, where: str) -> None:
        """See that its files can be read here.

        Raises:
            DependencyError: The extra for them is not installed.
        """
        check_installed(self.form, where)

    @property
    def form(self) -> SourceFormat:
        """The format, as declared or by the suffix."""
        return self.format or format_of(self.path)

    def check_column(self, column: Column) -> None:
        """Refuse what a column declares and no field of the CSV can be.

        Raises:
            ConfigError: Without a place.
        """
        if isinstance(column, Categorical):
            lost = [c for c in column.categories if c in self.null_values]
            if lost:
                raise ConfigError(f"The category '{lost[0]}' is also in source.null_values.")
        form = self.date_format
        if isinstance(column, Date) and form is not None:
            by = "day" if column.special else column.by
            if not _states(form, by):
                raise ConfigError(f"source.date_format '{form}' does not say the {by}.")


_VARIABLE = "^[A-Za-z_][A-Za-z0-9_]{0,99}$"
_PART = r"[^.\"'/:@;=?\x00-\x1f\x7f]{1,63}"
_TABLE = rf"^{_PART}\.{_PART}$"
_PLACE = r"[^@;?#\n]+"
_SPARK_SERVER = r"sc://[^@;?#/\s]+(/(;use_ssl=true)?)?"
_PLACE_WORDS: LiteralString = (
    "must be a place without user, password, token or options; a cluster's credentials are its own"
)


def _checked(pattern: str, words: LiteralString) -> Any:
    """A check of the form; its message never repeats a text that may have a password in it."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("ConfigError", words)
        return text

    return AfterValidator(check)


class Credentials(Section):
    """Where a run finds the address and password of a source."""

    env: (
        Annotated[
            StrictStr,
            Field(max_length=1000, json_schema_extra={"pattern": _VARIABLE}),
            _checked(_VARIABLE, "must be the name of an environment variable, not what it holds"),
        ]
        | None
    ) = Field(default=None, description="Environment variable that holds it.")
    file: (
        Annotated[
            Line,
            _checked(r"^(?!.*://)[^\n]+$", "must be the path of a file, not what it holds"),
        ]
        | None
    ) = Field(
        default=None,
        description="File that holds it, from the folder of the config; of mode 0600.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise PydanticCustomError("ConfigError", "must have exactly one of the keys env, file")
        return self


class PostgresSourceConfig(Section):
    """A table or view of a PostgreSQL database, where the records are counted."""

    engine: Literal["postgres"]
    table: Annotated[
        StrictStr,
        Field(max_length=1000, json_schema_extra={"pattern": _TABLE}),
        _checked(_TABLE, "must be schema.table, letter for letter and without quotes"),
    ] = Field(description="schema.table, letter for letter; a view will do.")
    credentials: Credentials = Field(description="Where the database's URL is found.")
    reader: ClassVar[str] = "postgres"
    kind: ClassVar[str] = "a table of a PostgreSQL database"

    @property
    def place(self) -> str:
        """Its public name."""
        return f"table {self.table}"

    @property
    def files(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    def check_column(self, column: Column) -> None:
        """Every column can be one of a table."""

    def check_installed(self, where: str) -> None:
        """See that the driver is there.

        Raises:
            DependencyError: It is not.
        """
        if importlib.util.find_spec("psycopg") is None:
            raise DependencyError(
                "Counting in PostgreSQL needs the extra 'postgres', which is not installed.",
                where=where,
                next_step="Install it with: pip install 'statpress[postgres]'",
            )


class SparkSourceConfig(Section):
    """Files or a table, counted by Spark on this machine or on a cluster."""

    engine: Literal["spark"]
    path: Annotated[Line, _checked(_PLACE, _PLACE_WORDS)] | None = Field(
        default=None, description="Files or a folder, as Spark names them; or from this folder."
    )
    table: Annotated[Line, _checked(_PLACE, _PLACE_WORDS)] | None = Field(
        default=None, description="A table of the cluster's catalogue, in place of a path."
    )
    format: Literal["parquet", "orc"] = Field(default="parquet", description="Of the files.")
    master: Annotated[Line, _checked(_PLACE, _PLACE_WORDS)] | None = Field(
        default=None, description="Of a cluster, or 'local[2]'; by default this machine."
    )
    remote: Annotated[Line, _checked(_SPARK_SERVER, _PLACE_WORDS)] | None = Field(
        default=None,
        description="sc://host:port of Spark Connect, in place of a master; "
        "with '/;use_ssl=true' by TLS, which a token in SPARK_CONNECT_AUTHENTICATE_TOKEN implies.",
    )
    reader: ClassVar[str] = "spark"
    kind: ClassVar[str] = "records that Spark reads"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.table is None):
            raise PydanticCustomError("ConfigError", "must have exactly one of path and table")
        if self.master is not None and self.remote is not None:
            raise PydanticCustomError("ConfigError", "must not have both master and remote")
        return self

    @property
    def place(self) -> str:
        """Its public name."""
        return self.path or f"table {self.table}"

    @property
    def files(self) -> tuple[str, ...]:
        """The path of its files on this machine."""
        local = (self.path or "").removeprefix("file:")
        return (re.sub("^/{2,}", "/", local),) if local and "://" not in local else ()

    def check_column(self, column: Column) -> None:
        """Every column can be one of a table."""

    def check_installed(self, where: str) -> None:
        """See that Spark is there.

        Raises:
            DependencyError: It is not.
        """
        needed = ("pyspark",) if self.remote is None else ("pyspark", "grpc", "grpc_status")
        if not all(map(importlib.util.find_spec, needed)):
            raise DependencyError(
                "Counting in Spark needs the extra 'spark', which is not installed.",
                where=where,
                next_step="Install it with: pip install 'statpress[spark]'",
            )


ENGINES: dict[str, type[Section]] = {
    "duckdb": SourceConfig,
    "postgres": PostgresSourceConfig,
    "spark": SparkSourceConfig,
}
"""By the key ``engine``."""


def tag_of(engine: str) -> str:
    """What the validator calls a source of an engine; never itself a key of the file."""
    return f"of {engine}"


def _form(value: Any) -> str | None:
    """The engine that a section names, by default DuckDB."""
    if isinstance(value, Section):
        return next((tag_of(key) for key, m in ENGINES.items() if type(value) is m), None)
    named = value.get("engine", "duckdb") if isinstance(value, dict) else "duckdb"
    return tag_of(named) if isinstance(named, str) and named in ENGINES else None


AnySourceConfig = Annotated[
    Annotated[SourceConfig, Tag(tag_of("duckdb"))]
    | Annotated[PostgresSourceConfig, Tag(tag_of("postgres"))]
    | Annotated[SparkSourceConfig, Tag(tag_of("spark"))],
    Discriminator(
        _form,
        custom_error_type="ConfigError",
        custom_error_message=f"must have an engine of {', '.join(ENGINES)}",
    ),
]
