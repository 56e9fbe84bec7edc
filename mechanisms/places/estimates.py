"""Best linear unbiased estimates down a tree of places, in linear time, with exact variances.

A place is measured with noise, and so are the places in it; together they say more of all of them.
Summing over places and taking residuals over columns (mechanisms.marginals.residuals) commute, and
the residuals of different groups of columns are uncorrelated, so that least squares over places and
columns at once is one tree of numbers for each residual, of which all cells share their variances.

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

Source: Hay, Rastogi, Miklau and Suciu 2010, arXiv 0904.0942, section 4, for trees of one variance a
level; the recursion is that of Kalman filters on trees (Chou, Willsky and Benveniste 1994, doi
10.1109/9.280746).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.marginals.residuals import Residuals, subgroups
from statpress.mechanisms.marginals.target_tables import Floats, Group
from statpress.mechanisms.places.tree import Tree

_ALIKE = 1e-9
"""Weights of places without an estimate that differ by less are the same."""


@dataclass(frozen=True, eq=False)
class TreeWeights:
    """How measurements of one number per place combine; follows from their variances only.

    Attributes:
        tree: The places.
        own: By level float64[n], what a place's own measurement counts in z.
        below: By level but the last float64[n], what the sum over its children counts in z.
        up: By level float64[n], the variances w.
        children: By level but the last float64[n], V without children of infinite variance.
        lost: By level but the last int64[n], the number of those children.
        gains: By level but the first float64[n], w/V of a child.
        down: By level float64[n], the variances t of the estimates; infinite where there is none.
    """

    tree: Tree
    own: tuple[Floats, ...]
    below: tuple[Floats, ...]
    up: tuple[Floats, ...]
    children: tuple[Floats, ...]
    lost: tuple[NDArray[np.int64], ...]
    gains: tuple[Floats, ...]
    down: tuple[Floats, ...]

    @classmethod
    def of(cls, tree: Tree, precisions: Sequence[Floats]) -> TreeWeights:
        """From 1/v by level, float64[n]: 0 without a measurement, infinite for a public total."""
        last = len(tree.levels) - 1
        own, below, up, children, lost = ([np.zeros(0)] * (last + 1) for _ in range(5))
        for level in range(last, -1, -1):
            precision, sums = precisions[level], np.zeros(len(precisions[level]))
            if level < last:
                known = np.isfinite(up[level + 1])
                children[level] = tree.sums(level + 1, np.where(known, up[level + 1], 0.0))
                lost[level] = tree.sums(level + 1, 1.0 - known).astype(np.int64)
                with np.errstate(divide="ignore"):
                    sums = np.where(lost[level] > 0, 0.0, 1 / children[level])
            public, exact = np.isinf(precision), np.isinf(sums)
            with np.errstate(divide="ignore", invalid="ignore"):
                up[level] = 1 / (precision + sums)
                own[level] = np.where(public, 1.0, np.where(exact, 0.0, precision * up[level]))
                below[level] = np.where(public, 0.0, np.where(exact, 1.0, sums * up[level]))
            nothing = np.isinf(up[level])
            own[level][nothing] = below[level][nothing] = 0.0
        gains, down = [], [up[0]]
        for level, parents in enumerate(tree.parents):
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
            tree, *map(tuple, (own, below[:last], up, children[:last], lost[:last], gains, down))
        )

    def estimate(self, values: Sequence[Floats | None], shape: tuple[int, ...]) -> TreeEstimates:
        """Estimates of every place.

        Args:
            values: By level the measurements float64[n, *shape]; None for a level without any.
            shape: Of the cells, which all have the same variances.
        """
        last = len(self.tree.levels) - 1
        up: list[Floats] = [np.zeros(0)] * (last + 1)
        sums: list[Floats] = [np.zeros(0)] * last
        for level in range(last, -1, -1):
            measured = values[level]
            if measured is None:
                up[level] = np.zeros((self.tree.sizes[level], *shape))
            else:
                up[level] = _along(self.own[level], measured) * measured
            if level < last:
                sums[level] = self.tree.sums(level + 1, up[level + 1])
                up[level] += _along(self.below[level], sums[level]) * sums[level]
        found = [up[0] if math.isfinite(self.up[0][0]) else np.full_like(up[0], np.nan)]
        for level, parents in enumerate(self.tree.parents):
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

    def combination(self, factors: Sequence[Floats]) -> tuple[Floats, float]:
        """The estimate float64[*cells] of a weighted sum over places, and its variance.

        Args:
            factors: By level float64[n].

        Returns:
            With an infinite variance where the sum cannot be estimated.
        """
        w, tree = self.weights, self.weights.tree
        last = len(tree.levels) - 1
        beta = np.zeros(tree.sizes[last])
        variance = np.zeros(tree.sizes[last])
        value = np.zeros_like(self.up[last])
        for level in range(last - 1, -1, -1):
            own = factors[level + 1] + beta
            up, total, parents = w.up[level + 1], w.children[level], tree.parents[level]
            known = np.isfinite(up)
            inside = np.where(known, up, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                beta = np.where(total > 0, tree.sums(level + 1, own * inside) / total, 0.0)
                unknown = tree.sums(level + 1, np.where(known, 0.0, own)) / w.lost[level]
            beta = np.where(w.lost[level] > 0, unknown, beta)
            apart = own - beta[parents]
            differs = ~known & (np.abs(apart) > _ALIKE)
            variance = tree.sums(level + 1, np.where(differs, np.inf, variance + inside * apart**2))
            value = tree.sums(level + 1, value + _along(own, value) * self.up[level + 1])
            value -= _along(beta, value) * self.sums[level]
        root = float(factors[0][0] + beta[0])
        if not root:
            return value[0], float(variance[0])
        return value[0] + root * self.values[0][0], float(variance[0] + root**2 * w.down[0][0])


@dataclass(frozen=True, eq=False)
class LevelTable:
    """Noisy tables of one group of columns in the places of one level; public.

    Attributes:
        level: Of the tree.
        group: Positions of the columns.
        variances: float64[n] of a cell's noise, in squared records; infinite where a place was not
            measured.
        counts: float64[n, *cells]; None where only the variances are asked for.
    """

    level: int
    group: Group
    variances: Floats
    counts: Floats | None = None


@dataclass(frozen=True, eq=False)
class PlaceEstimates:
    """All tables of all places combined.

    Attributes:
        tree: The places.
        sizes: Number of codes of every column.
        weights: By residual how it is estimated, down to the deepest level that measures it.
        parts: By residual its estimates; empty where only variances were asked for.
    """

    tree: Tree
    sizes: tuple[int, ...]
    weights: Mapping[Group, TreeWeights]
    parts: Mapping[Group, TreeEstimates]

    @classmethod
    def of(
        cls,
        tree: Tree,
        sizes: Sequence[int],
        tables: Sequence[LevelTable],
        totals: Mapping[int, Floats],
    ) -> PlaceEstimates:
        """Combine tables.

        Args:
            tree: The places.
            sizes: Number of codes of every column.
            tables: What was measured.
            totals: By level public numbers of records float64[n], which are exact.
        """
        parts = {part: None for table in tables for part in subgroups(table.group)}
        weights, estimates = {}, {}
        for part in parts if not totals else {(): None} | parts:
            own = [each for each in tables if set(part) <= set(each.group)]
            depth = 1 + max([each.level for each in own] + (list(totals) if not part else []))
            cut = Tree(tree.levels[:depth], tree.codes[:depth], tree.parents[: depth - 1])
            precisions = [np.zeros(n) for n in cut.sizes]
            sums: list[Floats | None] = [None] * depth
            for table in own:
                cells = math.prod(sizes[column] for column in table.group if column not in part)
                weight = 1 / (table.variances * cells)
                precisions[table.level] += weight
                if table.counts is not None:
                    residual = _residual(table, part)
                    residual *= _along(weight, residual)
                    before = sums[table.level]
                    sums[table.level] = residual if before is None else before + residual
            for level, total in enumerate(sums):
                if total is not None:
                    with np.errstate(divide="ignore"):
                        inverse = np.where(precisions[level] > 0, 1 / precisions[level], 0.0)
                    total *= _along(inverse, total)
            for level, exact in totals.items() if not part else ():
                precisions[level] = np.full(len(exact), np.inf)
                sums[level] = exact
            weights[part] = TreeWeights.of(cut, precisions)
            if all(table.counts is not None for table in own):
                shape = tuple(sizes[column] for column in part)
                estimates[part] = weights[part].estimate(sums, shape)
        return cls(tree, tuple(sizes), weights, estimates)

    def variances(self, level: int, group: Group) -> Floats:
        """float64[n]: variance of a cell of a table in every place of a level."""
        found = np.zeros(self.tree.sizes[level])
        for part in subgroups(group):
            lost = math.prod(1 - 1 / self.sizes[column] for column in part)
            found += self.weights[part].down[level] * (lost / self._without(group, part) ** 2)
        return found

    def table(self, level: int, group: Group) -> Floats:
        """float64[n, *cells]: the unbiased table of a group in every place of a level."""
        shape = [self.sizes[column] for column in group]
        found = np.zeros((self.tree.sizes[level], *shape))
        for part in subgroups(group):
            values = self.parts[part].values[level]
            spread = [size if c in part else 1 for c, size in zip(group, shape, strict=True)]
            found += values.reshape(-1, *spread) / self._without(group, part)
        return found

    def union(self, leaves: NDArray[np.bool_]) -> Residuals:
        """The residuals of a union of places, bool[leaves]; those that can be estimated."""
        factors = self._topmost(leaves)
        chosen = [
            (level, int(at)) for level, own in enumerate(factors) for at in np.nonzero(own)[0]
        ]
        if len(chosen) == 1:  # as the general sum has it, without a pass over all places
            return self.of_place(*chosen[0])
        values, variances = {}, {}
        for part, estimates in self.parts.items():
            depth = len(estimates.weights.tree.levels)
            if any(each.any() for each in factors[depth:]):
                continue
            value, variance = estimates.combination(factors[:depth])
            if math.isfinite(variance):
                values[part], variances[part] = value, variance
        return Residuals(self.sizes, values, variances)

    def of_place(self, level: int, place: int) -> Residuals:
        """The residuals of a place; those that can be estimated."""
        values, variances = {}, {}
        for part, estimates in self.parts.items():
            if level < len(estimates.weights.tree.levels):
                variance = float(estimates.weights.down[level][place])
                if math.isfinite(variance):
                    values[part] = estimates.values[level][place]
                    variances[part] = variance
        return Residuals(self.sizes, values, variances)

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

    def _without(self, group: Group, part: Group) -> int:
        return math.prod(self.sizes[column] for column in group if column not in part)


def _residual(table: LevelTable, part: Group) -> Floats:
    """The residual on a part of a group, float64[n, *cells of the part]."""
    assert table.counts is not None
    others = tuple(1 + i for i, column in enumerate(table.group) if column not in part)
    found: Floats = table.counts.sum(axis=others)
    for axis in range(1, found.ndim):
        found = found - found.mean(axis=axis, keepdims=True)
    return found.copy() if found is table.counts else found
