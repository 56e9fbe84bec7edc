"""Rho by other means than the accountant's: dense searches over sums and enumerated laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from exact_laws import law_of
from neighbouring import neighbours

from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.truncated_draws import MOVED_DRAWS, NET_STEPS, Approximate

Floats = np.ndarray[Any, np.dtype[np.float64]]
ORDERS = (1.0001, 1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0)


def truncated_reference(loss: DrawsLoss, t: int) -> tuple[float, float]:
    """The rho given at most t draws on the two cells, and the probability of more.

    Binomial weights by mpmath's gamma function, and a dense search over orders.
    """
    first, chance = max(0, t - 3000), loss.up + loss.down
    with mpmath.workdps(40):
        share, ratio = (
            mpmath.mpf(x.numerator) / x.denominator for x in (chance, loss.up / loss.down)
        )
        length = float(mpmath.log(ratio))
        log = (
            mpmath.loggamma(loss.draws + 1)
            - mpmath.loggamma(first + 1)
            - mpmath.loggamma(loss.draws - first + 1)
            + first * mpmath.log(share)
            + (loss.draws - first) * mpmath.log1p(-share)
        )
        odds, logs = mpmath.log(share / (1 - share)), []
        places = np.arange(first, min(t + 400, loss.draws + 1))
        for j in places.tolist():
            logs.append(float(log))
            if j < loss.draws:
                log += odds + mpmath.log(loss.draws - j) - mpmath.log(j + 1)
    weights = np.array(logs)
    tail = math.fsum(np.exp(weights[places > t]))
    kept, number = weights[places <= t], places[places <= t]

    def at(s: float) -> float:
        one = np.logaddexp(length * (s + 0.5), -length * (s + 0.5))
        terms = kept + number * (one - np.logaddexp(length / 2, -length / 2))
        most = float(terms.max())
        total = most + math.log(math.fsum(np.exp(terms - most))) - math.log1p(-tail)
        return total / (s * (1 + s))

    best = max(np.geomspace(0.1, 3000, 400).tolist(), key=at)
    return max(map(at, np.linspace(best / 1.05, best * 1.05, 200).tolist())), tail


def net_reference(loss: DrawsLoss, s: int) -> tuple[float, float]:
    """The rho given at most s net steps, and the probability of more.

    The law of the steps by convolution in floating point, and a dense search over orders.
    """
    law, power = np.ones(1), np.array([float(loss.down), 0.0, float(loss.up)])
    power[1] = 1 - loss.up - loss.down
    for digit in reversed(f"{loss.draws:b}"):
        if digit == "1":
            law = _convolved(law, power)
        power = _convolved(power, power)
    steps = np.arange(len(law)) - len(law) // 2
    inside = np.abs(steps) <= s
    tail, length = math.fsum(law[~inside]), math.log(loss.up / loss.down)
    kept, number = np.log(law[inside] / math.fsum(law[inside])), steps[inside]

    def at(u: float) -> float:
        terms = kept + u * length * number
        most = float(terms.max())
        return (most + math.log(math.fsum(np.exp(terms - most)))) / (u * (1 + u))

    best = max(np.geomspace(0.1, 3000, 400).tolist(), key=at)
    return max(map(at, np.linspace(best / 1.05, best * 1.05, 200).tolist())), tail


def _convolved(one: Floats, other: Floats) -> Floats:
    """The law of a sum, centred, without the ends of less than 1e-30."""
    law = np.convolve(one, other)
    middle = len(law) // 2
    reach = int(np.abs(np.flatnonzero(law > 1e-30) - middle).max())
    found: Floats = law[middle - reach : middle + reach + 1]
    return found


def reference_of(loss: DrawsLoss, made: Approximate) -> tuple[float, float]:
    """Of the event by which a rho was found."""
    return {MOVED_DRAWS: truncated_reference, NET_STEPS: net_reference}[made.rule](loss, made.most)


def enumerated_rho(laws: Callable[[Any], Sequence[Floats]], n: int, cells: int) -> float:
    """The largest divergence over order, of independent releases of all pairs of neighbours.

    Args:
        laws: Of a table, the laws of the releases, each over the same outcomes for every table.
        n: Number of records.
        cells: Number of cells.
    """
    found, known = 0.0, {}
    for pair in neighbours(n, cells):
        for table in pair:
            if table not in known:
                known[table] = laws(table)
        for order in ORDERS:
            whole = math.fsum(
                math.log(np.sum(p * (p / q) ** (order - 1))) / (order - 1)
                for p, q in zip(*(known[table] for table in pair), strict=True)
            )
            found = max(found, whole / order)
    return found


def release_law(mechanism: Any, table: Any) -> Sequence[Floats]:
    """The law of a release with a finite one, by its definition."""
    masses = law_of(mechanism, table).masses  # type: ignore[attr-defined]
    return (np.array([masses[outcome] for outcome in sorted(masses)]),)


def choice_laws(
    wanted: Sequence[int], rates: Sequence[tuple[float, float]], table: Any
) -> Sequence[Floats]:
    """The laws of choices of a cell near wanted counts, by what a record above and below costs."""
    ends, found = [0, *itertools.accumulate(table)], []
    for count, (above, below) in zip(wanted, rates, strict=True):
        pairs = itertools.pairwise(ends)
        costs = np.array([max(above * (a - count), below * (count - b), 0) for a, b in pairs])
        found.append(np.exp(-costs) / np.exp(-costs).sum())
    return tuple(found)
