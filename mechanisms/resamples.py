"""Bootstrap resamples and random subsets of a table's records, exactly.

The privacy of a replicate rests on the law of what is drawn (mechanisms.resampling_losses):
its copies of one record must be binomial, for every dataset. A multinomial sampler in
floating point, NumPy's among them, has probabilities and an acceptance test that are rounded,
and no bound on the error of its law is known that would be small beside a delta of 1e-10.
So here only integers are drawn: all that is assumed is that the generator's bits are uniform
and independent.

**Bootstrap.** Where cells hold few records each, as those of an ungrouped column do, n uniform
ranks are drawn and counted. Where they hold many, records are intervals of equal length of the
integers below 2^k, and a draw beyond them is repeated. All draws fall through a binary tree on
these integers: a node with m draws sends as many to its upper half as there are ones among m
random bits. Nodes inside one cell stop; when few draws are left in the others, each gets its
remaining bits. The cost is that of n log2(cells) random bits a replicate.

**Subsets.** Records are chosen without replacement by ranks; NumPy's choice draws integers
by rejection and is exact as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Codes
from mechanisms.errors import RecordsError

_MANY = 256  # records a cell, when the tree is faster
_SPARE_BITS = 16  # a draw is repeated with probability below 2**-16
_FEW = 8  # draws a node, when each gets its own bits
_CHUNK_BITS = 1 << 27  # of one level, for the replicates taken together
_MOST_RECORDS = 2**40
_Words = NDArray[np.uint64]


def bootstrap_counts(counts: Codes, replicates: int, rng: np.random.Generator) -> Codes:
    """Counts per cell of bootstrap resamples: n draws with replacement from n records.

    Args:
        counts: int64[k], the records of each cell.
        replicates: Number of resamples B.
        rng: Source of bits; cryptographic in production.

    Returns:
        int64[B, k], each row adding up to n.
    """
    n = int(counts.sum())
    if not 1 <= n <= _MOST_RECORDS or np.any(counts < 0):
        raise RecordsError("A bootstrap needs between 1 and 2**40 records.")
    found = np.empty((replicates, len(counts)), np.int64)
    if n < _MANY * len(counts):
        cell_of = np.repeat(np.arange(len(counts)), counts)
        alone = len(counts) == n and bool(np.all(counts == 1))
        for row in found:
            ranks = rng.integers(0, n, n)
            row[:] = np.bincount(ranks if alone else cell_of[ranks], minlength=len(counts))
        return found
    bits = n.bit_length() + _SPARE_BITS
    bounds = np.cumsum(counts) * ((1 << bits) // n)
    step = max(1, _CHUNK_BITS // n)
    for start in range(0, replicates, step):
        part = found[start : start + step]
        part[:] = 0
        missing = np.full(len(part), n)
        while missing.any():
            part += _fall(missing, bounds, bits, rng)
            missing = n - part.sum(axis=1)
    return found


def subset_counts(counts: Codes, size: int, subsets: int, rng: np.random.Generator) -> Codes:
    """Counts per cell of random subsets of a fixed size, drawn without replacement.

    Returns:
        int64[subsets, k], each row adding up to ``size``.
    """
    n, bounds = int(counts.sum()), np.cumsum(counts)
    if not 1 <= size <= n:
        raise RecordsError("A subset must have between 1 and n records.")
    found = np.empty((subsets, len(counts)), np.int64)
    for row in found:
        ranks = rng.choice(n, size, replace=False, shuffle=False)
        cells = np.searchsorted(bounds, ranks, side="right")
        row[:] = np.bincount(cells, minlength=len(counts))
    return found


def _fall(draws: Codes, bounds: Codes, bits: int, rng: np.random.Generator) -> Codes:
    """Counts per cell int64[B, k] of draws[b] integers of so many bits; a cell ends at its bound.

    What falls beyond the last bound is left out.
    """
    replicates, cells = len(draws), len(bounds)
    found = np.zeros((replicates, cells + 1), np.int64)
    nodes, inside, level = np.zeros(1, np.int64), draws[:, None], 0
    while len(nodes) and inside.sum() > _FEW * inside.size and level < bits:
        level += 1
        upper = _ones(inside, rng)
        inside = np.stack([inside - upper, upper], axis=2).reshape(replicates, -1)
        nodes = np.stack([2 * nodes, 2 * nodes + 1], axis=1).ravel()
        first = np.searchsorted(bounds, nodes << (bits - level), side="right")
        last = np.searchsorted(bounds, ((nodes + 1) << (bits - level)) - 1, side="right")
        whole = first == last
        _add(found, first[whole], inside[:, whole])
        nodes, inside = nodes[~whole], np.ascontiguousarray(inside[:, ~whole])
    if len(nodes):
        left = bits - level
        rows = np.repeat(np.arange(replicates), inside.sum(axis=1))
        starts = np.repeat(np.tile(nodes << left, replicates), inside.ravel())
        ranks = starts + rng.integers(0, 1 << left, size=len(starts), dtype=np.int64)
        places = rows * (cells + 1) + np.searchsorted(bounds, ranks, side="right")
        found += np.bincount(places, minlength=found.size).reshape(found.shape)
    return found[:, :cells]


def _add(found: Codes, cells: Codes, counts: Codes) -> None:
    """Add counts int64[B, j] to cells in ascending order, which may repeat."""
    if len(cells):
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        found[:, cells[starts]] += np.add.reduceat(counts, starts, axis=1)


def _ones(draws: Codes, rng: np.random.Generator) -> Codes:
    """How many of draws[..] random bits are ones, Binomial(draws, 1/2)."""
    flat = draws.ravel()
    words = -(-flat // 64)
    ends = np.cumsum(words)
    random: _Words = rng.integers(0, 2**64, size=int(ends[-1]), dtype=np.uint64)
    some = words > 0
    rest = (-flat[some] % 64).astype(np.uint64)
    random[ends[some] - 1] >>= rest
    ones = np.zeros(len(flat), np.int64)
    counts = np.bitwise_count(random)
    ones[some] = np.add.reduceat(counts, ends[some] - words[some], dtype=np.int64)
    return ones.reshape(draws.shape)
