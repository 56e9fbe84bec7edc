"""Coverage of what a release's noisy tables say of means, shares, quantiles and least squares.

    python -m tests.benchmarks.moment_coverage [--quick] [--replicates 4000] [--output FILE]

``happiness`` with 15 columns is the population: every replicate draws as many records from it (or
2,000 of them), counts all pairs, and adds the noise of a release by ``marginals`` with ``screen:
no``, delta = 1e-6. Intervals at .95 are for those records, and for the population. Blocks of
replicates that the file has already are not simulated again. Where a matrix is not clear of its
noise the intervals are Anderson and Rubin's sets, in rows of their own.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from statpress.mechanisms.domain.columns import Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.analyses import Analyses, numbers_of
from statpress.mechanisms.marginals.linear_moments import ONE, CellFunction, Interval, LeastSquares
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, Residuals, combine
from statpress.mechanisms.marginals.target_tables import Group, counts_of
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness
from tests.benchmarks.kept_rows import kept_rows

EPSILONS, LEVEL, DELTA, BLOCK = (0.3, 1.0, 3.0), 0.95, 1e-6, 50
ASKED = {
    "least squares": (0.935, 0.975),
    "Anderson-Rubin": (0.92, 1.0),
    "mean": (0.935, 0.965),
    "share": (0.935, 0.965),
    "median": (0.935, 0.965),
    "difference": (0.935, 0.965),
    "correlation": (0.935, 0.965),
}
"""Between which the coverage of every figure of a kind is asked to be."""
OUTPUT = Path("build/moment_coverage.jsonl")


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    epsilon: float
    n: int

    def __str__(self) -> str:
        return f"{self.epsilon:g}, {self.n:,}"


@functools.cache
def survey() -> tuple[Domain, np.ndarray]:
    """The declared columns and the codes unsigned[n, d]."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from wide_tables import coded, columns_of

    _, codes = coded("happiness")
    edges = {"prestige": (0, *range(20, 90, 10), 100), "educ": (0, 8, 9, 12, 13, 14, 16, 17, 21)}
    edges |= {"babies": (0, 1, 2, 3, 10), "tvhours": (0, 1, 2, 3, 4, 5, 7, 10, 25)}
    columns = tuple(
        Numeric(name=each.name, edges=tuple(map(float, edges[each.name])), missing=True)
        if each.name in edges
        else each
        for each in columns_of("happiness")
    )
    return Domain(columns), codes


@functools.cache
def measured(setting: Setting) -> list[tuple[Group, Fraction]]:
    """The tables of a release, with the scales of their noise, which no data decide."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from coded import in_memory

    domain, codes = survey()
    target = Target(
        epsilon=setting.epsilon, delta=DELTA, n_records=setting.n, n_cells=2, domain=domain
    )
    made = Marginals.calibrate(MarginalsKnobs(screen="no"), target)
    release = made.release(
        in_memory(domain, codes[: setting.n]), SeededRandomness(np.random.PCG64(1))
    )
    return [(table.group, table.scale) for table in (*release.one_way, *release.tables)]


def residuals(setting: Setting, codes: np.ndarray, rng: np.random.Generator | None) -> Residuals:
    """The combined tables of records; without a generator without noise."""
    domain, _ = survey()
    sizes = [column.size for column in domain.columns]
    tables = measured(setting)
    shapes = [tuple(sizes[c] for c in group) for group, _ in tables]
    noisy = []
    for (group, scale), shape, flat in zip(
        tables, shapes, counts_of(codes, [group for group, _ in tables], shapes), strict=True
    ):
        values = flat.reshape(shape) * GRID
        if rng is not None:
            values = values + np.rint(rng.normal(0, float(scale), shape)).astype(np.int64)
        noisy.append(NoisyTable(group, scale, values))
    return combine(sizes, noisy, n_present=len(codes))


def regressors(domain: Domain) -> tuple[CellFunction, dict[str, CellFunction]]:
    """Prestige, and seven predictors; missing numbers count as the middle of the others."""

    def function(name: str, values: np.ndarray) -> CellFunction:
        return CellFunction((domain.names.index(name),), values)

    def number(name: str) -> CellFunction:
        values = numbers_of(domain[name])
        return function(name, np.where(np.isnan(values), np.nanmean(values), values))

    def dummy(name: str, code: int) -> CellFunction:
        return function(name, (np.arange(domain[name].size) == code).astype(float))

    predictors = {"Intercept": ONE}
    predictors |= {name: number(name) for name in ("educ", "babies", "tvhours", "year")}
    predictors |= {name: dummy(name, 1) for name in ("female", "black")}
    predictors |= {f"happy {code}": dummy("happy", code) for code in (1, 2)}
    return number("prestige"), predictors


@functools.cache
def questions() -> list[tuple[str, str, str, tuple[Any, ...]]]:
    """Of each figure its kind, its name, and the method of ``Analyses`` with its arguments."""
    domain, _ = survey()

    def codes(name: str) -> list[int]:
        column = domain[name]
        return [code for code in range(column.size) if code != column.missing_code]

    asked: list[tuple[str, str, str, tuple[Any, ...]]] = []
    for name, by in (("prestige", "female"), ("prestige", "happy"), ("tvhours", "region")):
        for code in codes(by):
            asked.append(("mean", f"{name} by {by} {code}", "mean", (name, {by: [code]})))
    for name, by in (("happy", "female"), ("attend", "black")):
        for code, group in itertools.product(codes(name), codes(by)):
            arguments = (name, [code], {by: [group]})
            asked.append(("share", f"{name} {code} by {by} {group}", "share", arguments))
    for name, by in (("prestige", "female"), ("tvhours", "happy")):
        for code in codes(by):
            arguments = (name, 0.5, {by: [code]})
            asked.append(("median", f"{name} by {by} {code}", "quantile", arguments))
    for name, by in (("prestige", "female"), ("educ", "happy"), ("prestige", "black")):
        first, *others = codes(by)
        for code in others:
            arguments = (name, {by: [code]}, {by: [first]})
            asked.append(("difference", f"{name} by {by} {code}", "difference", arguments))
    for one, other in (("educ", "prestige"), ("educ", "tvhours"), ("babies", "year")):
        arguments = (one, other, {})
        asked.append(("correlation", f"{one} and {other}", "correlation", arguments))
    return asked


def answers(
    residuals: Residuals, sample: Sample | None = None, true: Sequence[Interval] | None = None
) -> list[Interval]:
    """What the tables say of all questions.

    Where the truth is given, the ends of a set that holds it are not looked for: they are infinite.
    """
    domain, _ = survey()
    asked = Analyses(domain=domain, residuals=residuals, sample=sample, confidence=LEVEL)
    found = []
    for place, (*_, method, arguments) in enumerate(questions()):
        with nullcontext() if true is None else only_if_it_is_outside(true[place].value):
            found.append(getattr(asked, method)(*arguments))
    return found


@contextmanager
def only_if_it_is_outside(true: float) -> Iterator[None]:
    """Ends of a set are looked for only if it does not hold this value."""
    limits = LeastSquares.limits

    def ends(made: LeastSquares, j: int, confidence: float) -> tuple[float, float]:
        if made.holds(j, true, confidence):
            return -math.inf, math.inf
        return limits(made, j, confidence)

    with patch.object(LeastSquares, "limits", ends):
        yield


def squares(fitted: LeastSquares, true: np.ndarray) -> list[tuple[str, bool]]:
    """Of each coefficient the kind of its set, and whether this holds the true one."""
    if not fitted.is_clear():
        return [("Anderson-Rubin", fitted.holds(j, b, LEVEL)) for j, b in enumerate(true)]
    sets = fitted.intervals(LEVEL)
    return [
        ("least squares", each.lower <= b <= each.upper) for each, b in zip(sets, true, strict=True)
    ]


Counts = dict[tuple[str, str, str], list[int]]
"""Per kind, name and whose figure: how often it was covered, and of how many."""


def simulated(setting: Setting, block: int, runs: int) -> Counts:
    """One block of replicates."""
    domain, codes = survey()
    population = residuals(setting, codes, None)
    scale = setting.n / len(codes)
    population = replace(
        population, values={part: each * scale for part, each in population.values.items()}
    )
    outcome, predictors = regressors(domain)
    names, functions = list(predictors), list(predictors.values())

    def truth(exact: Residuals) -> tuple[list[Interval], np.ndarray]:
        return answers(exact), LeastSquares.of(exact, outcome, functions).estimates()

    of_population, sample = truth(population), Sample(n_units=setting.n)
    rng = np.random.default_rng([round(10 * setting.epsilon), setting.n, block])
    found: Counts = defaultdict(lambda: [0, 0])
    for _ in range(runs):
        drawn = codes[rng.integers(len(codes), size=setting.n)]
        noisy, of_records = residuals(setting, drawn, rng), truth(residuals(setting, drawn, None))
        for of, true, units in (
            ("records", of_records, None),
            ("population", of_population, sample),
        ):
            held = [
                (kind, name, made.lower <= exact.value <= made.upper)
                for (kind, name, *_), made, exact in zip(
                    questions(), answers(noisy, units, true[0]), true[0], strict=True
                )
            ]
            n = setting.n if units else None
            fitted = LeastSquares.of(noisy, outcome, functions, n_sampled=n)
            sets = squares(fitted, true[1])
            held += [(kind, name, holds) for name, (kind, holds) in zip(names, sets, strict=True)]
            for kind, name, holds in held:
                count = found[kind, name, of]
                count[0] += bool(holds)
                count[1] += 1
    return dict(found)


def rows(found: Counts) -> Iterator[tuple[str, str, int, float, float, float]]:
    """Kind, whose, number of figures, mean, least and largest coverage."""
    kinds: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for (kind, _, of), (hits, runs) in found.items():
        kinds[kind, of].append((hits, runs))
    for (kind, of), each in sorted(kinds.items()):
        often = [(hits, runs) for hits, runs in each if runs >= max(r for _, r in each) / 2]
        shares = [hits / runs for hits, runs in often]
        yield (
            kind,
            of,
            len(shares),
            sum(h for h, _ in each) / sum(r for _, r in each),
            min(shares),
            max(shares),
        )


def main(arguments: list[str] | None = None) -> None:
    """Simulate what the file does not have yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 replicates, into no file")
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args(arguments)
    blocks, runs = (1, 20) if chosen.quick else (-(-chosen.replicates // BLOCK), BLOCK)
    _, codes = survey()
    settings = [*(Setting(epsilon, len(codes)) for epsilon in EPSILONS), Setting(1.0, 2000)]
    keys = [(each.epsilon, each.n, block) for block in range(blocks) for each in settings]
    found = kept_rows(
        None if chosen.quick else chosen.output,
        ("epsilon", "n", "block"),
        keys,
        lambda epsilon, n, block: list(simulated(Setting(epsilon, n), block, runs).items()),
    )
    print("| epsilon, n | figures | of | how many | mean | least | largest | replicates |")
    print("|---|---|---|---|---|---|---|---|")
    for setting in settings:
        total: Counts = defaultdict(lambda: [0, 0])
        for block in range(blocks):
            for key, (hits, n) in found[setting.epsilon, setting.n, block]:
                had = total[tuple(key)]
                total[tuple(key)] = [had[0] + hits, had[1] + n]
        for line in lines(setting, total, blocks * runs):
            print(line)


def lines(setting: Setting, total: Counts, replicates: int) -> Iterator[str]:
    """Rows of a setting, as the table shows them."""
    for kind, of, number, mean, least, largest in rows(total):
        figures_of = f"{number} | {mean:.3f} | {least:.3f} | {largest:.3f}"
        yield f"| {setting} | {kind} | {of} | {figures_of} | {replicates} |"


if __name__ == "__main__":
    main()
