"""Made-up sources of a config's columns, from public facts only, for rehearsals and audits.

**Of a rehearsal** there is one, as large as is declared: every value of a column is as likely as
any other, whatever the other columns have, and no check of the input is failed. Households have as
many persons as are possible by the rules, of a number that is drawn, and are written with them as
two files.

**Of an audit** there are two that differ in one unit. In ``one`` the unit's records all lie in a
cell, in ``other`` all in another one, and the two cells differ in every column of a product that
they can: so the unit moves in every table of its columns, as far as one can. For estimates and
functions those cells are taken, of many that are tried, between which the released numbers move
most. All other records lie elsewhere, so both cells are empty but for the unit.

Where pairs of columns are scored by their distance from independence, the other records make the
values of the first cell common together, and those of the second common but never together: then
the move changes every distance by as much as it can, twice the unit's records.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from statpress.configs.checks import limits
from statpress.configs.loading import Release
from statpress.configs.tables import LINKED_KIND, Tables
from statpress.mechanisms.domain.column import Codes
from statpress.mechanisms.domain.columns import Categorical, Column, Date, Slot
from statpress.mechanisms.domain.contingency_table import ContingencyTable, Counted
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError, OutputNotWritableError
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.sampling.randomness import NoNoise
from statpress.tasks.ledger.entries import canonical
from statpress.tasks.private_zone.run_context import step
from statpress.tasks.products.product_kind import private_input
from statpress.tasks.release import build as bundle
from statpress.tasks.release import quality_gates as quality
from statpress.tasks.release.build import Released
from statpress.tasks.release.entropy import generator_of_made_up, key_of_choice
from statpress.tasks.release.foreseen import check_memory, check_verdicts
from statpress.tasks.release.runs import Run, publish_folder, writing
from statpress.tasks.source.aggregates import Units, units_of
from statpress.tasks.source.engine import Source
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.linked import LinkedSource, joined
from statpress.tasks.source.scanning import counted_of, kept_profile, scan_of

if TYPE_CHECKING:
    import pyarrow as pa


@step("make up source")
def make_up_source(run: Run, release: Release) -> Source:
    """Write a source as the config describes it, into a folder that is removed afterwards."""
    with _making(run.work):
        return make_up(release, run.work)


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    reason = ""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the disk fails"
    if reason:
        raise OutputNotWritableError(
            f"The made-up source cannot be written ({reason}).",
            where=str(folder),
            next_step="Make room there, or name another folder with the variable TMPDIR.",
        )


@step("count once")
def count_made_up(run: Run, release: Release, plan: Plan, source: Source) -> Counted:
    """Profile and count it as a source is, and judge both by the gates of a run."""
    key, scan = key_of_choice(), scan_of(source, release, plan, run.work)
    if plan.gate is None:
        quality.check_source(run.inspector, release, scan.profile, lambda refused: ())
    else:
        quality.check_size(run.inspector, release, scan.profile)
        kept = kept_profile(source, release, scan, folder=run.work, key=key)
        noise = generator_of_made_up()
        quality.check_noisily(run.inspector, release, kept, plan.gate.mechanism, noise)
    counted = counted_of(source, release, plan, scan, folder=run.work, key=key)
    for table in counted.joint:
        quality.check_table(run.inspector, release, table)
    if counted.coded is not None:
        quality.check_coded(run.inspector, release, counted.coded)
    return counted


@step("draw records")
def draw_made_up(run: Run, plan: Plan, counted: Counted) -> dict[str, Any]:
    """Run the mechanisms, each with a generator of its own."""
    return {
        product.name: product.mechanism.release(
            private_input(product, counted), generator_of_made_up(), run.advance
        )
        for product in plan.products
    }


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What a rehearsal leaves behind; public.

    Attributes:
        run_id: Its id, which no ledger knows.
        dataset: The account that a run would charge.
        bundle: Where it lies.
        epsilon: What a run would be charged, as decimal text.
        delta: What a run would be charged.
    """

    run_id: str
    dataset: str
    bundle: Path
    epsilon: str
    delta: str


@step("check plan")
def check_plan(release: Release, plan: Plan) -> list[str]:
    """Refuse what a run would refuse of a plan; returns what else a person should know."""
    check_memory(release, plan)
    return check_verdicts(release, plan)


@step("write bundle")
def write_rehearsal(run: Run, release: Release, plan: Plan, products: Released) -> None:
    """Write all that a bundle has, without a charge."""
    with writing(run, charged=False):
        bundle.write_bundle(run, release, plan, None, {}, products)


@step("seal rehearsal")
def seal_rehearsal(run: Run, release: Release, plan: Plan) -> Rehearsed:
    """Seal it as what it is, unsigned, and move it into place."""
    with writing(run, charged=False):
        bundle.seal_bundle(run, release, None)
        place = publish_folder(run.building, run.target, run.run_id)
    return Rehearsed(
        run_id=run.run_id,
        dataset=release.config.dataset,
        bundle=place,
        epsilon=canonical(plan.epsilon),
        delta=canonical(plan.delta),
    )


def make_up(release: Release, folder: Path) -> FileSource | LinkedSource:
    """Write a source that a config describes, and say where it lies.

    Values are missing as often as the checks allow, if they may be. A unit has between one record
    and as many as are used of it.

    Raises:
        ConfigError: The column that names the unit, or a key, is in the domain too, or hardly any
            record is outside of the structural zeros.
    """
    import pyarrow.parquet as pq

    if release.config.linked is not None:
        return _make_up_households(release, release.config.linked, folder)
    units, privacy = units_of(release), release.privacy
    _check_apart(release, units)
    rng = np.random.default_rng(0)  # known, as all of it is public
    path, schema = folder / "made_up.parquet", _chunk(release, 0, rng).schema
    at_once = max(1, _VALUES // len(release.domain.columns))
    if units is not None:
        import pyarrow as pa

        schema = schema.append(pa.field(units.column, pa.int64()))
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, privacy.n_units, at_once):
            some = np.arange(first, min(first + at_once, privacy.n_units))
            if units is not None:
                some = np.repeat(some, rng.integers(1, units.max_records + 1, len(some)))
            for start in range(0, len(some), at_once):
                named = some[start : start + at_once]
                rows = _chunk(release, len(named), rng)
                if units is not None:
                    rows = rows.append_column(units.column, [named])
                file.write_table(rows)
    return FileSource(str(path), "parquet")


def _make_up_households(release: Release, tables: Tables, folder: Path) -> LinkedSource:
    """Write two files: households of every size, and their persons, who keep the rules."""
    rng, left = np.random.default_rng(0), release.privacy.n_units
    at_once = max(1, _VALUES // len(release.domain.columns))
    sizes = (min(at_once, left - first) for first in range(0, left, at_once))
    chunks = (_codes(release, size, rng) for size in sizes)
    return _write_households(release.domain, tables, folder / "made_up", chunks, rng)


def _write_households(
    domain: Domain,
    tables: Tables,
    place: Path,
    chunks: Iterable[NDArray[np.int64]],
    rng: np.random.Generator,
) -> LinkedSource:
    """Write households of these codes and their persons, as files whose names begin like this."""
    import pyarrow.parquet as pq

    places = _places(domain)
    own = [i for i in range(len(domain.columns)) if i not in places]
    own.remove(domain.names.index(tables.size))
    persons = [slot.of for slot in (domain.columns[i] for i in places[0]) if isinstance(slot, Slot)]
    assert tables.persons.by is not None
    keys = tables.households.key, tables.persons.by, tables.persons.key
    for key, table in zip(keys, (tables.households, tables.persons, tables.persons), strict=True):
        if key in table.domain:
            raise _key_released(f"key '{key}'", "tables")
    paths = [place.with_name(f"{place.name}_{name}.parquet") for name in ("households", "persons")]
    with ExitStack() as stack:
        files: list[Any] = []
        first = 0
        for codes in chunks:
            there = np.arange(len(places)) < _sizes(codes, domain, places)[:, None]
            household, person = np.nonzero(there)
            numbers = first + np.arange(len(codes))
            first += len(codes)
            tabled = (
                _table([domain.columns[i] for i in own], codes[:, own], rng, {keys[0]: numbers}),
                _table(
                    persons,
                    codes[:, places][there],
                    rng,
                    {keys[1]: numbers[household], keys[2]: person},
                ),
            )
            files = files or [
                stack.enter_context(pq.ParquetWriter(path, each.schema))
                for path, each in zip(paths, tabled, strict=True)
            ]
            for file, each in zip(files, tabled, strict=True):
                file.write_table(each)
    return joined(tables, domain, *(FileSource(str(path), "parquet") for path in paths))


def _places(domain: Domain) -> NDArray[np.int64]:
    """int64[places, columns]: positions of the columns of persons; none without households."""
    slots = [i for i, column in enumerate(domain.columns) if isinstance(column, Slot)]
    first = [i for i in slots if getattr(domain.columns[i], "place", 0) == 1]
    return np.array(slots, np.int64).reshape(-1, max(len(first), 1))


def _sizes(codes: Codes, domain: Domain, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many persons every household has."""
    absent = domain.columns[places[0, 0]].size - 1
    found: NDArray[np.int64] = (codes[:, places[:, 0]] != absent).sum(axis=1)
    return found


def _codes(release: Release, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[size, d]: some records, of which none lies in a structural zero or breaks a rule."""
    domain, kept = release.domain, np.empty((0, len(release.domain.columns)), np.int64)
    nobody = [c.size - 1 if isinstance(c, Slot) else 0 for c in domain.columns]
    ends = [c.size if isinstance(c, Slot) else c.n_values for c in domain.columns]
    for _ in range(_ROUNDS):
        if len(kept) >= size:
            break
        drawn = rng.integers(nobody, ends, (max(2 * (size - len(kept)), 64), len(ends)))
        kept = np.concatenate([kept, drawn[~_impossible(domain, drawn)]])[:size]
    if size and not len(kept):
        raise ConfigError(
            "Hardly any record lies outside of the structural zeros; none could be made up.",
            where=release.document.where(("structural_zeros",)),
            next_step="Rehearse a copy of the config without them.",
        )
    kept = np.resize(kept, (size, len(ends)))  # where possible records are rare, those again
    places = _places(domain)
    if places.size:
        _fill(kept, domain, places, rng)
    for place, column in enumerate(domain.columns):
        if column.missing_code is None:
            continue
        most = limits(column, release.config.limits).missing
        nulls = rng.random(size) < 1 / column.size
        if isinstance(column, Slot):
            nulls &= kept[:, place] != column.absent_code
        chosen = np.flatnonzero(nulls)[: math.floor(most * size)]
        nulled = kept[chosen]
        nulled[:, place] = column.missing_code
        possible = ~_impossible(domain, nulled)
        kept[chosen[possible], place] = column.missing_code
    if places.size and release.config.linked is not None:
        _order(kept, domain, places, release.config.linked.persons.order or ())
    return kept


def _fill(
    codes: Codes, domain: Domain, places: NDArray[np.int64], rng: np.random.Generator
) -> None:
    """Draw persons into households without any, place by place, as long as some are possible."""
    wanted = rng.integers(0, len(places) + 1, len(codes))
    ends = [slot.of.n_values for slot in (domain.columns[i] for i in places[0])
            if isinstance(slot, Slot)]  # fmt: skip
    filled = np.zeros(len(codes), np.int64)
    for place, columns in enumerate(places):
        left = np.flatnonzero((wanted > place) & (filled == place))
        for _ in range(_ROUNDS):
            if not len(left):
                break
            tried = codes[left]
            tried[:, columns] = rng.integers(0, ends, (len(left), len(ends)))
            possible = ~_impossible(domain, tried)
            codes[left[possible]] = tried[possible]
            filled[left[possible]] += 1
            left = left[~possible]


def _order(
    codes: Codes, domain: Domain, places: NDArray[np.int64], declared: Sequence[str]
) -> None:
    """Put persons who are there into the declared order; where it breaks a rule, nobody is."""
    names = [c.of.name for c in (domain.columns[i] for i in places[0]) if isinstance(c, Slot)]
    absent = np.array([domain.columns[i].size - 1 for i in places[0]])
    persons = codes[:, places].reshape(-1, len(names))
    persons[persons[:, 0] == absent[0]] = absent
    keys = [persons[:, c] for c in range(len(names))]
    signed = [(each.removeprefix("-"), -1 if each.startswith("-") else 1) for each in declared]
    first = [sign * keys[names.index(name)] for name, sign in signed]
    household = np.repeat(np.arange(len(codes)), len(places))
    ordered = np.lexsort([*reversed([household, persons[:, 0] == absent[0], *first, *keys])])
    codes[:, places] = persons[ordered].reshape(len(codes), *places.shape)
    codes[np.ix_(_impossible(domain, codes), places.ravel())] = np.tile(absent, len(places))
    codes[:, domain.names.index(_size_name(domain))] = _sizes(codes, domain, places)


def _size_name(domain: Domain) -> str:
    return next(c.size_name for c in domain.columns if isinstance(c, Slot))


def _chunk(release: Release, size: int, rng: np.random.Generator) -> pa.Table:
    """Some records, of which none lies in a structural zero."""
    return _table(release.domain.columns, _codes(release, size, rng), rng, {})


def _table(
    columns: Sequence[Column],
    codes: Codes,
    rng: np.random.Generator,
    keys: Mapping[str, NDArray[np.int64]],
) -> pa.Table:
    """Records of these codes, with columns of numbers behind."""
    import pyarrow as pa

    arrays = {}
    for place, column in enumerate(columns):
        own = codes[:, place]
        values = column.spread(own, rng.random(len(own)))
        if isinstance(column, Date):
            values = values.astype("datetime64[D]")
        elif isinstance(column, Categorical):
            values = np.array([*column.categories, None], dtype=object)[
                np.minimum(own, column.n_values)
            ]
        arrays[column.name] = pa.array(values, type=_type(column), mask=column.is_missing(own))
    return pa.table(arrays | {key: pa.array(numbers) for key, numbers in keys.items()})


def _type(column: Column) -> pa.DataType | None:
    """The type of a column's values in Arrow, where an empty array does not say it."""
    import pyarrow as pa

    if not isinstance(column, Categorical):
        return None
    if isinstance(column.categories[0], str):
        return pa.string()
    if isinstance(column.categories[0], bool):
        return pa.bool_()
    whole = all(isinstance(category, int) for category in column.categories)
    return pa.int64() if whole else pa.float64()


def _impossible(domain: Domain, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which records, a row each, lie in a structural zero."""
    return domain.impossible(dict(zip(domain.names, codes.T, strict=True)))


def _check_apart(release: Release, units: Units | None) -> None:
    """Refuse a column that names the unit and is released too."""
    if units is not None and units.column in release.domain.names:
        raise _key_released("column that names the unit", "privacy.unit")


def _key_released(what: str, where: str) -> ConfigError:
    return ConfigError(
        f"The {what} is in the domain too; no such data are made up.",
        where=where,
        next_step="Use a copy of the config without that column.",
    )


Cell = tuple[int, ...]
"""A code for each column of a domain."""

_TRIED, _PAIRS = 4096, 256
_AT_ONCE = 1 << 20
_ROUNDS, _VALUES = 64, 1 << 22


@dataclass(frozen=True)
class Neighbours:
    """Two datasets that differ in one unit.

    Attributes:
        domain: All declared columns.
        cells: Where the unit lies, in ``one`` and in ``other``.
        others: Where the other units lie, with how many lie there.
        unit_records: Records of every unit.
        added: Whether ``other`` lacks the unit.
        tables: Those of households and persons, whose records then are households.
    """

    domain: Domain
    cells: tuple[Cell, Cell]
    others: tuple[tuple[Cell, int], ...]
    unit_records: int
    added: bool = False
    tables: Tables | None = None

    @classmethod
    def of(cls, release: Release, product: PlannedProduct[Any]) -> Neighbours:
        """Those that a product is audited with.

        Raises:
            ConfigError: The product's columns have but one possible cell, or the column that names
                the unit is among those that are declared.
        """
        domain, privacy, units = release.domain, release.privacy, units_of(release)
        tables = release.config.linked
        _check_apart(release, units)
        columns = [domain.names.index(name) for name in product.domain.names]
        possible = _possible(domain) if tables is None else _possible_households(release)
        pair = _farthest(domain, columns, possible, product)
        if all(pair[0][column] == pair[1][column] for column in columns):
            raise ConfigError(
                "The product's columns have but one possible cell, so there is nothing to tell.",
                where=f"products.{product.name}",
                next_step="Leave the product out.",
            )
        left = privacy.n_units - 1
        base = _elsewhere(domain, columns, possible, pair, free=tables is None)
        scored = product.mechanism.needs == "columns"
        order = None if tables is None else tables.persons.order
        places = _dependent(domain, columns, pair, base, order) if scored else [base]
        shares = [left * i // len(places) for i in range(len(places) + 1)]
        others = tuple(
            (place, end - start)
            for place, start, end in zip(places, shares, shares[1:], strict=False)
        )
        added = privacy.adjacency is Adjacency.ADD_REMOVE
        return cls(domain, pair, others, privacy.unit_records, added, tables)

    def write(self, folder: Path, side: int, units: Units | None) -> FileSource | LinkedSource:
        """Write one of the datasets, and where it lies."""
        import pyarrow.parquet as pq

        if self.tables is not None:
            rng, place = np.random.default_rng(0), folder / f"made_up_{side}"
            chunks = (np.tile(np.array(cell), (size, 1)) for cell, size in self._of_side(side))
            return _write_households(self.domain, self.tables, place, chunks, rng)
        path, first = folder / f"made_up_{side}.parquet", 0
        with pq.ParquetWriter(path, self._rows((), 0, 0, units).schema) as file:
            for cell, size in self._of_side(side):
                file.write_table(self._rows((cell,), first, size, units))
                first += size
        return FileSource(str(path), "parquet")

    def _of_side(self, side: int) -> Iterator[tuple[Cell, int]]:
        """Cells of one of the datasets with numbers of units, never very many at once."""
        for cell, number in ((self.cells[side], int(not (side and self.added))), *self.others):
            for start in range(0, number, _AT_ONCE):
                yield cell, min(_AT_ONCE, number - start)

    def _rows(self, cells: Sequence[Cell], first: int, size: int, units: Units | None) -> pa.Table:
        """The records of ``size`` units of one cell, the first with this number."""
        import datetime

        import pyarrow as pa

        repeats, columns = size * self.unit_records, {}
        for place, column in enumerate(self.domain.columns):
            code = np.array([cell[place] for cell in cells] or [0], np.int64)
            value = column.spread(code, np.full(1, 0.5)).tolist()[0]
            if isinstance(column, Date):
                value = datetime.date.fromisoformat(value)
            columns[column.name] = pa.repeat(value, repeats)
        if units is not None:
            numbers = np.repeat(np.arange(first, first + size), self.unit_records)
            columns[units.column] = pa.array(numbers)
        return pa.table(columns)


def _possible_households(release: Release) -> list[Cell]:
    """Some households that keep the rules, those of most persons first."""
    rows = _codes(release, _TRIED, np.random.default_rng(0))
    sizes = _sizes(rows, release.domain, _places(release.domain))
    return [tuple(map(int, row)) for row in rows[np.argsort(-sizes, kind="stable")]]


def _possible(domain: Domain) -> list[Cell]:
    """Some cells of the domain that records can have, those of first and of last values first."""
    rng = np.random.default_rng(0)
    ends = [column.n_values for column in domain.columns]
    codes = rng.integers(0, ends, (_TRIED, len(ends)))
    codes[0], codes[1] = 0, np.array(ends) - 1
    return [tuple(map(int, row)) for row in codes[~_impossible(domain, codes)]]


def _apart(columns: Sequence[int], cell: Cell, other: Cell) -> int:
    """The number of columns in which two cells differ."""
    return sum(cell[column] != other[column] for column in columns)


def _farthest(
    domain: Domain, columns: Sequence[int], possible: Sequence[Cell], product: PlannedProduct[Any]
) -> tuple[Cell, Cell]:
    """The cells between which the unit moves."""
    one = possible[0]
    pairs = [(one, max(possible, key=lambda cell: _apart(columns, one, cell)))]
    evidence = getattr(product.mechanism, "evidence", None)
    if evidence is None or product.kind.name in ("microdata", "table", LINKED_KIND):
        return pairs[0]
    pairs += list(zip(possible[:_PAIRS], possible[_PAIRS : 2 * _PAIRS], strict=False))
    tables = _single(domain, columns, product)

    def told(pair: tuple[Cell, Cell]) -> float:
        """How far apart the released numbers are, without noise."""
        first, second = map(tables, pair)
        of_first = product.mechanism.release(first, NoNoise())
        return float(evidence(first, second)(of_first))

    return max(pairs, key=told)


def _single(
    domain: Domain, columns: Sequence[int], product: PlannedProduct[Any]
) -> Callable[[Cell], ContingencyTable]:
    """Of a cell, the table of a product with all records in it."""

    def table(cell: Cell) -> ContingencyTable:
        codes = {domain.names[c]: np.array([cell[c]], np.int64) for c in columns}
        counts = np.array([product.target.n_records], np.int64)
        return ContingencyTable.from_cells(product.domain, product.domain.encode(codes), counts)

    return table


def _elsewhere(
    domain: Domain,
    columns: Sequence[int],
    possible: Sequence[Cell],
    pair: tuple[Cell, Cell],
    *,
    free: bool,
) -> Cell:
    """A cell that differs from both in as many columns as can be.

    Args:
        domain: All declared columns.
        columns: In which it shall differ.
        possible: Cells to choose from.
        pair: The two cells.
        free: Whether values may be chosen column by column.
    """
    sizes: NDArray[np.int64] = np.array([column.n_values for column in domain.columns])
    others = tuple(
        int(next((c for c in range(size) if c not in (a, b)), a))
        for a, b, size in zip(*pair, sizes, strict=True)
    )
    cells = [cell for cell in possible if cell not in pair]
    if free and _is_possible(domain, others):
        cells.insert(0, others)
    return max(cells, key=lambda cell: min(_apart(columns, cell, each) for each in pair))


def _is_possible(domain: Domain, cell: Cell) -> bool:
    return not _impossible(domain, np.array([cell])).any()


def _dependent(
    domain: Domain,
    columns: Sequence[int],
    pair: tuple[Cell, Cell],
    base: Cell,
    order: Sequence[str] | None,
) -> list[Cell]:
    """Cells that have the first one's values but in one column, and the second one's only there.

    Of households, those that such cells become when their persons stand in this order.
    """
    found = []
    for column in columns:
        for most, less in ((pair[0], base), (base, pair[1])):
            values = list(base)
            for each in columns:
                values[each] = most[each]
            values[column] = less[column]
            found.append(tuple(values))
    if order is not None:
        rows = np.array(found, np.int64)
        _order(rows, domain, _places(domain), order)
        found = [tuple(map(int, row)) for row in rows]
    kept = [cell for cell in found if _is_possible(domain, cell)]
    return kept or [base]
