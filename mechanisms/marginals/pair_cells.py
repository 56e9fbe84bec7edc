"""The cells of denoised pairs: which are there at all, and what they hold given both margins.

A matrix-normal prior (mechanisms.marginals.denoising) is right for the broad deviations of a table
from independence and wrong for its cells: most cells of a deterministic pair are empty, a few hold
everything. So each cell is judged once more, by what the prior says of it from all *other* cells of
its table, which is normal with a mean m and a variance v, and by its own measurement. The cell is
empty, or follows m with variance c v for a factor c of 1 or 16, cut at 0. How often each is the
case is learnt per pair, drawn towards what all pairs say (empirical Bayes). A cell that is likelier
empty than not is withheld.

What is left is the table nearest to the posterior means, in units of the posterior variances, that
has both margins and no negative cell: the mode of the posterior given its margins, as far as cells
are independent. Clipping and scaling, which it replaces, take from the large cells what the noise
of the empty ones left above 0.

**Cells that are not there.** A final table has a little mass in many cells that no record has. Few
of these are likelier empty than not by their own measurement, but together the published records
would have thousands of pairs of values that nobody has. So a cell is withheld too where the
uncertainty hides what it holds and it is rare, or far rarer than if its columns were independent.
Real cells are withheld with them. At epsilon 1 a tenth fewer records hold such a pair (adult .049
to .044, cps91 .116 to .100, kdd .28 to .25), and the errors of pairs are as before. Half or more of
the mass in such cells stays: measurement and prior together see it by over a standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statpress.mechanisms.marginals.fitting import with_margins
from statpress.mechanisms.marginals.target_tables import Booleans, Floats, Group

FACTORS = (1.0, 16.0)
"""How much farther than expected a cell may be from what the others say, in squares."""
_FIRST, _HIDDEN = (0.15, 0.55, 0.3), 0.25
"""How often a cell is empty, and follows the others at each factor, before any is seen, in a table
whose cells hold less than ``_HIDDEN`` standard deviations of the noise on average; in others each
is as likely. Where the noise hides the cells this stays, so that few of them are taken for empty.
"""
_POOL, _ROUNDS = 100.0, 12
_RARE, _DEPLETED, _UNSEEN = 1.0, 0.05, 3.0
"""A cell is rare where the geometric mean of what it holds and would hold in independent columns is
below ``_RARE`` standard deviations of its posterior, and depleted where it holds less than
``_UNSEEN`` of them and that share of what it would hold."""
_MOST_WITHHELD = 0.1  # of a row or a column, in rare cells
_MOST_LEARNT = 1 << 16  # cells of a table from which shares are learnt


@dataclass(frozen=True, eq=False)
class Predicted:
    """A pair's table as measured, and as the other cells predict it, in records.

    Attributes:
        measured: float64[k_a, k_b], unbiased given the margins.
        variance: Of the noise of a cell.
        means: Of each cell, from the others.
        variances: Of each cell about its mean, without the noise of its own measurement.
    """

    measured: Floats
    variance: float
    means: Floats
    variances: Floats

    def chances_of_none(self, shares: Floats) -> Floats:
        """Probability float64[k_a, k_b] that each cell is empty, by ``shares_of_cells``."""
        posterior = _likelihoods(self) * shares[:, None]
        empty: Floats = posterior[0] / posterior.sum(axis=0)
        return empty.reshape(self.measured.shape)

    def likely_cells(self, table: Floats, rows: Floats, columns: Floats) -> Booleans:
        """The cells that are not withheld, bool[k_a, k_b].

        Args:
            table: float64[k_a, k_b], what its cells would hold, in records.
            rows: Its margins, float64[k_a].
            columns: The same, float64[k_b].
        """
        product = np.multiply.outer(rows, columns) / rows.sum()
        deviation = np.sqrt(self.variances / (1 + self.variances / self.variance))
        rare = np.sqrt(np.maximum(table, 0.0) * product) < _RARE * deviation
        lost = table * rare
        # A line that would lose much is left as it is: some of its cells are there.
        rare &= np.multiply.outer(
            lost.sum(axis=1) <= _MOST_WITHHELD * rows, lost.sum(axis=0) <= _MOST_WITHHELD * columns
        )
        depleted = table < np.minimum(_UNSEEN * deviation, _DEPLETED * product)
        likely: Booleans = ~(rare | depleted)
        return likely


def refined(
    predicted: Mapping[Group, Predicted],
    margins: Sequence[Floats],
    possible: Mapping[Group, Booleans],
    *,
    first: tuple[float, ...] = _FIRST,
) -> dict[Group, Floats]:
    """Tables of records with the given margins.

    Args:
        predicted: Of every measured pair.
        margins: Records of each column's cells, float64[k].
        possible: Of every measured pair the cells that no structural zero excludes.
        first: How often each is the case in a pair below its noise, before any is seen.
    """
    shares = shares_of_cells(predicted, first)
    tables: dict[Group, Floats] = {}
    for (a, b), each in predicted.items():
        posterior = _likelihoods(each) * shares[a, b][:, None]
        posterior /= posterior.sum(axis=0)
        empty = (posterior[0] > 0.5).reshape(each.measured.shape)
        posterior /= np.maximum(posterior[1:].sum(axis=0), 1e-300)
        mean, variance = np.zeros(empty.size), np.zeros(empty.size)
        for weight, factor in zip(posterior[1:], FACTORS, strict=True):
            prior = factor * each.variances.ravel()
            kept = prior / (prior + each.variance)
            mean += weight * (kept * each.measured.ravel() + (1 - kept) * each.means.ravel())
            variance += weight * kept * each.variance
        tables[a, b] = with_margins(
            mean.reshape(empty.shape),
            variance.reshape(empty.shape),
            margins[a],
            margins[b],
            nonempty(mean.reshape(empty.shape), possible[a, b], ~empty),
        )
    return tables


def _likelihoods(each: Predicted) -> Floats:
    """Of every cell, empty or at each factor, float64[1 + factors, cells], the largest being 1."""
    from scipy.special import log_ndtr

    y, noise, m = each.measured.ravel(), each.variance, each.means.ravel()
    logs = [-0.5 * (math.log(noise) + y**2 / noise)]
    for factor in FACTORS:
        prior = factor * each.variances.ravel()
        total = prior + noise
        mean, sd = (m * noise + y * prior) / total, np.sqrt(prior * noise / total)
        inside = log_ndtr(mean / sd) - log_ndtr(m / np.sqrt(prior))
        logs.append(-0.5 * (np.log(total) + (y - m) ** 2 / total) + inside)
    stacked = np.array(logs)
    likelihoods: Floats = np.exp(stacked - stacked.max(axis=0))
    return likelihoods


def shares_of_cells(
    predicted: Mapping[Group, Predicted], first: tuple[float, ...] = _FIRST
) -> dict[Group, Floats]:
    """How often each is the case, by pair, drawn towards all pairs together."""
    parts = {}
    for pair, table in predicted.items():
        each = _likelihoods(table)
        step = -(-each.shape[1] // _MOST_LEARNT)
        parts[pair] = each[:, ::step].copy()  # not a view, which would keep the whole
    pooled = np.full(1 + len(FACTORS), 1 / (1 + len(FACTORS)))
    shares = {
        pair: np.array(first)
        if table.measured.mean() < _HIDDEN * math.sqrt(table.variance)
        else pooled
        for pair, table in predicted.items()
    }
    for _ in range(_ROUNDS if parts else 0):
        total = np.zeros(len(pooled))
        for pair, each in parts.items():
            weighted = shares[pair][:, None] * each
            counts = (weighted / weighted.sum(axis=0)).sum(axis=1)
            total += counts
            shares[pair] = (counts + _POOL * pooled) / (counts.sum() + _POOL)
        pooled = np.maximum(total / total.sum(), 1e-5)
        pooled /= pooled.sum()
    return shares


def nonempty(mean: Floats, possible: Booleans, kept: Booleans) -> Booleans:
    """The kept cells that are possible, and the largest possible one of a line without any."""
    inside = possible & kept
    largest = np.where(possible, mean, -np.inf)
    for axis in (0, 1):
        lines = np.flatnonzero(~inside.any(axis=axis))
        places = largest.argmax(axis=axis)[lines]
        where = (places, lines) if axis == 0 else (lines, places)
        inside[where] = possible[where]
    return inside
