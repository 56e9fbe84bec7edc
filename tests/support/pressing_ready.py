"""What a release imports, for processes to import before they fork: nothing starts a thread."""

from contextlib import suppress

import ibis.backends.duckdb
import ibis.formats.pyarrow  # noqa: F401
import matplotlib.backends.backend_svg
import matplotlib.figure  # noqa: F401
import numba  # noqa: F401
import opendp.prelude  # noqa: F401
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
import randomgen  # noqa: F401
import scipy.linalg  # noqa: F401
import victims  # noqa: F401

import statpress.flows.cli
import statpress.flows.release  # noqa: F401

with suppress(ModuleNotFoundError):  # of an extra
    import psycopg  # noqa: F401
