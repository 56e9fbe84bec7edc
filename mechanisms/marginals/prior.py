"""An earlier release of the same columns as a prior for what this one measured.

It is an output of a release, so what is done with it costs no budget: ``marginals`` claims the same
loss with any prior or without one. What it says is *used as far as this release's measurements bear
it out*, column by column and pair by pair, and never in intervals, which are of this release alone.

**Single columns.** With m the earlier shares of a column and w the variance of their noise, its
shares are N(m, w + S + tau D). The records of both releases are samples, of n each, so that shares
differ by S = 2 max(m, 1/n)/n where nothing drifted, and D = diag(m/2 + 1/(2k)) lets frequent cells
drift more. How far they drifted, tau, is integrated over a grid by the evidence of the noisy
shares, together with the rivals that use no prior (``mechanisms.marginals.denoising``); the last
of the grid leave the shares as they were measured, and none is below 1/n. Without w the noise of
the earlier release would be taken for drift; without S and the least tau intervals with the prior
are too narrow (``cps91`` with drift and season at epsilon = 1: they hold .90 of the true shares in
place of .94).

**Pairs** are measured deviations from a centre. The centre is the product of the columns, or the
earlier table raked to the columns, with ``_MIXED`` of that product so that no cell is excluded for
being empty then: whichever is likelier given what was measured of the pair. Where nothing was
measured its score decides, by strong evidence where the measured pairs do not bear the prior out
(``mechanisms.marginals.denoising``): a strong pair that did not change has a small score, is not
measured for that, and would be lost with a prior that is dropped as a whole.

**Scores** are distances from the earlier table in place of the product, so that a pair that did not
change gets less of the budget; but a pair of columns that have likely changed much keeps its
product. The earlier table is one of whole numbers, a function of the earlier
release and of this one's noisy columns, and fixed before the scores are drawn: their sensitivity is
that of a distance from any fixed table (``mechanisms.marginals.measurement``).

**A chain** of releases hands on what was learnt: the prior of the next is the posterior of this
one, made from its own tables and from the prior that its bundle holds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from statpress.mechanisms.marginals.allocation import MEAN_ABSOLUTE
from statpress.mechanisms.marginals.fitting import fit_pair
from statpress.mechanisms.marginals.target_tables import Floats, Group

_MIXED = 0.1
_CHANGED = 0.1
"""Total variation from which on a column is said to have changed much."""
_ROUNDS = 20


def _drifts(n: float) -> Floats:
    """Variances float64[drifts] of a cell's drift over its entry of D, of n records."""
    drifts = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 19)])
    return np.asarray(np.maximum(drifts, 1 / n))


@dataclass(frozen=True, kw_only=True, eq=False)
class Prior:
    """What an earlier release says of the columns of a product; public.

    Attributes:
        seal: Of its bundle.
        one_way: Shares float64[k] of every column.
        variances: Of the noise of one of these shares, by column.
        pairs: Shares float64[k_a, k_b] of the pairs that it knows, by ascending positions.
    """

    seal: str
    one_way: tuple[Floats, ...]
    variances: tuple[float, ...]
    pairs: Mapping[Group, Floats]

    @property
    def cells(self) -> int:
        """Of all columns and pairs."""
        return sum(table.size for table in (*self.one_way, *self.pairs.values()))

    def of_columns(self, places: Sequence[int]) -> Prior:
        """The prior of some columns, in the order of their positions here."""
        pairs: dict[Group, Floats] = {}
        for (i, one), (j, other) in itertools.combinations(enumerate(places), 2):
            known = self.pairs.get((min(one, other), max(one, other)))
            if known is not None:
                pairs[i, j] = known if one < other else np.ascontiguousarray(known.T)
        shares = tuple(self.one_way[place] for place in places)
        variances = tuple(self.variances[place] for place in places)
        return replace(self, one_way=shares, variances=variances, pairs=pairs)

    def table(self, pair: Group, rows: Floats, columns: Floats) -> Floats:
        """The earlier shares of a pair, raked to these margins.

        Args:
            pair: One of ``pairs``.
            rows: Shares float64[k_a] of its first column.
            columns: Of its second.
        """
        product = np.multiply.outer(rows, columns)
        start = (1 - _MIXED) * self.pairs[pair] + _MIXED * product
        return fit_pair(start, rows, columns, np.ones(product.shape, dtype=bool))

    def shares(
        self, column: int, noisy: Floats, variance: float, *, n: float
    ) -> tuple[Floats, Floats, Floats]:
        """What noisy shares of a column leave of it, at each drift.

        The noise is taken as independent between cells, and the posterior given the sum 1.

        Args:
            column: Its position.
            noisy: float64[k], of sum 1.
            variance: Of their noise.
            n: Number of records of this release, known or estimated.

        Returns:
            Logarithms float64[drifts] of the likelihoods, means float64[drifts, k], and the
            variances float64[drifts, k] of cells before their sum is known.
        """
        earlier = self.one_way[column]
        k = len(earlier)
        sampled = 2 * np.maximum(earlier, 1 / n) / n
        spread = self.variances[column] + sampled + _drifts(n)[:, None] * (earlier + 1 / k) / 2
        gaps, total = noisy - earlier, spread + variance
        logs = -(k - 1) / (2 * k) * (np.log(total) + gaps**2 / total).sum(axis=1)
        means, left = earlier + spread / total * gaps, spread / total * variance
        sums = np.maximum(left.sum(axis=1, keepdims=True), 1e-300)
        means -= left / sums * (means.sum(axis=1, keepdims=True) - 1)
        return logs, means, left

    def borne_out(self, noisy: Mapping[int, tuple[Floats, float]], *, n: float) -> Prior:
        """The prior without the pairs of columns that have likely changed much.

        Args:
            noisy: Of measured columns the noisy shares, and the variance of their noise.
            n: Number of records, known or estimated.
        """
        gains = {}
        for column, (shares, variance) in noisy.items():
            logs, *_ = self.shares(column, shares, variance, n=n)
            weights = np.exp(logs - logs.max())
            sd = np.sqrt((self.one_way[column] + 1 / len(shares)) / 2).sum()
            near = np.sqrt(_drifts(n)) * sd * MEAN_ABSOLUTE / 2 <= _CHANGED
            chances = np.maximum([weights[near].sum(), weights[~near].sum()], 1e-300)
            gains[column] = float(np.log(chances[0] / chances[1]))
        odds = log_odds(gains.values())
        changed = {column for column, gain in gains.items() if gain + odds <= 0}
        kept = {pair: table for pair, table in self.pairs.items() if changed.isdisjoint(pair)}
        return replace(self, pairs=kept)


def log_odds(gains: Iterable[float]) -> float:
    """Of a prior being right before its evidence is seen: learnt from all log-ratios of it.

    So one that is wrong in what can be told is not believed in what cannot.
    """
    ratios, share = np.array(list(gains)), 0.5
    for _ in range(_ROUNDS if len(ratios) else 0):
        chances = 1 / (1 + np.exp(-np.clip(ratios + math.log(share / (1 - share)), -500, 500)))
        share = (float(chances.sum()) + 1) / (len(ratios) + 2)
    return math.log(share / (1 - share))
