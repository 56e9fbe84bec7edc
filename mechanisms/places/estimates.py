"""Least squares down a tree of places: best linear unbiased estimates, with exact variances.

A place is measured with noise, and so are the places in it; together they say more of all of them.
Summing over places and taking residuals over columns (mechanisms.marginals.residuals) commute, and
the residuals of different groups of columns are uncorrelated, so that least squares over places and
columns at once is one tree of numbers for each residual, of which all cells share their variances.
The time is linear in the number of places.

**Up.** Let v be the variance of a place's own measurement y (infinite without one), and S and V the
sums over its children of the estimates z and variances w that follow from all below them. Then

    1/w = 1/v + 1/V,    z = w (y/v + S/V).

**Down.** With x the estimates from everything and t their variances, x = z and t = w at the root,
and of a child

    x = z + (w/V) (x_parent - S),    t = w - (w/V)^2 (V - t_parent).

*Why.* Under a flat prior and normal noise the posterior means are the estimates of least squares,
and the posterior covariance is theirs. Given the value of a parent, its children are independent
normals (z, w) that add up to it, and nothing outside of it bears on them. []

**Edges.** A place whose total is public has v = 0. A child about which nothing is known, w
infinite, is its parent less its siblings if it is the only one; of several such children only the
sum is known, and each has no estimate (x is NaN, t infinite). The siblings of such a child learn
nothing from their parent.

**Unions.** A sum of b_c x_c over the children of a place has, given the place's value x_p, the mean
sum b_c z_c + beta (x_p - S) with beta = sum b_c w_c / V (the common weight of the children about
which nothing is known, where there are any), and the variance sum w_c (b_c - beta)^2. So the
variance of any weighted sum over places of any levels follows in one more pass up.

**Blocks.** Large trees are cut at a level. What lies below goes up some places of that level at a
time, of which only z and w at the cut are kept, and is worked out again on the way down, when it is
asked for. So memory goes with the cells of a block and of the levels above the cut, and each number
is that of the whole tree at once.

Source: Hay, Rastogi, Miklau and Suciu 2010, arXiv 0904.0942, section 4, for trees of one variance a
level; the recursion is that of Kalman filters on trees (Chou, Willsky and Benveniste 1994, doi
10.1109/9.280746).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.contingency_table import Numbers
from statpress.mechanisms.marginals.residuals import Residuals, subgroups
from statpress.mechanisms.marginals.target_tables import Floats, Group
from statpress.mechanisms.places.tree import Blocks, Forest, Tree

AT_ONCE = 2**20
"""Cells of all tables of a block of places."""
_ALIKE = 1e-9
"""Weights of places without an estimate that differ by less are the same."""


@dataclass(frozen=True, eq=False)
class TreeWeights:
    """How measurements of one number per place combine; follows from their variances only.

    Attributes:
        forest: The places.
        own: By level float64[n], what a place's own measurement counts in z.
        below: By level but the last float64[n], what the sum over its children counts in z.
        up: By level float64[n], the variances w.
        children: By level but the last float64[n], V without children of infinite variance.
        lost: By level but the last int64[n], the number of those children.
        gains: By level but the first float64[n], w/V of a child.
        down: By level float64[n], the variances t of the estimates; infinite where there is none.
    """

    forest: Forest
    own: tuple[Floats, ...]
    below: tuple[Floats, ...]
    up: tuple[Floats, ...]
    children: tuple[Floats, ...]
    lost: tuple[NDArray[np.int64], ...]
    gains: tuple[Floats, ...]
    down: tuple[Floats, ...]

    @classmethod
    def of(
        cls,
        forest: Forest,
        precisions: Sequence[Floats],
        *,
        leaves: Floats | None = None,
        roots: Floats | None = None,
    ) -> TreeWeights:
        """From the precisions of the measurements.

        Args:
            forest: The places.
            precisions: By level 1/v, float64[n]: 0 without a measurement, infinite for a public
                total.
            leaves: The variances w of the last level where places further down say more of it.
            roots: The variances t of the first level where places further up say more of it.
        """
        last = len(forest.levels) - 1
        own, below, up, children, lost = ([np.zeros(0)] * (last + 1) for _ in range(5))
        for level in range(last, -1, -1):
            precision, sums = precisions[level], np.zeros(len(precisions[level]))
            if level == last and leaves is not None:
                up[level] = leaves
                continue
            if level < last:
                known = np.isfinite(up[level + 1])
                children[level] = forest.sums(level + 1, np.where(known, up[level + 1], 0.0))
                lost[level] = forest.sums(level + 1, 1.0 - known).astype(np.int64)
                with np.errstate(divide="ignore"):
                    sums = np.where(lost[level] > 0, 0.0, 1 / children[level])
            public, exact = np.isinf(precision), np.isinf(sums)
            with np.errstate(divide="ignore", invalid="ignore"):
                up[level] = 1 / (precision + sums)
                own[level] = np.where(public, 1.0, np.where(exact, 0.0, precision * up[level]))
                below[level] = np.where(public, 0.0, np.where(exact, 1.0, sums * up[level]))
            nothing = np.isinf(up[level])
            own[level][nothing] = below[level][nothing] = 0.0
        gains, down = [], [up[0] if roots is None else roots]
        for level, parents in enumerate(forest.parents):
            w, total, above = up[level + 1], children[level][parents], down[level][parents]
            missing = lost[level][parents]
            regular = (missing == 0) & (total > 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = np.where(regular, w / total, 0.0)
                variance = np.where(regular, w - gain**2 * (total - above), w)
            single = np.isinf(w) & (missing == 1)
            variance[single] = (total + above)[single]
            gain[np.isinf(w)] = np.nan
            gain[single] = 1.0
            gains.append(gain)
            down.append(np.maximum(variance, 0.0))
        return cls(
            forest, *map(tuple, (own, below[:last], up, children[:last], lost[:last], gains, down))
        )

    def upward(
        self,
        values: Sequence[Floats | None],
        shape: tuple[int, ...],
        leaves: Floats | None = None,
    ) -> tuple[list[Floats], list[Floats]]:
        """By level z, and by level but the last S; for arguments see ``estimate``."""
        last = len(self.forest.levels) - 1
        up: list[Floats] = [np.zeros(0)] * (last + 1)
        sums: list[Floats] = [np.zeros(0)] * last
        for level in range(last, -1, -1):
            measured = values[level]
            if level == last and leaves is not None:
                up[level] = leaves
                continue
            if measured is None:
                up[level] = np.zeros((self.forest.sizes[level], *shape))
            else:
                up[level] = _along(self.own[level], measured) * measured
            if level < last:
                sums[level] = self.forest.sums(level + 1, up[level + 1])
                up[level] += _along(self.below[level], sums[level]) * sums[level]
        return up, sums

    def estimate(
        self,
        values: Sequence[Floats | None],
        shape: tuple[int, ...],
        *,
        leaves: Floats | None = None,
        roots: Floats | None = None,
    ) -> TreeEstimates:
        """Estimates of every place.

        Args:
            values: By level the measurements float64[n, *shape]; None for a level without any.
            shape: Of the cells, which all have the same variances.
            leaves: z of the last level where places further down say more of it.
            roots: x of the first level where places further up say more of it.
        """
        up, sums = self.upward(values, shape, leaves)
        if roots is None:
            roots = up[0] if math.isfinite(self.up[0][0]) else np.full_like(up[0], np.nan)
        found = [roots]
        for level, parents in enumerate(self.forest.parents):
            gain = _along(self.gains[level], up[level + 1])
            change = (found[level] - sums[level])[parents]
            found.append(up[level + 1] + np.where(gain == 0, 0.0, gain * change))
        return TreeEstimates(self, tuple(up), tuple(sums), tuple(found))


def _along(factors: Floats, values: Floats) -> Floats:
    """float64[n] with axes of length 1 for the cells of values float64[n, ...]."""
    return factors.reshape(-1, *[1] * (values.ndim - 1))


@dataclass(frozen=True, eq=False)
class TreeEstimates:
    """Estimates of one residual, for every place.

    Attributes:
        weights: How they were made.
        up: By level z, float64[n, *cells].
        sums: By level but the last S, float64[n, *cells].
        values: By level x, float64[n, *cells]; NaN where there is none.
    """

    weights: TreeWeights
    up: tuple[Floats, ...]
    sums: tuple[Floats, ...]
    values: tuple[Floats, ...]

    def combination(
        self, factors: Sequence[Floats], below: Gathered | None = None
    ) -> tuple[Floats, float]:
        """The estimate float64[*cells] of a weighted sum over places, and its variance.

        Args:
            factors: By level float64[n].
            below: What places further down add.

        Returns:
            With an infinite variance where the sum cannot be estimated.
        """
        beta, variance, value = self.gathered(factors, below)
        root = float(factors[0][0] + beta[0])
        if not root:
            return value[0], float(variance[0])
        down = float(self.weights.down[0][0])
        return value[0] + root * self.values[0][0], float(variance[0] + root**2 * down)

    def gathered(self, factors: Sequence[Floats], below: Gathered | None = None) -> Gathered:
        """What a weighted sum over the places below has in each place of the first level."""
        w, forest = self.weights, self.weights.forest
        last = len(forest.levels) - 1
        beta, variance, value = below or Gathered.nothing(self.up[last])
        for level in range(last - 1, -1, -1):
            own = factors[level + 1] + beta
            up, total, parents = w.up[level + 1], w.children[level], forest.parents[level]
            known = np.isfinite(up)
            inside = np.where(known, up, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                beta = np.where(total > 0, forest.sums(level + 1, own * inside) / total, 0.0)
                unknown = forest.sums(level + 1, np.where(known, 0.0, own)) / w.lost[level]
            beta = np.where(w.lost[level] > 0, unknown, beta)
            apart = own - beta[parents]
            differs = ~known & (np.abs(apart) > _ALIKE)
            variance = np.where(differs, np.inf, variance + inside * apart**2)
            variance = forest.sums(level + 1, variance)
            value = forest.sums(level + 1, value + _along(own, value) * self.up[level + 1])
            value -= _along(beta, value) * self.sums[level]
        return Gathered(beta, variance, value)


class Gathered(NamedTuple):
    """A weighted sum over what lies in each of some places.

    Attributes:
        beta: float64[n], by which it goes with the place's estimate.
        variance: float64[n], given that.
        value: float64[n, *cells], given an estimate of 0.
    """

    beta: Floats
    variance: Floats
    value: Floats

    @classmethod
    def nothing(cls, like: Floats) -> Gathered:
        """Of no place; of the shape of estimates float64[n, *cells]."""
        return cls(np.zeros(len(like)), np.zeros(len(like)), np.zeros_like(like))


@dataclass(frozen=True, eq=False)
class LevelTable:
    """Noisy tables of one group of columns in the places of one level; public.

    Attributes:
        level: Of the tree.
        group: Positions of the columns.
        variances: float64[n] of a cell's noise, in squared records; infinite where a place was not
            measured.
        counts: [n, *cells]; None where only the variances are asked for.
        grid: Steps of the counts in a record.
    """

    level: int
    group: Group
    variances: Floats
    counts: Numbers | None = None
    grid: int = 1

    def part(self, rows: slice) -> LevelTable:
        """Of some places, in records."""
        counts = None if self.counts is None else self.counts[rows] / self.grid
        return LevelTable(self.level, self.group, self.variances[rows], counts)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Estimates of some places of one level and of those further down.

    Attributes:
        first: The level, of the tree.
        weights: By residual how it is estimated.
        parts: By residual its estimates; empty where only variances are asked for.
    """

    first: int
    weights: Mapping[Group, TreeWeights]
    parts: Mapping[Group, TreeEstimates]

    def variances(self, sizes: Sequence[int], level: int, group: Group) -> Floats:
        """float64[n]: variance of a cell of a table in every place of a level."""
        found = np.zeros(self.weights[group].forest.sizes[level - self.first])
        for part in subgroups(group):
            lost = math.prod(1 - 1 / sizes[column] for column in part)
            down = self.weights[part].down[level - self.first]
            found += down * (lost / _without(sizes, group, part) ** 2)
        return found

    def table(self, sizes: Sequence[int], level: int, group: Group) -> Floats:
        """float64[n, *cells]: the unbiased table of a group in every place of a level."""
        shape = [sizes[column] for column in group]
        found = np.zeros((self.weights[group].forest.sizes[level - self.first], *shape))
        for part in subgroups(group):
            values = self.parts[part].values[level - self.first]
            spread = [size if c in part else 1 for c, size in zip(group, shape, strict=True)]
            found += values.reshape(-1, *spread) / _without(sizes, group, part)
        return found


@dataclass(frozen=True, eq=False)
class PlaceEstimates:
    """All tables of all places combined.

    Attributes:
        tree: The places.
        sizes: Number of codes of every column.
        tables: What was measured.
        totals: By level public numbers of records float64[n], which are exact.
        blocks: How the tree is cut.
        top: The levels down to the cut; below, a block is worked out when it is asked for.
    """

    tree: Tree
    sizes: tuple[int, ...]
    tables: tuple[LevelTable, ...]
    totals: Mapping[int, Floats]
    blocks: Blocks
    top: _Parts
    _latest: dict[int, _Parts] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        tree: Tree,
        sizes: Sequence[int],
        tables: Sequence[LevelTable],
        totals: Mapping[int, Floats],
        *,
        at_once: int | None = None,
    ) -> Self:
        """Combine tables.

        Args:
            tree: The places.
            sizes: Number of codes of every column.
            tables: What was measured.
            totals: By level public numbers of records float64[n], which are exact.
            at_once: Cells of all tables of a block of places, by default ``AT_ONCE``.
        """
        asked = [(table.level, table.group) for table in tables]
        blocks = blocks_of(tree, sizes, asked, at_once)
        nothing = _Parts(0, {}, {})
        made = cls(tree, tuple(sizes), tuple(tables), totals, blocks, nothing)
        return replace(made, top=made._above())

    @property
    def weights(self) -> Mapping[Group, TreeWeights]:
        """By residual how it is estimated, down to the cut if it is measured further down."""
        return self.top.weights

    @property
    def parts(self) -> Mapping[Group, TreeEstimates]:
        """By residual its estimates there; empty where only variances were asked for."""
        return self.top.parts

    def depth(self, part: Group) -> int:
        """Levels down to the deepest one that measures a residual; 0 if none does."""
        levels = [table.level for table in self.tables if set(part) <= set(table.group)]
        return 1 + max(levels + (list(self.totals) if not part else []), default=-1)

    def table(self, level: int, group: Group) -> Floats:
        """float64[n, *cells]: the unbiased table of a group in every place of a level."""
        return np.concatenate([each for _, each, _ in self.by_rows(level, group)])

    def variances(self, level: int, group: Group) -> Floats:
        """float64[n]: variance of a cell of a table in every place of a level."""
        if level <= self.blocks.cut:
            return self.top.variances(self.sizes, level, group)
        return np.concatenate(
            [
                self._below(block, values=False).variances(self.sizes, level, group)
                for block in range(len(self.blocks))
            ]
        )

    def by_rows(self, level: int, group: Group) -> Iterator[tuple[slice, Floats, Floats]]:
        """Places of a level, in order, with their tables of a group and variances of a cell.

        Yields:
            The places, float64[of these, *cells] and float64[of these].
        """
        for block in range(len(self.blocks)) if level > self.blocks.cut else (None,):
            rows = slice(0, self.tree.sizes[level])
            if block is not None:
                rows = self.blocks.rows(block, level)
            yield rows, *self.in_block(block, level, group)

    def in_block(self, block: int | None, level: int, group: Group) -> tuple[Floats, Floats]:
        """Tables and variances of the places of a level in a block; None for the levels above."""
        own = self.top if block is None else self._of_block(block)
        return own.table(self.sizes, level, group), own.variances(self.sizes, level, group)

    def union(self, leaves: NDArray[np.bool_]) -> Residuals:
        """The residuals of a union of places, bool[leaves]; those that can be estimated."""
        factors = self._topmost(leaves)
        chosen = [
            (level, int(at)) for level, own in enumerate(factors) for at in np.nonzero(own)[0]
        ]
        if len(chosen) == 1:  # as the general sum has it, without a pass over all places
            return self.of_place(*chosen[0])
        values, variances, cut = {}, {}, self.blocks.cut
        below = self._gathered(factors)
        for part, estimates in self.parts.items():
            if any(each.any() for each in factors[self.depth(part) :]):
                continue
            depth = min(self.depth(part), cut + 1)
            value, variance = estimates.combination(factors[:depth], below.get(part))
            if math.isfinite(variance):
                values[part], variances[part] = value, variance
        return Residuals(self.sizes, values, variances)

    def _gathered(self, factors: Sequence[Floats]) -> dict[Group, Gathered]:
        """By residual that is measured below the cut what the places there add to a union."""
        cut = self.blocks.cut
        found = {
            part: Gathered.nothing(self.parts[part].up[cut])
            for part in self.parts
            if self.depth(part) > cut + 1
        }
        for block in range(len(self.blocks)) if found else ():
            own = [each[self.blocks.rows(block, cut + at)] for at, each in enumerate(factors[cut:])]
            if any(each.any() for each in own[1:]):
                for part, estimates in self._of_block(block).parts.items():
                    gathered = estimates.gathered(own[: self.depth(part) - cut])
                    for whole, each in zip(found[part], gathered, strict=True):
                        whole[self.blocks.rows(block, cut)] = each
        return found

    def of_place(self, level: int, place: int) -> Residuals:
        """The residuals of a place; those that can be estimated."""
        own = self.top
        if level > self.blocks.cut:
            block = self.blocks.at(level, place)
            own = self._of_block(block)
            place -= self.blocks.rows(block, level).start
        values, variances = {}, {}
        for part, estimates in own.parts.items():
            if level < self.depth(part):
                variance = float(estimates.weights.down[level - own.first][place])
                if math.isfinite(variance):
                    values[part] = estimates.values[level - own.first][place]
                    variances[part] = variance
        return Residuals(self.sizes, values, variances)

    def _of_block(self, block: int) -> _Parts:
        """The estimates of a block, of which the latest is kept."""
        if block not in self._latest:
            self._latest.clear()
            self._latest[block] = self._below(block)
        return self._latest[block]

    def _below(self, block: int, *, values: bool = True) -> _Parts:
        """The estimates of a block from the top's, from the cut down."""
        cut, own = self.blocks.cut, self.blocks.rows(block, self.blocks.cut)
        weights, estimates = {}, {}
        for part, forest, precisions, sums in self._measured_below(block, values=values):
            above = self.weights[part]
            weights[part] = TreeWeights.of(forest, precisions, roots=above.down[cut][own])
            if values and part in self.parts:
                roots = self.parts[part].values[cut][own]
                estimates[part] = weights[part].estimate(sums, self._shape(part), roots=roots)
        return _Parts(cut, weights, estimates)

    def _measured_below(
        self, block: int, *, values: bool
    ) -> Iterator[tuple[Group, Forest, list[Floats], list[Floats | None]]]:
        """By residual that is measured below the cut, what a block has measured of it."""
        for part in self._all_parts():
            if (depth := self.depth(part)) > self.blocks.cut + 1:
                levels = range(self.blocks.cut, depth)
                rows = [self.blocks.rows(block, level) for level in levels]
                measured = self._measured(part, levels, rows, values=values)
                yield part, self.blocks.forest(block, depth), *measured

    def _above(self) -> _Parts:
        """The estimates down to the cut, with what the blocks below say of it."""
        cut, tree = self.blocks.cut, self.tree
        values = all(table.counts is not None for table in self.tables)
        lowest: dict[Group, tuple[Floats, Floats]] = {}
        for part in self._all_parts():
            if self.depth(part) > cut + 1:
                z = np.zeros((tree.sizes[cut], *(self._shape(part) if values else (0,))))
                lowest[part] = np.zeros(tree.sizes[cut]), z
        for block in range(len(self.blocks)) if lowest else ():
            own = self.blocks.rows(block, cut)
            for part, forest, precisions, sums in self._measured_below(block, values=values):
                made, (w, z) = TreeWeights.of(forest, precisions), lowest[part]
                w[own] = made.up[0]
                if values:
                    z[own] = made.upward(sums, self._shape(part))[0][0]
        weights, estimates = {}, {}
        for part in self._all_parts():
            depth = min(self.depth(part), cut + 1)
            levels = range(depth)
            rows = [slice(0, tree.sizes[level]) for level in levels]
            precisions, sums = self._measured(part, levels, rows, values=values)
            leaves = lowest.get(part, (None, None))
            weights[part] = TreeWeights.of(tree.above(depth), precisions, leaves=leaves[0])
            if values:
                estimates[part] = weights[part].estimate(sums, self._shape(part), leaves=leaves[1])
        return _Parts(0, weights, estimates)

    def _measured(
        self, part: Group, levels: Sequence[int], rows: Sequence[slice], *, values: bool
    ) -> tuple[list[Floats], list[Floats | None]]:
        """By level the precisions and the measurements of a residual, in some places."""
        precisions = [np.zeros(own.stop - own.start) for own in rows]
        sums: list[Floats | None] = [None] * len(precisions)
        for table in self.tables:
            if not set(part) <= set(table.group) or table.level not in levels:
                continue
            at, cells = levels.index(table.level), _without(self.sizes, table.group, part)
            own = (table if values else replace(table, counts=None)).part(rows[at])
            weight = 1 / (own.variances * cells)
            precisions[at] += weight
            if own.counts is not None:
                residual = _residual(own, part)
                residual *= _along(weight, residual)
                before = sums[at]
                sums[at] = residual if before is None else before + residual
        for at, total in enumerate(sums):
            if total is not None:
                with np.errstate(divide="ignore"):
                    inverse = np.where(precisions[at] > 0, 1 / precisions[at], 0.0)
                total *= _along(inverse, total)
        for level, exact in self.totals.items() if not part else ():
            if level in levels:
                at = levels.index(level)
                precisions[at] = np.full(len(precisions[at]), np.inf)
                sums[at] = exact[rows[at]]
        return precisions, sums

    def _all_parts(self) -> list[Group]:
        """The residuals that are measured."""
        parts = {part: None for table in self.tables for part in subgroups(table.group)}
        return list(parts if not self.totals else {(): None} | parts)

    def _shape(self, part: Group) -> tuple[int, ...]:
        return tuple(self.sizes[column] for column in part)

    def _topmost(self, leaves: NDArray[np.bool_]) -> list[Floats]:
        """By level 1 for the largest places that lie in a union wholly, else 0."""
        whole = [leaves]
        for level in range(len(self.tree.levels) - 1, 0, -1):
            outside = self.tree.sums(level, (~whole[0]).astype(np.float64))
            whole.insert(0, outside == 0)
        found = [whole[0].astype(np.float64)]
        for level, parents in enumerate(self.tree.parents):
            found.append((whole[level + 1] & ~whole[level][parents]).astype(np.float64))
        return found


def blocks_of(
    tree: Tree,
    sizes: Sequence[int],
    tables: Sequence[tuple[int, Group]],
    at_once: int | None = None,
) -> Blocks:
    """How a tree is cut for tables of groups of columns at levels; by the public design only."""
    cells = [
        sum(
            math.prod(sizes[column] for column in group)
            for group in {group for at, group in tables if at >= level}
        )
        for level in range(len(tree.levels))
    ]
    return Blocks.of(tree, cells, at_once or AT_ONCE)


def _without(sizes: Sequence[int], group: Group, part: Group) -> int:
    """Cells of the columns of a group that are not in a part."""
    return math.prod(sizes[column] for column in group if column not in part)


def _residual(table: LevelTable, part: Group) -> Floats:
    """The residual on a part of a group, float64[n, *cells of the part]."""
    assert table.counts is not None
    others = tuple(1 + i for i, column in enumerate(table.group) if column not in part)
    found: Floats = table.counts[:].sum(axis=others)
    for axis in range(1, found.ndim):
        found = found - found.mean(axis=axis, keepdims=True)
    return found
