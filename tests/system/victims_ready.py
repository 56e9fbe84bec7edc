"""What the server of processes imports before it forks; nothing here starts a thread."""



import flows.cli  # noqa: F401
import flows.deployed  # noqa: F401
import flows.release  # noqa: F401
import ibis.backends.duckdb  # noqa: F401
import ibis.formats.pyarrow  # noqa: F401
import opendp.prelude  # noqa: F401
import prefect.flow_engine  # noqa: F401
import psycopg  # noqa: F401
import pyarrow.csv  # noqa: F401
import pyarrow.dataset  # noqa: F401
import pyarrow.parquet  # noqa: F401
import randomgen  # noqa: F401
import victims  # noqa: F401



