"""What the server of processes imports before it forks; nothing here starts a thread."""

import ibis.backends.duckdb
import ibis.formats.pyarrow  # noqa: F401
import opendp.prelude  # noqa: F401
import prefect.cli.deploy
import prefect.flow_engine  # noqa: F401
import psycopg  # noqa: F401
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
import randomgen  # noqa: F401
import victims  # noqa: F401

import statpress.flows.cli
import statpress.flows.deployed
import statpress.flows.release  # noqa: F401
