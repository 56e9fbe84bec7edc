"""The ``source`` section where an engine on a server counts: a table, and where credentials are.

A config names the variable or file that has the credentials, and never those: it is published with
the bundle.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Annotated, Any, ClassVar, Literal, LiteralString, Self

from pydantic import AfterValidator, Discriminator, Field, StrictStr, Tag, model_validator
from pydantic_core import PydanticCustomError

from configs.models.domain import Section
from configs.models.source import SourceConfig
from configs.models.text import Line
from mechanisms.domain.columns import Column
from mechanisms.errors import DependencyError

_VARIABLE = "^[A-Za-z_][A-Za-z0-9_]{0,99}$"
_PART = r"[^.\"'/:@;=?\x00-\x1f\x7f]{1,63}"
_TABLE = rf"^{_PART}\.{_PART}$"
_PLACE = r"[^@;?#\n]+"
_REMOTE = r"sc://[^@;?#/\s]+(/(;use_ssl=true)?)?"
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
    def files(self) -> None:
        """There are none."""
        return

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
    remote: Annotated[Line, _checked(_REMOTE, _PLACE_WORDS)] | None = Field(
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
    def files(self) -> str | None:
        """The path of its files on this machine."""
        return self.path if self.path is not None and "://" not in self.path else None

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
