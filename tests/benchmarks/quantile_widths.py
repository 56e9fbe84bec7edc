"""Width and coverage of the interval of a quantile: before, now, and the best possible.

``python -m tests.benchmarks.quantile_widths`` prints the whole table in an hour or two, ``--quick``
a part of it in seconds. A population is a law over K cells; the budget is rho = mu^2/2. Given the
counts of n records the laws of both ends are computed by the definition, so that each replicate
contributes a probability of covering and an expected width (in cells), not a draw.

*Before* is the rule of version 0.1: a third of epsilon for each choice; the tail of the choice over
all cells and that of the binomial have a quarter each of what may fail.

*Best* is order statistics with the mechanism's own spread: all is spent on two ends, half each, by
the same kind of choice with equal costs on both sides, and the wanted counts allow for the binomial
and for how far such a choice strays among dense records, P(D >= d) = e^(-a d)/(1 + e^-a). It knows
that the records near the quantile are dense: where they leave a gap, it misses too often.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from statpress.mechanisms.accounting.losses import BoundedRangeLoss
from statpress.mechanisms.estimates.noisy_quantile import NoisyQuantile, largest_epsilon
from statpress.mechanisms.mechanism import Target

Doubles = NDArray[np.float64]
SIZES, MUS, CELLS = (300, 1000, 5000, 50_000), (0.1, 0.3, 0.7, 3.0), (20, 200, 10_000)
LEVELS, SHARES = (0.9, 0.95, 0.99), (Fraction(1, 2), Fraction(9, 10))
_MOST = 4_000_000  # counts held at a time


def populations(cells: int) -> dict[str, Doubles]:
    """Masses float64[cells] by name: those of issue 15, and one step at the quantile itself."""
    at = (np.arange(cells) + 0.5) / cells
    edges, ranks = np.linspace(0, 1, cells + 1), np.arange(1, cells + 1)
    bumps = np.exp(-((at - 0.25) ** 2) / 0.005) + 0.5 * np.exp(-((at - 0.8) ** 2) / 0.002)
    even, atom = np.ones(cells) / cells, np.eye(cells)
    laws = {
        "uniform": even,
        "bimodal": bumps,
        "beta(.5,.5)": np.diff(2 / math.pi * np.arcsin(np.sqrt(edges))),
        "zipf 1.5": ranks**-1.5,
        "zipf 2.5": ranks**-2.5,
        "99% zeros": 0.99 * atom[0] + 0.01 * even,
        "mass at a bound": 0.4 * atom[-1] + 0.6 * even,
        "nearly constant": atom[cells // 2 - 1 : cells // 2 + 2].T @ [0.01, 0.98, 0.01],
        "0/1": 0.7 * atom[0] + 0.3 * atom[-1],
        "step at .5": 0.5 * atom[0] + 0.5 * atom[-1],
        "step at .9": 0.9 * atom[0] + 0.1 * atom[-1],
    }
    return {name: np.asarray(law / law.sum()) for name, law in laws.items()}


@dataclass(frozen=True)
class Rule:
    """Wanted counts of both ends, and what a record costs on the guarded side and on the other."""

    lower: int
    upper: int
    steep: float
    gentle: float


@dataclass(frozen=True)
class Sample:
    """Counts of replicates of n records, and where the quantile is."""

    counts: NDArray[np.int64]
    quantile: tuple[int, int]  # the first and the last cell that has one

    @functools.cached_property
    def _sums(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts, axis=1)

    def end(self, wanted: int, above: float, below: float) -> tuple[Doubles, Doubles]:
        """Laws float64[cells] of an end, on average over the replicates, and places float64[r]."""
        after = self._sums
        n, (rows, cells) = int(after[0, -1]), after.shape
        if not 0 <= wanted <= n:
            at = 0 if wanted < 0 else cells - 1
            return np.eye(cells)[at], np.full(rows, float(at))
        costs = np.maximum(above * (after - self.counts - wanted), below * (wanted - after))
        law = np.exp(-np.maximum(costs, 0))
        law /= law.sum(axis=1, keepdims=True)
        return law.mean(axis=0), law @ np.arange(cells)

    def misses(self, rule: Rule) -> tuple[float, float]:
        """How often the lower end is above a quantile, and the upper end below it."""
        low, _ = self.end(rule.lower, rule.steep, rule.gentle)
        high, _ = self.end(rule.upper, rule.gentle, rule.steep)
        first, last = self.quantile
        return float(low[first + 1 :].sum()), float(high[:last].sum())

    def width(self, rule: Rule) -> float:
        """Expected width in cells."""
        _, low = self.end(rule.lower, rule.steep, rule.gentle)
        _, high = self.end(rule.upper, rule.gentle, rule.steep)
        return float(np.mean(np.abs(high - low))) + 1


def _last(holds: Callable[[int], bool], most: int) -> int:
    """The largest r in [-1, most] for which it holds, as it does at -1."""
    low, high = -1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@functools.cache
def _epsilon_each(rho: float, choices: int) -> float:
    """Epsilon of each of several equal choices that rho buys."""

    def over(epsilon: float) -> float:
        return choices * BoundedRangeLoss(Fraction(epsilon)).rho.upper - rho

    return float(optimize.brentq(over, 1e-6, 1e3))


@functools.cache
def _epsilon_now(rho: float) -> Fraction:
    """Epsilon of all choices that rho buys."""
    target = Target(epsilon=1.0, delta=0.0, n_records=1, n_cells=1, rho=rho)
    return largest_epsilon(target)


def rule_before(n: int, cells: int, mu: float, share: Fraction, level: float) -> Rule:
    """Of version 0.1."""
    epsilon, tail = _epsilon_each(mu**2 / 2, 3), (1 - level) / 4
    error = math.ceil(2 * math.log(cells / tail) / epsilon)
    low, high = (int(stats.binom.ppf(p, n, float(share))) for p in (tail, 1 - tail))
    return Rule(low - error - 1, high + error + 1, epsilon / 2, epsilon / 2)


@functools.cache
def rule_best(n: int, mu: float, share: Fraction, level: float) -> Rule:
    """Order statistics with the spread of a choice among dense records."""
    rate = _epsilon_each(mu**2 / 2, 2) / 2

    def wanted(q: float) -> int:
        at = np.arange(n + 1)
        masses = stats.binom.pmf(at, n, q)

        def kept(r: int) -> bool:
            d = at - r
            beyond = np.exp(-rate * np.abs(d - (d <= 0))) / (1 + math.exp(-rate))
            return bool(masses @ np.where(d > 0, beyond, 1 - beyond) <= (1 - level) / 2)

        return _last(kept, n)

    return Rule(wanted(float(share)), n - wanted(1 - float(share)), rate, rate)


@functools.cache
def rule_now(n: int, cells: int, mu: float, share: Fraction, level: float) -> Rule:
    """Of what is released."""
    edges = tuple(map(float, range(cells + 1)))
    ends = NoisyQuantile(edges, share, level, _epsilon_now(mu**2 / 2), n).ends
    return Rule(ends.lower, ends.upper, float(ends.steep), float(ends.gentle))


@dataclass(frozen=True)
class Row:
    """What a simulation found."""

    population: str
    n: int
    cells: int
    mu: float
    share: Fraction
    level: float
    covered_before: float
    covered: float
    before: float
    width: float
    best: float
    replicates: int

    @property
    def is_short(self) -> bool:
        """Whether it covers less than its level by more than four standard errors."""
        error = math.sqrt(self.level * (1 - self.level) / self.replicates)
        return self.covered < self.level - 4 * error

    def __str__(self) -> str:
        figures = (self.before, self.width, self.best)
        return (
            f"{self.population:17}{self.n:7}{self.cells:7}{self.mu:5.1f}{float(self.share):5.1f}"
            f"{self.level:6.2f}{self.covered_before:9.4f}{self.covered:8.4f}"
            + "".join(f"{each:9.1f}" for each in figures)
            + f"{self.before / self.best:8.2f}{self.width / self.best:6.2f}"
        )


HEADING = (
    "                                                   covers            width in cells"
    "     to best\n"
    "population             n  cells   mu    q level   before     now   before      now     best"
    "  before   now"
)


def row(
    name: str, n: int, cells: int, mu: float, share: Fraction, level: float, replicates: int
) -> Row:
    """Simulate one setting."""
    replicates = min(replicates, max(200, _MOST // cells))
    sample = _sample(name, n, cells, share, replicates)
    setting = n, cells, mu, share, level
    before, now = rule_before(*setting), rule_now(*setting)
    best = rule_best(n, mu, share, level)
    covered = (1 - sum(sample.misses(rule)) for rule in (before, now))
    widths = (sample.width(rule) for rule in (before, now, best))
    return Row(name, n, cells, mu, share, level, *covered, *widths, replicates)


@functools.lru_cache(2)
def _sample(name: str, n: int, cells: int, share: Fraction, replicates: int) -> Sample:
    masses = populations(cells)[name]
    rng = np.random.default_rng([n, cells, len(name)])
    sums = np.cumsum(masses)
    first = int(np.searchsorted(sums, float(share) - 1e-12))
    last = int(np.searchsorted(sums, float(share) + 1e-12))
    return Sample(rng.multinomial(n, masses, size=replicates), (first, min(last, cells - 1)))


def rows(cells: tuple[int, ...], replicates: int, levels: tuple[float, ...]) -> Iterator[Row]:
    """All settings, one by one."""
    for each in cells:
        for name, n, share in itertools.product(populations(each), SIZES, SHARES):
            for mu, level in itertools.product(MUS, levels):
                yield row(name, n, each, mu, share, level, replicates)


def main() -> None:
    """Print the table, and what is short of its level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 cells, 500 replicates, level .9")
    parser.add_argument("--cells", type=int, nargs="*", default=list(CELLS))
    parser.add_argument("--level", type=float, nargs="*", default=list(LEVELS))
    chosen = parser.parse_args()
    cells = (20,) if chosen.quick else tuple(chosen.cells)
    levels = (0.9,) if chosen.quick else tuple(chosen.level)
    print(HEADING)
    found = []
    for each in rows(cells, 500 if chosen.quick else 5000, levels):
        print(each, flush=True)
        found.append(each)
    short = [each for each in found if each.is_short]
    print(
        f"\n{len(short)} of {len(found)} cover less than their level, beyond what chance explains"
    )
    for each in short:
        print(each)
    print("\nmedian over populations of the width over the best")
    for size, mu, count in itertools.product(SIZES, MUS, cells):
        some = [e for e in found if (e.n, e.mu, e.cells) == (size, mu, count)]
        before, now = np.median([(e.before / e.best, e.width / e.best) for e in some], axis=0)
        print(f"n {size:6} cells {count:6} mu {mu}: {before:6.2f} before, {now:6.2f} now")


if __name__ == "__main__":
    main()
