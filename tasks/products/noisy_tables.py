"""The noisy tables behind microdata by marginals and behind tables of places, read back.

Those behind microdata are rows of one file, which is written here too: a row is a cell of a table;
tables follow each other in the order of the privacy statement, the cells of each with the code of
its last column running fastest. They are read back with neither data nor ledger at hand.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.configs import formats
from statpress.mechanisms.domain.columns import Categorical, labels
from statpress.mechanisms.domain.contingency_table import Numbers
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.prior import Prior
from statpress.mechanisms.marginals.residuals import (
    GRID,
    NoisyMarginals,
    NoisyScores,
    NoisyTable,
    Residuals,
    table_with_errors,
)
from statpress.mechanisms.marginals.weighted_sums import Weights
from statpress.mechanisms.places.estimates import AT_ONCE
from statpress.mechanisms.places.outlines import Outlines, is_path
from statpress.mechanisms.places.place_tables import MeasuredTable, NoisyPlaces
from statpress.mechanisms.places.tree import Geography, Tree
from statpress.tasks.bundle.file_formats import read_batches, read_rows, written_file
from statpress.tasks.bundle.manifest import understood
from statpress.tasks.bundle.rows import Rows
from statpress.tasks.products.publication import DataTable, Field, column_from, described, zero_from

Floats = NDArray[np.float64]


_ROWS = 1 << 16
_FIGURES = {
    "raw": (
        "integer",
        f"Noisy count as it was drawn, in steps of 1/{GRID} of a record; may be negative.",
    ),
    "noisy_count": ("number", "The same in records."),
    "estimate": (
        "number",
        "Unbiased estimate of the count from all tables together; may be negative.",
    ),
    "standard_error": ("number", "Of the estimate: the noise, without the sampling of records."),
}


def fields(width: int) -> list[Field]:
    """Columns of the file where the largest table is of so many columns."""
    return _cell_fields(width) + described(_FIGURES)


def _cell_fields(width: int) -> list[Field]:
    return [
        {"name": name, "type": "string", "description": words}
        for place in range(1, width + 1)
        for name, words in (
            (f"column_{place}", f"Name of column {place} of the table; null if it has fewer."),
            (f"value_{place}", f"The cell's value of column_{place}; null stands for missing."),
        )
    ]


def drawn_tables(release: NoisyMarginals) -> tuple[NoisyTable, ...]:
    """All tables that noise was drawn for, in the order in which they are written."""
    return (*release.one_way, *release.tables)


def table_rows(release: NoisyMarginals, residuals: Residuals, most: int) -> Rows:
    """All cells of all tables of at most so many columns."""
    import pyarrow as pa

    text = [
        pa.field(f"{part}_{place}", pa.string())
        for place in range(1, most + 1)
        for part in ("column", "value")
    ]
    numbers = [
        pa.field(name, pa.int64() if kind == "integer" else pa.float64(), nullable=False)
        for name, (kind, _) in _FIGURES.items()
    ]
    return Rows(pa.schema([*text, *numbers]), lambda: _batches(release, residuals, most))


def read_tables(
    path: Path, groups: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> list[NDArray[np.int64]]:
    """The noisy counts of tables in grid steps, each of the shape of its columns.

    Raises:
        ValueError: The file does not hold them.
    """
    raw = np.concatenate([np.zeros(0, np.int64), *map(_raw, read_batches(path, None))])
    shapes = [tuple(sizes[column] for column in group) for group in groups]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    if len(raw) != (ends[-1] if len(ends) else 0):
        raise ValueError("the tables do not have as many cells as their columns say")
    # The part after the last end is empty; without any table it is the only one.
    return [
        part.reshape(shape) for part, shape in zip(np.split(raw, ends)[:-1], shapes, strict=True)
    ]


def _raw(rows: Any) -> NDArray[np.int64]:
    """The noisy counts of a batch or table of Arrow."""
    import pyarrow as pa

    if "raw" not in rows.schema.names or rows.column("raw").type != pa.int64():
        raise ValueError("the column 'raw' is missing or of another type")
    if rows.column("raw").null_count:
        raise ValueError("the column 'raw' has nulls")
    return np.asarray(rows.column("raw").to_numpy(zero_copy_only=False))


def written_counts(path: Path, shape: tuple[int, ...], at_once: int = AT_ONCE) -> Numbers:
    """Return the noisy counts of one table in grid steps; a large one stays in its Parquet file.

    Raises:
        ValueError: The file does not hold them.
    """
    if math.prod(shape) <= at_once or path.suffix != ".parquet":
        (table,) = read_tables(path, [tuple(range(len(shape)))], shape)
        return table
    import pyarrow.parquet

    metadata = pyarrow.parquet.read_metadata(path)
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if metadata.num_rows != math.prod(shape):
        raise ValueError("the table does not have as many cells as its columns say")
    return _WrittenCounts(path, shape, tuple(np.cumsum([0, *rows]).tolist()))


@dataclass(frozen=True)
class _WrittenCounts:
    """The noisy counts of a table in a Parquet file.

    Attributes:
        path: Of the file.
        shape: Of the table.
        starts: Where its row groups begin, and the number of its rows.
    """

    path: Path
    shape: tuple[int, ...]
    starts: tuple[int, ...]

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        import pyarrow.parquet

        cells = math.prod(self.shape[1:])
        first, last, _ = (each * cells for each in rows.indices(self.shape[0]))
        groups = range(
            bisect.bisect_right(self.starts, first) - 1, bisect.bisect_left(self.starts, last)
        )
        with pyarrow.parquet.ParquetFile(self.path) as file:
            found = _raw(file.read_row_groups(groups, columns=["raw"]))
        start = self.starts[groups.start]
        return found[first - start : last - start].reshape(-1, *self.shape[1:])

    def __setitem__(self, rows: slice, values: NDArray[Any]) -> None:
        raise TypeError("what was published is not changed")


def raw_digest(release: NoisyMarginals) -> str:
    """SHA-256 of all that was drawn: tables, then scores, as little-endian int64."""
    digest = hashlib.sha256()
    for table in drawn_tables(release):
        digest.update(table.values.astype("<i8").tobytes())
    if release.scores is not None:
        digest.update(release.scores.values.astype("<i8").tobytes())
    return digest.hexdigest()


def _batches(release: NoisyMarginals, residuals: Residuals, most: int) -> Iterator[list[Any]]:
    """Arrow arrays of the rows of several tables, of some tens of thousands of rows each."""
    import pyarrow as pa

    gathered: list[list[Any]] = []
    for table in drawn_tables(release):
        gathered.append(_rows(release.domain, table, residuals, most))
        if sum(len(arrays[0]) for arrays in gathered) >= _ROWS:
            yield [pa.concat_arrays(parts) for parts in zip(*gathered, strict=True)]
            gathered = []
    if gathered:
        yield [pa.concat_arrays(parts) for parts in zip(*gathered, strict=True)]


def _rows(domain: Domain, table: NoisyTable, residuals: Residuals, most: int) -> list[Any]:
    """Arrow arrays of one table's rows."""
    import pyarrow as pa

    estimates, error = table_with_errors(residuals, table.group)
    return [
        *_cells(domain, table.group, table.values.shape, most),
        pa.array(table.values.ravel()),
        pa.array(table.counts.ravel()),
        pa.array(estimates.ravel()),
        pa.repeat(pa.scalar(error), table.values.size),
    ]


def _cells(domain: Domain, group: Sequence[int], sizes: Sequence[int], most: int) -> list[Any]:
    """Arrow arrays of the columns and values of all cells of a table."""
    import pyarrow as pa

    n = math.prod(sizes)
    arrays: list[Any] = []
    for place in range(most):
        if place >= len(group):
            arrays += [pa.nulls(n, pa.string())] * 2
            continue
        shape = [1] * len(group)
        shape[place] = sizes[place]
        codes = np.broadcast_to(np.arange(sizes[place]).reshape(shape), sizes)
        arrays.append(pa.repeat(pa.scalar(domain.columns[group[place]].name), n))
        arrays.append(_labels(domain, group[place]).take(pa.array(codes.ravel())))
    return arrays


@functools.lru_cache(maxsize=256)
def _labels(domain: Domain, position: int) -> Any:
    """The public values of a column as Arrow strings, null where one is missing."""
    import pyarrow as pa

    return pa.array(labels(domain.columns[position]), pa.string())


@contextmanager
def _tables_understood(folder: Path, name: str, stated: Mapping[str, Any]) -> Iterator[None]:
    with understood(folder):
        if stated["grid"] != GRID:
            raise ValueError(f"the tables of the product '{name}' are on another grid")
        yield


def published_marginals(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> NoisyMarginals:
    """All noisy tables of a product and its prior, without the scores of pairs.

    For arguments see ``ProductKind.part``; there may be resources of other products.

    Raises:
        BundleVerificationError: The files are not what the bundle says of them.
    """
    with _tables_understood(folder, name, stated):
        if "record" in stated:  # of households with their persons, which no file has
            declared = stated["record"]
        else:
            paths = {f"data/{name}.{suffix}" for suffix in formats.FORMATS}
            described = next(each for each in resources if each["path"] in paths)
            declared = [
                field["declared"]
                for field in described["schema"]["fields"]
                # and neither the weight of a record nor its place, which is not measured here
                if "declared" in field and field["name"] in stated["columns"]
            ]
        columns = tuple(map(column_from, declared))
        zeros = tuple(zero_from(sets) for sets in stated["structural_zeros"])
        domain = Domain(columns, zeros, stated["absent_records"])
        if list(domain.names) != stated["columns"]:
            raise ValueError(f"the columns of the product '{name}' are described in two ways")
        sizes = [column.size for column in columns]

        def group_of(names: Sequence[str]) -> tuple[int, ...]:
            return tuple(domain.names.index(each) for each in names)

        groups = [group_of(each["columns"]) for each in stated["tables"]]
        path = written_file(folder, f"{name}_tables")
        if path is None:
            raise ValueError(f"there is no file data/{name}_tables")
        values = read_tables(path, groups, sizes)
        tables = [
            NoisyTable(group, Fraction(each["scale"]), noisy)
            for group, each, noisy in zip(groups, stated["tables"], values, strict=True)
        ]
        known = {}
        for each in stated["known"]:
            group = group_of(each["columns"])
            counts = np.array(each["counts"], dtype=np.int64)
            known[group] = counts.reshape([sizes[column] for column in group])
        return NoisyMarginals(
            domain,
            None if "adjacency" in stated else stated["n_records"],
            tuple(table for table in tables if len(table.group) == 1),
            None,
            tuple(table for table in tables if len(table.group) > 1),
            known,
            prior=_read_prior(folder, name, stated, sizes, group_of) if "prior" in stated else None,
        )


def with_scores(
    release: NoisyMarginals, folder: Path, name: str, stated: Mapping[str, Any]
) -> NoisyMarginals:
    """A published release with the scores of its pairs, if they were scored.

    Raises:
        BundleVerificationError: The files are not what the bundle says of them.
    """
    with understood(folder):
        path = written_file(folder, f"{name}_pairs")
        if stated["score_scale"] is None or path is None:
            return release
        names, scores = release.domain.names, {}
        for row in read_rows(path):
            if row["score_raw"] is not None:
                pair = (names.index(row["column_1"]), names.index(row["column_2"]))
                scores[min(pair), max(pair)] = int(row["score_raw"])
        values = np.array(list(scores.values()), dtype=np.int64)
        drawn = NoisyScores(tuple(scores), Fraction(stated["score_scale"]), values)
        return replace(release, scores=drawn)


_OF_PRIOR = {
    "share": ("number", "Of the cell in the earlier release, as its records were fitted."),
    "variance": ("number", "Of the noise of the share; null for pairs."),
}


def prior_table(name: str, domain: Domain, planned: Prior, used: Prior | None = None) -> DataTable:
    """The file of what an earlier release said: a row for each cell of its columns and pairs.

    Args:
        name: Of the product.
        domain: Its columns.
        planned: All that may be used.
        used: What was, once it is drawn.
    """
    import pyarrow as pa

    about = DataTable(
        stem=f"{name}_prior",
        fields=[*_cell_fields(2), *described(_OF_PRIOR)],
        title="what an earlier release said",
        description="Used to fit the records, and in no estimate or interval.",
        most_rows=planned.cells,
    )
    if used is None:
        return about
    text = [(f"{part}_{place}", pa.string()) for place in (1, 2) for part in ("column", "value")]
    schema = pa.schema([*text, *((figure, pa.float64()) for figure in _OF_PRIOR)])

    def batches() -> Iterator[list[Any]]:
        for column, shares in enumerate(used.one_way):
            variances = np.full(len(shares), used.variances[column])
            yield [*_cells(domain, (column,), shares.shape, 2), *map(pa.array, (shares, variances))]
        for pair, table in used.pairs.items():
            cells = _cells(domain, pair, table.shape, 2)
            yield [*cells, pa.array(table.ravel()), pa.nulls(table.size, pa.float64())]

    return replace(about, expected=used.cells, rows=Rows(schema, batches))


def _read_prior(
    folder: Path,
    name: str,
    stated: Mapping[str, Any],
    sizes: Sequence[int],
    group_of: Callable[[Sequence[str]], tuple[int, ...]],
) -> Prior:
    """What ``prior_table`` wrote."""
    path = written_file(folder, f"{name}_prior")
    if path is None:
        raise ValueError(f"there is no file data/{name}_prior")
    figures = [
        np.stack([batch.column(each).to_numpy(zero_copy_only=False) for each in _OF_PRIOR])
        for batch in read_batches(path, None)
    ]
    shares, variances = np.concatenate(figures, axis=1).astype(np.float64)
    groups = [*((column,) for column in range(len(sizes))), *map(group_of, stated["prior_pairs"])]
    shapes = [tuple(sizes[column] for column in group) for group in groups]
    starts = np.cumsum([0, *map(math.prod, shapes)])
    if len(shares) != starts[-1] or not (np.isfinite(shares).all() and shares.min() >= 0):
        raise ValueError(f"the file data/{name}_prior does not have a share for each cell")
    noise = variances[starts[: len(sizes)]]
    if not (np.isfinite(noise).all() and noise.min(initial=0) >= 0):
        raise ValueError(f"the file data/{name}_prior does not have variances")
    parts = np.split(shares, starts[1:-1])
    tables = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    return Prior(
        seal=stated["prior"],
        one_way=tuple(tables[: len(sizes)]),
        variances=tuple(noise.tolist()),
        pairs=dict(zip(groups[len(sizes) :], tables[len(sizes) :], strict=True)),
    )


def weights_of(stated: Mapping[str, Any], domain: Domain, residuals: Residuals) -> Weights:
    """The survey weights of a product, by what ``privacy.json`` says of them and its tables."""

    def place(name: str | None) -> int | None:
        return None if name is None else domain.names.index(name)

    calibrated = [sum(totals) for totals in stated["calibrated"].values()]
    return Weights(
        residuals=residuals,
        column=domain.names.index(stated["column"]),
        values=np.array(stated["values"]),
        strata=place(stated["strata"]),
        cluster=place(stated["cluster"]),
        total=calibrated[0] if calibrated else None,
    )


def published_places(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> NoisyPlaces:
    """All noisy tables of places; for arguments see ``published_marginals``.

    Raises:
        BundleVerificationError: The files are not what the bundle says of them.
    """
    with _tables_understood(folder, name, stated):
        geography = _read_geography(folder, name, stated["geography"])
        declared = {
            field["name"]: field["declared"]
            for resource in resources
            for field in resource.get("schema", {}).get("fields", ())
            if "declared" in field
        }
        return _read(folder, name, stated, geography, declared)


def _read_geography(folder: Path, name: str, stated: Mapping[str, Any]) -> Geography:
    path = written_file(folder, f"{name}_places")
    if path is None:
        raise ValueError(f"there is no file data/{name}_places")
    levels = tuple(stated["levels"])
    read: dict[str, dict[str, list[Any]]] = {level: {} for level in levels}
    for batch in read_batches(path, None):
        values = {key: batch.column(key).to_pylist() for key in batch.schema.names}
        for level, own in itertools.groupby(range(batch.num_rows), values["level"].__getitem__):
            rows = list(own)
            for key, column in values.items():
                read[level].setdefault(key, []).extend(column[rows[0] : rows[-1] + 1])
    codes = [read[level]["place"] for level in levels]
    within = [dict(zip(read[k]["place"], read[k]["within"], strict=True)) for k in levels[1:]]
    sizes = read[levels[-1]]["size"]
    return Geography(
        column=stated["column"],
        tree=Tree.of(levels, codes, within),
        leaves=np.arange(len(codes[-1])),
        names=tuple(tuple(read[level]["name"]) for level in levels),
        sizes=None if None in sizes else np.array(sizes, dtype=np.float64),
        exact=bool(stated["known_totals"]),
        outlines=_read_outlines([read[level] for level in levels]),
    )


def _read_outlines(read: Sequence[Mapping[str, Sequence[Any]]]) -> Outlines | None:
    for level, own in enumerate(read):
        paths = tuple(path or "" for path in own.get("outline", ()))
        if any(paths):
            if not all(map(is_path, paths)):
                raise ValueError("an outline is not a path")
            return Outlines(level, paths, tuple(label or "" for label in own["label"]))
    return None


def _read(
    folder: Path,
    name: str,
    stated: Mapping[str, Any],
    geography: Geography,
    declared: Mapping[str, Any],
) -> NoisyPlaces:
    levels = geography.tree.levels
    places = Categorical(name=geography.column, categories=geography.tree.codes[-1])
    columns = [
        places if each == geography.column else column_from(declared[each])
        for each in stated["columns"]
    ]
    domain = Domain(tuple(columns), absent=stated["absent_records"])
    tables, scales, values = [], {}, []
    for each in stated["tables"]:
        group = tuple(domain.names.index(column) for column in each["columns"])
        level = levels.index(each["level"])
        tables.append(MeasuredTable(level, group, Fraction(each["share"])))
        scales[group] = {int(mask): Fraction(scale) for mask, scale in each["scales"].items()}
        path = written_file(folder, each["file"])
        if path is None:
            raise ValueError(f"there is no file data/{each['file']}")
        sizes = (geography.tree.sizes[level], *(domain.columns[c].size for c in group))
        values.append(written_counts(path, sizes))
    exact = "adjacency" not in stated and not stated["absent_records"]
    return NoisyPlaces(
        domain, geography, tuple(tables), scales, tuple(values),
        stated["n_records"] if exact else None,
    )  # fmt: skip
