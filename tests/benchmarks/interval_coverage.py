"""Coverage and width of the intervals of estimates, by simulation from what is released.

``python -m tests.benchmarks.interval_coverage`` simulates every statistic, population, size and mu
5000 times, at three levels, and prints a row for each; ``--quick`` 300 times. Then it prints what
covers less than it is published to, and the worst of all populations by statistic, size and mu.

What is published as asymptotic has to cover at its level less 1.5 points
or .3 times its miss rate, whichever is less; what is published as
guaranteed at its level; what is published as approximate claims nothing. The coverage of so many
replicates differs from the true one by chance, so a row that is below is simulated again, ten times
as often and with another seed, and counts as a shortfall if it is more than three standard
deviations of chance below in that: .4, .3 and .13 points at the levels .9, .95 and .99.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from statpress.mechanisms.estimates.moments import most_shortfall
from tests.benchmarks.interval_populations import populations
from tests.benchmarks.interval_rows import HEADING, Found, Setting
from tests.benchmarks.interval_simulation import STATISTICS, figures

SIZES, MUS, LEVELS = (300, 1000, 5000, 50_000), (0.1, 0.3, 0.7, 3.0), (0.9, 0.95, 0.99)
REPLICATES, QUICK, TIMES_MORE = 5000, 300, 10
MARK = "<!-- What follows is written by the command. -->"
_CHANCE = 3.0  # standard deviations that a coverage may be below by chance
_LOOKED_AT = {"asymptotic": 0.0, "guaranteed": 2.0}  # the same, for another simulation


def all_settings(replicates: int) -> list[Setting]:
    """Every statistic, population, size and mu."""
    return [
        Setting(statistic, name, n, mu, replicates)
        for statistic, n, mu, name in itertools.product(STATISTICS, SIZES, MUS, populations())
    ]


def required(found: Found) -> float:
    """The least coverage of what is so published."""
    allowed = {
        "asymptotic": most_shortfall(found.level),
        "guaranteed": 0.0,
        "approximate": 1.0,
    }
    return found.level - allowed[found.inference]


def is_below(found: Found, deviations: float) -> bool:
    """Whether the coverage is below what is required by as many deviations of chance."""
    least = max(required(found), 0.0)
    chance = math.sqrt(least * (1 - least) / found.setting.replicates)
    return found.covered < least - deviations * chance


def is_doubtful(found: Found) -> bool:
    """Whether another simulation has to tell chance from a fault."""
    return is_below(found, _LOOKED_AT.get(found.inference, 0.0))


def shortfalls(found: Iterable[Found]) -> list[Found]:
    """What covers less than it is published to, and not by chance."""
    return [each for each in found if is_below(each, _CHANCE)]


def again(found: Found) -> Found:
    """The same more often and with another seed."""
    made = found.setting
    more = dataclasses.replace(made, replicates=TIMES_MORE * made.replicates, seed=made.seed + 1)
    return next(each for each in figures(more, (found.level,)) if each.inference == found.inference)


def looked_at_again(found: Iterable[Found]) -> Iterator[tuple[Found, Found]]:
    """What is below and is not approximate, with another simulation of it."""
    return ((each, again(each)) for each in found if is_doubtful(each))


def summary(found: list[Found], looked: list[Found]) -> str:
    """How many rows there are, were simulated again, and fall short."""
    kinds = {kind: sum(each.inference == kind for each in found) for kind in _LOOKED_AT}
    doubtful = {kind: sum(each.inference == kind for each in looked) for kind in _LOOKED_AT}
    furthest = 100 * max((required(each) - each.covered for each in looked), default=0.0)
    least: dict[float, float] = {}
    for each in found:
        if each.inference == "asymptotic":
            least[each.level] = min(each.covered, least.get(each.level, 1.0))
    return (
        f"{len(found):,} rows. Of {kinds['asymptotic']:,} asymptotic ones {doubtful['asymptotic']} "
        f"were simulated again, of {kinds['guaranteed']:,} guaranteed ones "
        f"{doubtful['guaranteed']}; the furthest was then {furthest:.2f} points below what is "
        f"required, and {len(shortfalls(looked))} fall short. The least coverage of an asymptotic "
        f"one is {', '.join(f'{_share(c)} at {level:g}' for level, c in sorted(least.items()))}."
    )


def condensed(found: Iterable[Found]) -> Iterator[str]:
    """Lines of Markdown: of all populations the least coverage, and the widths over the oracle's.

    Coverage at each level, with a * where the interval is published as approximate; then, at the
    middle level, the median width over the oracle's and the largest.
    """
    everything = sorted(found, key=lambda each: STATISTICS.index(each.setting.statistic))
    tables: dict[tuple[str, str], list[Found]] = {}
    for each in everything:
        kind = "guaranteed" if each.inference == "guaranteed" else "by approximation"
        tables.setdefault((each.setting.statistic, kind), []).append(each)
    mus = sorted({each.setting.mu for each in everything})
    for (statistic, kind), rows in tables.items():
        yield from (
            "",
            f"| {statistic}, {kind} | " + " | ".join(f"μ = {mu:g}" for mu in mus) + " |",
            "|---" * (len(mus) + 1) + "|",
        )
        for n in sorted({each.setting.n for each in rows}):
            cells = [
                _cell([each for each in rows if (each.setting.n, each.setting.mu) == (n, mu)])
                for mu in mus
            ]
            yield f"| n = {n:,} | " + " | ".join(cells) + " |"


def _cell(found: list[Found]) -> str:
    """Of one statistic, size and mu."""
    levels, worst = sorted({each.level for each in found}), []
    for level in levels:
        rows = [each for each in found if each.level == level]
        star = "\\*" if rows[0].inference == "approximate" else ""
        worst.append(_share(min(each.covered for each in rows)) + star)
    middle = levels[len(levels) // 2]
    ratios = [each.width / each.oracle for each in found if each.level == middle]
    return f"{' '.join(worst)}, {_ratio(float(np.median(ratios)))}–{_ratio(max(ratios))}"


def _share(covered: float) -> str:
    return f"{covered:.3f}".removeprefix("0") if covered < 0.9995 else "1"


def _ratio(ratio: float) -> str:
    return "∞" if math.isinf(ratio) else f"{ratio:.2f}"


def main() -> None:
    """Print the tables, and end with 1 if something falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} replicates")
    parser.add_argument("--level", type=float, nargs="*", default=LEVELS)
    parser.add_argument("--statistic", nargs="*", default=STATISTICS, choices=STATISTICS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--page",
        type=Path,
        help=f"a file in which what follows '{MARK}' is replaced by the condensed tables",
    )
    chosen = parser.parse_args()
    settings = [
        each
        for each in all_settings(QUICK if chosen.quick else REPLICATES)
        if each.statistic in chosen.statistic
    ]
    everything: list[Found] = []
    print(HEADING)
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # of the processes
    with ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn")) as pool:
        work = functools.partial(_listed, levels=tuple(chosen.level))
        for rows in pool.map(work, settings):
            everything += rows
            for each in rows:
                print(each.row(), flush=True)
        below = [each for each in everything if is_doubtful(each)]
        print(f"\n{len(below)} of {len(everything)} looked at again:\n{HEADING}")
        looked = []
        for each, more in zip(below, pool.map(again, below), strict=True):
            print(each.row(), f"again {more.covered:.4f}", flush=True)
            looked.append(more)
    lines = [summary(everything, looked), *condensed(everything)]
    print("", *lines, sep="\n")
    if chosen.page:
        before, _, _ = chosen.page.read_text().partition(MARK)
        chosen.page.write_text("\n".join([before + MARK, "", *lines, ""]))
    if shortfalls(looked):
        raise SystemExit(1)


def _listed(setting: Setting, levels: tuple[float, ...]) -> list[Found]:
    return list(figures(setting, levels))


if __name__ == "__main__":
    main()
