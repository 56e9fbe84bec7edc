"""Tables of every place of a geography, from a nation to its districts, that are read together.

Each level has tables of some groups of columns in each of its places. All get discrete Gaussian
noise on a fine grid (mechanisms.sampling.randomness), and are combined by least squares over places
and columns at once (mechanisms.places.estimates).

**What it costs.** A table of one group in all places of one level, to which mu^2 gives the amount
B, has in a place and a cell noise of variance c^2 m/B for units of c records, with m = 2 under
replace-one and m = 1 under add-remove. The whole is mu-GDP if the amounts add up to mu^2 at most;
the proof is Theorem 12.1 of mechanisms/README.md.

**Only children.** A place with one place in it is the same place at both levels, and so are its
tables. They are measured once, with the amounts of all their levels together.

**Amounts.** A config may declare the share of each level. Else it is found by expected relative
errors: with s records in a place and k cells in the table, an average cell's is sqrt(c^2 m/B) over
max(s/k, 1), and the sum over tables of its mean over places is least where B goes with the power
2/3 of the mean of 1/max(s/k, 1). Sizes of places are the public ones, or where none are known every
place of the last level is as large. As that forgets levels of few places, whose errors are small
anyway, no level gets less than a fifth of an equal share before all are scaled to add up to 1.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.domain.contingency_table import CodedColumns, Numbers, Room, in_memory
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import (
    ConfigError,
    DomainTooLargeError,
    InfeasibleBudgetError,
    RecordsError,
)
from statpress.mechanisms.marginals.measurement import GdpFilter, table_sensitivity_squared
from statpress.mechanisms.marginals.residuals import GRID, MOST_RECORDS, scale_of
from statpress.mechanisms.marginals.target_tables import Floats, Group, Integers
from statpress.mechanisms.mechanism import (
    DONG_ROTH_SU,
    HAY,
    PROOF,
    Citation,
    Kind,
    Needs,
    Target,
    check_frame,
)
from statpress.mechanisms.places.estimates import AT_ONCE, LevelTable, PlaceEstimates, blocks_of
from statpress.mechanisms.places.readable import read_tables, readable
from statpress.mechanisms.places.tree import Blocks, Geography, Places, Tree
from statpress.mechanisms.postprocessing.covariance import EstimatedTotal
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    equivalent_variance,
    of_noise,
)
from statpress.mechanisms.tables.count_tables import TABLE

MOST_CELLS = 50_000_000
"""Of the tables that are worked on at once: 400 MB of noisy counts."""
_LEAST_LEVEL = 0.2  # of an equal share
_USABLE = 0.5  # of a count, its standard error
_DIGITS = 10**6
_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


@dataclass(frozen=True, kw_only=True)
class PlaceTablesKnobs:
    """What a config may say about this mechanism.

    Attributes:
        at: By level the groups of columns whose tables each of its places has; or a list of levels
            whose places have one table of all columns.
        level_shares: Of the product's budget, by level; by default by expected relative errors.
        geography: The column of places; by default the only one that the config declares.
    """

    at: dict[str, list[list[str]]] | list[str] | None = None
    level_shares: dict[str, Fraction] | None = None
    geography: Geography | None = None

    @property
    def columns_beside(self) -> tuple[str, ...]:
        """The column of places, which a product does not name."""
        return () if self.geography is None else (self.geography.column,)


@dataclass(frozen=True)
class MeasuredTable:
    """A table of one group of columns in every place of a level, as it is to be measured.

    Attributes:
        level: Of the tree, 0 for the root.
        group: Ascending positions of the columns among those of the product; may be empty.
        share: Of mu^2.
    """

    level: int
    group: Group
    share: Fraction


@dataclass(frozen=True, eq=False)
class Merged:
    """Which tables of one group are the same, since a place is an only child.

    Attributes:
        levels: That have a table of the group, ascending.
        above: By level but the first int64[n]: the place of the level before in ``levels``.
        same: By level but the first bool[n]: whether it is that place once more.
        measured: By level int64[n]: bit i is set if the amount of level i of ``levels`` goes to
            the place's measurement; 0 where it is measured at a level before.
    """

    levels: tuple[int, ...]
    above: tuple[Places, ...]
    same: tuple[NDArray[np.bool_], ...]
    measured: tuple[Places, ...]

    @classmethod
    def of(cls, tree: Tree, levels: Sequence[int]) -> Self:
        """By the public tree only."""
        above, same = [], []
        for before, level in itertools.pairwise(levels):
            place = np.arange(tree.sizes[level])
            only = np.ones(len(place), dtype=bool)
            for step in range(level, before, -1):
                parents = tree.parents[step - 1]
                only &= (np.bincount(parents) == 1)[parents[place]]
                place = parents[place]
            above.append(place)
            same.append(only)
        measured = [np.full(tree.sizes[level], 1 << i) for i, level in enumerate(levels)]
        for i in range(len(levels) - 1, 0, -1):
            only = same[i - 1]
            measured[i - 1][above[i - 1][only]] |= measured[i][only]
            measured[i][only] = 0
        return cls(tuple(levels), tuple(above), tuple(same), tuple(measured))

    def carry(self, values: Sequence[Numbers], at_once: int) -> None:
        """Complete by level what was measured, with each only child as the place that it is.

        Args:
            values: int64[n, *cells].
            at_once: Places that are in memory together.
        """
        for i, (above, same) in enumerate(zip(self.above, self.same, strict=True), start=1):
            for first in range(0, len(same) if same.any() else 0, at_once):
                rows = slice(first, first + at_once)
                own, parents, only = values[i][rows], above[rows], same[rows]
                upper = values[i - 1][parents[0] : parents[-1] + 1]
                own[only] = upper[parents[only] - parents[0]]
                values[i][rows] = own

    def paths(self) -> set[tuple[int, ...]]:
        """For each way down the tree what a record's place is measured with, by level."""
        masks = self.measured[0][:, None]
        for above, own in zip(self.above, self.measured[1:], strict=True):
            masks = np.column_stack([masks[above], own])
        return set(map(tuple, np.unique(masks, axis=0).tolist()))


@dataclass(frozen=True, eq=False)
class NoisyPlaces:
    """Noisy tables of all places as they were drawn; public.

    Attributes:
        domain: The product's columns, that of places among them.
        geography: The places.
        tables: What was measured.
        scales: By table the discrete Gaussian's scale in grid steps, by bits of ``Merged``.
        values: By table int64[n, *cells]: grid steps; of an only child those of the place that
            it is.
        n_records: Public number of records; None where it is private.
        room: Where large arrays that follow go.
    """

    domain: Domain
    geography: Geography
    tables: tuple[MeasuredTable, ...]
    scales: Mapping[Group, Mapping[int, Fraction]]
    values: tuple[Numbers, ...]
    n_records: int | None
    room: Room = in_memory

    def estimates(self, at_once: int = AT_ONCE) -> PlaceEstimates:
        """All tables combined, in blocks of at most so many cells."""
        return combined(
            self.geography, sizes_of(self.domain, self.geography), self.tables, self.scales,
            self.n_records, self.values, at_once,
        )  # fmt: skip

    def whole_numbers(self, estimates: PlaceEstimates) -> list[Numbers | None]:
        """By table whole numbers that are not negative and add up, from the estimates.

        Returns:
            int64[n, *cells]; None for a table that cannot be read with the others.
        """
        totals = None
        if self.geography.exact and self.geography.sizes is not None:
            sizes = self.geography.sizes.astype(np.int64)
            totals = sums_up(self.geography.tree, sizes)
        asked = [(table.level, table.group) for table in self.tables]
        return read_tables(estimates, asked, totals, self.n_records, self.room)

    def digest(self) -> str:
        """SHA-256 of all that was drawn, as little-endian int64."""
        digest = hashlib.sha256()
        for values in self.values:
            step = _places_at_once(values.shape[1:])
            for first in range(0, values.shape[0], step):
                digest.update(values[first : first + step].astype("<i8").tobytes())
        return digest.hexdigest()


def sizes_of(domain: Domain, geography: Geography) -> tuple[int, ...]:
    """Number of codes of every column; 1 for that of places, which no table has."""
    return tuple(1 if c.name == geography.column else c.size for c in domain.columns)


def combined(
    geography: Geography,
    sizes: Sequence[int],
    tables: Sequence[MeasuredTable],
    scales: Mapping[Group, Mapping[int, Fraction]],
    n_records: int | None,
    values: Sequence[Numbers] | None = None,
    at_once: int = AT_ONCE,
) -> PlaceEstimates:
    """What tables say together; without values their variances only."""
    tree, totals = geography.tree, {}
    if n_records is not None:
        totals[0] = np.array([float(n_records)])
    if geography.exact and geography.sizes is not None:
        totals = dict(enumerate(sums_up(tree, geography.sizes)))
    measured = []
    for group, own in by_group(tables).items():
        merged = Merged.of(tree, [tables[place].level for place in own])
        for place, masks in zip(own, merged.measured, strict=True):
            variances = np.full(len(masks), np.inf)
            for mask, scale in scales[group].items():
                variances[masks == mask] = float(scale / GRID) ** 2
            counts = None if values is None else values[place]
            measured.append(LevelTable(tables[place].level, group, variances, counts, GRID))
    return PlaceEstimates.of(tree, sizes, measured, totals, at_once=at_once)


def by_group(tables: Sequence[MeasuredTable]) -> dict[Group, list[int]]:
    """By group the places of its tables, from the root down."""
    found: dict[Group, list[int]] = {}
    for place in sorted(range(len(tables)), key=lambda place: tables[place].level):
        found.setdefault(tables[place].group, []).append(place)
    return found


def sums_up(tree: Tree, values: Any) -> list[Any]:
    """By level the sums of values of the last level."""
    found = [values]
    for level in range(len(tree.levels) - 1, 0, -1):
        found.insert(0, tree.sums(level, found[0]))
    return found


@dataclass(frozen=True)
class ExpectedTable:
    """What can be expected of one table.

    Attributes:
        level: Its name.
        columns: Names.
        places: Of the level.
        cells: Of the table in one place.
        share: Of the budget of the product.
        noise_sd: Standard deviation of a noisy count, in records.
        sd: Of an estimate from all tables, in records, on average over places.
        relative: That over the records of an average cell; by places of about the same size.
    """

    level: str
    columns: tuple[str, ...]
    places: int
    cells: int
    share: float
    noise_sd: float
    sd: float
    relative: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ExpectedPlaces:
    """Errors before any data is read.

    Attributes:
        tables: Of every table, from the root down.
        cell_sd_average: Standard deviation of an estimate, in records, over all cells.
        cell_sd_most: Of the noisiest table.
        projected_total_variation: Of the shares of a place's table, on average over levels, if
            records were spread evenly over its cells.
        uniform_share: None of the counts is drawn from elsewhere.
        kolmogorov_smirnov: Nothing can be said of it.
    """

    tables: tuple[ExpectedTable, ...]
    cell_sd_average: float
    cell_sd_most: float
    projected_total_variation: float
    uniform_share: float = 0.0
    kolmogorov_smirnov: None = None

    def deciding(self, criterion: str) -> float:
        """The error that a product with an open mechanism minimises."""
        return {
            "total_variation": self.projected_total_variation,
            "cell_sd": self.cell_sd_average,
        }.get(criterion, math.inf)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and values."""
        for table in self.tables:
            name = f"{table.level}: {' × '.join(table.columns) or 'records'}"
            size = "1 place" if table.places == 1 else f"{table.places:,} places"
            yield name, f"{table.sd:,.2f} records (sd of an estimate)"
            yield f"{name}, noise", f"scale {table.noise_sd:,.2f}, {table.share:.1%} of the budget"
            yield f"{name}, measured in", f"{size}, {table.cells:,} cells each"
            errors = [f"{error:.0%} in one of {records:,.0f}" for records, error in table.relative]
            yield f"{name}, error of an average cell", f"{', '.join(errors)} records"
        known = f"a typical place's average cells err by {_USABLE:.0%} at most"
        yield "lowest level to use by itself", f"{self.usable}: {known}" if self.usable else "none"

    @property
    def usable(self) -> str:
        """The lowest level whose tables are not mostly noise in a typical place; may be empty."""
        worst: dict[str, float] = {}
        for table in self.tables:
            _, error = table.relative[len(table.relative) // 2]
            worst[table.level] = max(worst.get(table.level, 0.0), error)
        return next((level for level in reversed(worst) if worst[level] <= _USABLE), "")

    def summary(self) -> str:
        """The most important figures in one line."""
        return "; ".join(f"{each.level} ± {each.sd:,.1f} records a cell" for each in self.tables)


@dataclass(frozen=True)
class PlaceTables:
    """The mechanism at fixed parameters; all of them are public.

    Attributes:
        mu: Of the whole release.
        unit_records: Most records of a unit, c.
        tables: What is measured; their shares add up to 1 at most.
        adjacency: The neighbouring relation.
        geography: The places; the loss does not depend on them.
        columns: Names of the product's columns.
        sizes: Number of codes of every column, 1 for that of places.
        public_size: The public number of records, as far as it is known exactly.
        at_once: Cells of all tables of a block of places.
    """

    name: ClassVar[str] = "place_tables"
    citations: ClassVar[tuple[Citation, ...]] = (
        DONG_ROTH_SU,
        HAY,
        PROOF.at("Theorem 12.1"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (TABLE,)
    knobs: ClassVar[type] = PlaceTablesKnobs
    pure: ClassVar[bool] = False
    unbiased: ClassVar[bool] = True
    named_only: ClassVar[bool] = True
    needs: ClassVar[Needs] = "columns"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = tuple(Adjacency)
    drawn_records: ClassVar[None] = None
    published_as: ClassVar[str] = "tables_of_places"
    merged: ClassVar[type[Merged]] = Merged
    filter: ClassVar[type[GdpFilter]] = GdpFilter

    mu: Fraction
    unit_records: int
    tables: tuple[MeasuredTable, ...]
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    geography: Geography | None = field(default=None, compare=False)
    columns: tuple[str, ...] = field(default=(), compare=False)
    sizes: tuple[int, ...] = field(default=(), compare=False)
    public_size: int | None = field(default=None, compare=False)
    at_once: int = field(default=AT_ONCE, compare=False)

    def __post_init__(self) -> None:
        if self.mu <= 0 or self.unit_records < 1 or not self.tables:
            raise RecordsError("mu, unit_records and the number of tables must be positive.")
        shares = [table.share for table in self.tables]
        if min(shares) <= 0 or sum(shares) > 1:
            raise RecordsError("The tables' shares must be positive and add up to 1 at most.")

    @property
    def places(self) -> Geography:
        """The places, of a mechanism that is to measure them."""
        assert self.geography is not None
        return self.geography

    @classmethod
    def calibrate(cls, knobs: PlaceTablesKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: There is no geography, or levels and columns are not its own.
            DomainTooLargeError: The tables of all places have too many cells.
            InfeasibleBudgetError: The budget has no delta, or does not suit the noise's grid.
        """
        geography, domain = knobs.geography, target.domain
        if geography is None or domain is None or not knobs.at:
            raise ConfigError(
                "Tables of places need a geography and the levels that have tables.",
                where="at",
                next_step="Declare the section 'geography', and give 'at' its levels.",
            )
        asked = _asked(knobs.at, geography, domain)
        sizes = sizes_of(domain, geography)
        if target.n_records > MOST_RECORDS:
            raise RecordsError(
                f"At most {MOST_RECORDS:,} records can be counted on the noise's grid."
            )
        replaced = target.adjacency is Adjacency.REPLACE_ONE
        known = target.n_records if replaced and not domain.absent else None
        _check_totals(geography, known)
        _check_cells(asked, geography, sizes)
        if known is not None and any(
            len(geography.tree.codes[level]) == 1 and math.prod(sizes[c] for c in group) == 1
            for level, group in asked
        ):
            raise ConfigError(
                "The number of records of the only place of a level is public.",
                where="at",
                next_step="Give the level a group of columns, or leave it out.",
            )
        shares = _shares(knobs.level_shares, asked, geography, sizes, target.n_records)
        mechanism = cls(
            target.largest_mu(),
            target.unit_records,
            tuple(MeasuredTable(*each, share) for each, share in zip(asked, shares, strict=True)),
            target.adjacency,
            geography,
            domain.names,
            sizes,
            known,
        )
        try:
            mechanism.scales()
        except RecordsError:
            raise InfeasibleBudgetError("The budget does not suit the noise's grid.") from None
        return mechanism

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """mu-GDP for units of up to ``unit_records``, and in proportion for others."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        return GaussianLoss(self.mu * Fraction(unit_records, self.unit_records))

    @property
    def readable(self) -> list[bool]:
        """Of each table whether it is published as whole numbers too."""
        asked = [(table.level, table.group) for table in self.tables]
        return readable(asked, totals=self.places.exact)

    @property
    def blocks(self) -> Blocks:
        """How the tree is cut, so that a part of it is worked on at once."""
        asked = [(table.level, table.group) for table in self.tables]
        return blocks_of(self.places.tree, self.sizes, asked, self.at_once)

    @property
    def sensitivity_squared(self) -> int:
        """Of one table, in squared records."""
        return table_sensitivity_squared(self.unit_records, self.adjacency)

    def amount(self, group: Group, mask: int) -> Fraction:
        """Of mu^2, for a measurement that stands for some levels' tables of a group."""
        own = [self.tables[place].share for place in by_group(self.tables)[group]]
        return self.mu**2 * sum(
            (share for i, share in enumerate(own) if mask >> i & 1), Fraction(0)
        )

    def scales(self) -> dict[Group, dict[int, Fraction]]:
        """By group and bits of ``Merged`` the scale of the noise, in grid steps."""
        found: dict[Group, dict[int, Fraction]] = {}
        for group, own in by_group(self.tables).items():
            merged = self.merged.of(self.places.tree, [self.tables[place].level for place in own])
            masks = {int(mask) for each in merged.measured for mask in np.unique(each)} - {0}
            found[group] = {
                mask: scale_of(self.sensitivity_squared, self.amount(group, mask))
                for mask in sorted(masks)
            }
        return found

    def release(
        self, coded: CodedColumns, rng: Randomness, progress: Progress | None = None
    ) -> NoisyPlaces:
        """The private step; charge the ledger before building ``rng``."""
        tree, scales, groups = self.places.tree, self.scales(), by_group(self.tables)
        alike = {
            group: self.merged.of(tree, [self.tables[each].level for each in own])
            for group, own in groups.items()
        }
        spent = sum(
            (self._dearest(merged, scales[group]) for group, merged in alike.items()), Fraction(0)
        )
        self.filter(self.mu**2).spend(1, 1 / spent)
        values = [
            coded.room((tree.sizes[table.level], *(self.sizes[c] for c in table.group)))
            for table in self.tables
        ]
        for group, own in groups.items():
            tables = {self.tables[each].level: each for each in own}
            measured = dict(zip(tables, alike[group].measured, strict=True))
            for level, rows, counts in self.counts(coded, group):
                if level not in tables:
                    continue
                noisy, masks = counts * GRID, measured[level][rows]
                for mask, scale in scales[group].items():
                    chosen = np.flatnonzero(masks == mask)
                    shape = (len(chosen), *noisy.shape[1:])
                    if noise := math.prod(shape):
                        noisy[chosen] += rng.discrete_gaussian(scale, noise).reshape(shape)
                        if progress is not None:
                            progress(noise)
                noisy[masks == 0] = 0  # an only child's, which are those of its parent
                values[tables[level]][rows] = noisy
            drawn = [values[each] for each in own]
            alike[group].carry(drawn, _places_at_once(drawn[0].shape[1:], self.at_once))
        return NoisyPlaces(
            coded.domain,
            self.places,
            self.tables,
            scales,
            tuple(values),
            None if self.public_size is None else coded.n_records,
            coded.room,
        )

    def _dearest(self, merged: Merged, scales: Mapping[int, Fraction]) -> Fraction:
        """What the tables of a group cost on the dearest way down the tree, of mu^2."""
        return max(
            sum(
                (
                    self.sensitivity_squared * GRID**2 / equivalent_variance(scales[mask])
                    for mask in path
                    if mask
                ),
                Fraction(0),
            )
            for path in merged.paths()
        )

    def evidence(self, one: CodedColumns, other: CodedColumns) -> Evidence:
        """For audits: by everything that is measured."""
        exact = [self.release(each, NoNoise()) for each in (one, other)]
        ratios = []
        for group, own in by_group(self.tables).items():
            merged = Merged.of(self.places.tree, [self.tables[each].level for each in own])
            for table, masks in zip(own, merged.measured, strict=True):
                for mask, scale in exact[0].scales[group].items():
                    if (masks == mask).any():
                        known = [each.values[table][:][masks == mask] for each in exact]
                        ratios.append((table, masks == mask, of_noise(known, float(scale))))
        return lambda release: sum(
            ratio(release.values[table][:][chosen]) for table, chosen, ratio in ratios
        )

    def counts(self, coded: CodedColumns, group: Group) -> Iterator[tuple[int, slice, Integers]]:
        """The exact counts of a group in all places of all levels, some at a time; private.

        Yields:
            A level, some of its places, and int64[of these, *cells].
        """
        blocks = self.blocks
        column = coded.domain.names.index(self.places.column)
        last, leaves = len(blocks.tree.levels) - 1, self.places.leaves
        shape = [self.sizes[each] for each in group]
        top = np.zeros((blocks.tree.sizes[blocks.cut], *shape), np.int64)
        for block in range(len(blocks)):
            rows, forest = blocks.rows(block, last), blocks.forest(block)
            inside = (leaves >= rows.start) & (leaves < rows.stop)
            places = np.where(inside, leaves - rows.start, -1)
            own = coded.table_at(column, places, rows.stop - rows.start, group)
            for level in range(last, blocks.cut, -1):
                yield level, blocks.rows(block, level), own
                own = forest.sums(level - blocks.cut, own)
            top[blocks.rows(block, blocks.cut)] = own
        for level, own in enumerate(sums_up(blocks.top, top)):
            yield level, slice(0, len(own)), own

    def total(self, release: NoisyPlaces) -> EstimatedTotal | None:
        """The number of records from all tables; None where some are absent, which these omit."""
        if release.domain.absent:
            return None
        whole = release.estimates().union(np.ones(release.geography.tree.sizes[-1], dtype=bool))
        return EstimatedTotal(float(whole.values[()]), whole.variances[()])

    def rows(self, *, n_cells: int) -> int:
        """Noisy cells of all tables in all places, at most."""
        del n_cells
        return sum(
            self.places.tree.sizes[table.level] * math.prod(self.sizes[c] for c in table.group)
            for table in self.tables
        )

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedPlaces:
        geography, scales = self.places, self.scales()
        estimates = combined(geography, self.sizes, self.tables, scales, self.public_size)
        records = _records_by_level(geography, n_records)
        places = {each: own for group, own in by_group(self.tables).items() for each in own}
        tables, variation, variances = [], [], 0.0
        for i, table in enumerate(self.tables):
            size, cells = records[table.level], math.prod(self.sizes[c] for c in table.group)
            variance = estimates.variances(table.level, table.group)
            mask = 1 << places[i].index(i)
            noise = scale_of(self.sensitivity_squared, self.amount(table.group, mask))
            tables.append(
                ExpectedTable(
                    level=geography.tree.levels[table.level],
                    columns=tuple(self.columns[c] for c in table.group),
                    places=len(size),
                    cells=cells,
                    share=float(table.share),
                    noise_sd=float(noise / GRID),
                    sd=math.sqrt(float(variance.mean())),
                    relative=_relative(np.sqrt(variance), size, cells),
                )
            )
            wrong = 0.5 * _MEAN_ABSOLUTE * cells * np.sqrt(variance) / np.maximum(size, 1.0)
            variation.append(float(np.minimum(wrong, 1.0).mean()))
            variances += float(variance.sum()) * cells
        return ExpectedPlaces(
            tables=tuple(tables),
            cell_sd_average=math.sqrt(variances / self.rows(n_cells=n_cells)),
            cell_sd_most=max(table.sd for table in tables),
            projected_total_variation=float(np.mean(variation)),
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild the loss; the places are in files of their own."""
        listed = [f"{t.level}:{'+'.join(map(str, t.group))}:{t.share}" for t in self.tables]
        relation = str(self.adjacency)
        return {
            "mechanism": self.name,
            "mu": str(self.mu),
            "most_unit_records": self.unit_records,
            "level_tables": " ".join(listed),
            **({} if self.adjacency is Adjacency.REPLACE_ONE else {"adjacency": relation}),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        text = {key: str(value) for key, value in description.items()}
        tables = []
        for listed in text["level_tables"].split():
            level, group, share = listed.split(":")
            columns = tuple(int(column) for column in group.split("+") if column)
            tables.append(MeasuredTable(int(level), columns, Fraction(share)))
        return cls(
            Fraction(text["mu"]),
            int(text["most_unit_records"]),
            tuple(tables),
            Adjacency(text.get("adjacency", Adjacency.REPLACE_ONE)),
        )


def _asked(at: Any, geography: Geography, domain: Domain) -> list[tuple[int, Group]]:
    """The level and the group of every table, from the root down."""
    levels, names = geography.tree.levels, domain.names
    others = [name for name in names if name != geography.column]
    by_level = at if isinstance(at, Mapping) else {level: [others] for level in at}
    if not isinstance(at, Mapping) and len(by_level) < len(at):
        raise ConfigError("Each level is named once.", where="at")
    found = []
    for level, groups in by_level.items():
        if level not in levels:
            raise ConfigError(
                f"The geography '{geography.column}' has no level '{level}'.",
                where="at",
                next_step=f"Its levels: {', '.join(levels)}.",
            )
        if not groups:
            raise ConfigError(
                f"The level '{level}' has no table.",
                where="at",
                next_step="Give it groups of columns, such as [[age, sex]], or leave it out.",
            )
        for group in groups:
            wrong = [name for name in group if name not in others]
            if wrong or len(set(group)) < len(group):
                raise ConfigError(
                    f"The tables of the level '{level}' name columns of the product, each once in "
                    f"a group{f', and {wrong[0]!r} is not one' if wrong else ''}.",
                    where="at",
                    next_step=f"Its columns: {', '.join(others)}.",
                )
            found.append((levels.index(level), tuple(sorted(map(names.index, group)))))
    if len(set(found)) < len(found):
        raise ConfigError("A level has the same table twice.", where="at")
    measured = {names[column] for _, group in found for column in group}
    if unused := [name for name in others if name not in measured]:
        raise ConfigError(f"The column '{unused[0]}' is in no table of any level.", where="at")
    return sorted(found, key=lambda each: each[0])


def _check_totals(geography: Geography, n_records: int | None) -> None:
    """Refuse exact sizes that are not those of the records."""
    if not geography.exact:
        return
    if n_records is None:
        raise ConfigError(
            "Totals of places cannot be met exactly where the number of records is private.",
            where=f"geography.{geography.column}.known_totals",
            next_step="Leave 'known_totals' out: sizes then only divide the budget.",
        )
    assert geography.sizes is not None
    total = round(float(geography.sizes.sum()))
    if total != n_records:
        raise ConfigError(
            f"The sizes of the places of '{geography.column}' do not add up to the "
            f"{n_records:,} records, but to {total:,}.",
            where=f"geography.{geography.column}.sizes",
            next_step="Give the exact number of records of each place, or leave 'known_totals' "
            "out: sizes then only divide the budget.",
        )


def _check_cells(
    asked: Sequence[tuple[int, Group]], geography: Geography, sizes: Sequence[int]
) -> None:
    """Refuse tables that cannot be worked on in parts that fit into memory."""
    blocks = blocks_of(geography.tree, sizes, asked)
    if blocks.largest > MOST_CELLS:
        raise DomainTooLargeError(
            f"The tables of one place of the level '{geography.tree.levels[blocks.cut]}' and of "
            f"those in it have {blocks.largest:,} cells, more than the {MOST_CELLS:,} that are "
            "held at once.",
            where="at",
            next_step="Use smaller tables at the lowest levels, or declare levels between.",
        )


def _shares(
    declared: Mapping[str, Fraction] | None,
    asked: Sequence[tuple[int, Group]],
    geography: Geography,
    sizes: Sequence[int],
    n_records: int,
) -> list[Fraction]:
    """The share of every table, as the module's text says, rounded down to a millionth."""
    levels = geography.tree.levels
    records = _records_by_level(geography, n_records)
    weights = []
    for level, group in asked:
        cells = math.prod(sizes[column] for column in group)
        weights.append(float(np.mean(1 / np.maximum(records[level] / cells, 1.0))) ** (2 / 3))
    by_level: dict[int, float] = {}
    for (level, _), weight in zip(asked, weights, strict=True):
        by_level[level] = by_level.get(level, 0.0) + weight
    whole = sum(by_level.values())
    shares = {level: Fraction(weight / whole) for level, weight in by_level.items()}
    if declared is not None:
        if {levels[level] for level in by_level} != set(declared):
            raise ConfigError(
                "The level shares are those of all levels that have tables, and of no others.",
                where="level_shares",
            )
        if min(declared.values()) <= 0 or sum(declared.values()) != 1:
            raise ConfigError("The level shares are above 0 and add up to 1.", where="level_shares")
        shares = {level: declared[levels[level]] for level in by_level}
    else:
        least = Fraction(_LEAST_LEVEL) / len(shares)
        raised = {level: max(share, least) for level, share in shares.items()}
        shares = {level: share / sum(raised.values()) for level, share in raised.items()}
    parts = (
        shares[level] * Fraction(weight / by_level[level])
        for (level, _), weight in zip(asked, weights, strict=True)
    )
    found = [max(math.floor(part * _DIGITS), 1) for part in parts]
    found[found.index(max(found))] -= max(sum(found) - _DIGITS, 0)  # what the smallest ones took
    return [Fraction(share, _DIGITS) for share in found]


def _records_by_level(geography: Geography, n_records: int) -> list[Floats]:
    """About how many records each place has, from public sizes or evenly."""
    sizes = geography.sizes
    if sizes is None or not sizes.sum():
        sizes = np.zeros(geography.tree.sizes[-1])
        sizes[geography.leaves] = 1.0
    return sums_up(geography.tree, sizes * (n_records / sizes.sum()))


def _relative(errors: Floats, sizes: Floats, cells: int) -> tuple[tuple[float, float], ...]:
    """Size and relative error of an average cell in a small, a middling and a large place."""
    order = np.argsort(sizes, kind="stable")
    chosen = order[[round((len(order) - 1) * part) for part in (0.1, 0.5, 0.9)]]
    found = {float(sizes[i]): float(errors[i] * cells / max(sizes[i], 1.0)) for i in chosen}
    return tuple(sorted(found.items()))


def _places_at_once(shape: Sequence[int], at_once: int = AT_ONCE) -> int:
    """Places whose tables of a shape are in memory together."""
    return max(at_once // math.prod(shape), 1)
