"""Coverage of weighted figures of a population under stratified and clustered designs.

    python -m tests.benchmarks.weighted_coverage [--replicates 200] [--epsilons 1 3]

The population is of households of Atlanta (``tests/support/arc_households.py``, which are
downloaded), each as often as its weight says, up to 612,000. Of four strata by income one household
in 10, 20, 40 or 80 is drawn, 20,400 in all: single ones, or 17 clusters of 1,200 that are made of
households in like buildings, half of them at random. Every replicate draws a sample anew and adds
the noise of a release by ``marginals`` with ``screen: no`` and delta = 1e-6, which measures the
tables of two columns that figures need, with the weight and the design, too. Intervals at .95 are
by the declared design, and by independent draws. Regression is by least squares with three
regressors.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from statpress.mechanisms.marginals.analyses import Analyses, numbers_of
from statpress.mechanisms.marginals.linear_moments import ONE, Interval
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, combine

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

EPSILONS, LEVEL, ASKED = (1.0, 3.0), 0.95, (0.93, 0.97)
COLUMNS = ("np", "nwrkrs_esr", "veh", "bld", "hincp")
TOGETHER = ("nwrkrs_esr", "veh")
SIZES, CLUSTER_SIZE = (84_000, 96_000, 144_000, 288_000), 1200
"""Households of the strata, of the largest incomes first."""


@functools.cache
def population(clustered: bool) -> Any:
    """The households with their strata, and clusters if there are any."""
    import arc_households as arc
    from weighted_surveys import Population

    domain, rng = arc.domain(), np.random.default_rng(20261126)
    times = arc.households()[arc.WEIGHT].to_numpy(np.int64)
    codes = arc.coded(domain)[np.repeat(np.arange(len(times)), times)]
    codes = codes[rng.permutation(len(codes))[: sum(SIZES)]].astype(np.int64)
    places = {name: domain.names.index(name) for name in COLUMNS}
    codes = codes[np.argsort(-codes[:, places["hincp"]], kind="stable")]
    stratum = np.repeat(np.arange(len(SIZES)), SIZES)
    cluster = None
    if clustered:
        apart = rng.permutation(len(codes)) / len(codes) * domain["bld"].size
        like = np.where(rng.random(len(codes)) < 0.5, codes[:, places["bld"]], apart)
        codes = codes[np.lexsort((like, stratum))]
        cluster = np.concatenate([np.arange(size) // CLUSTER_SIZE for size in SIZES])
    return Population({n: codes[:, at] for n, at in places.items()}, stratum, cluster)


def answers(asked: Analyses) -> Iterator[tuple[str, Interval]]:
    """Every figure of the benchmark by its kind."""
    domain = asked.domain
    for name in ("np", "veh", "hincp"):
        yield "mean", asked.mean(name, {})
        yield "total", asked.total(name, {})
    for part in (0.25, 0.5, 0.75):
        yield "quantile", asked.quantile("hincp", part, {})
    for name in ("nwrkrs_esr", "veh", "bld"):
        for code in range(3):
            yield "share", asked.share(name, [code], {})
    for code in range(3):
        yield "ratio", asked.mean("veh", {"nwrkrs_esr": [code]})
    for code in (1, 2):
        yield "difference", asked.difference("veh", {"nwrkrs_esr": [code]}, {"nwrkrs_esr": [0]})
    workers = numbers_of(domain["nwrkrs_esr"])
    regressors = [ONE, asked.function("nwrkrs_esr", workers)]
    regressors.append(asked.function("nwrkrs_esr", (workers == 0).astype(float)))
    outcome = asked.function("veh", numbers_of(domain["veh"]))
    for interval in asked.regression(outcome, regressors):
        yield "regression", interval


@functools.cache
def truth(clustered: bool) -> tuple[float, ...]:
    """The figures of the population."""
    import arc_households as arc
    from coded import in_memory
    from weighted_surveys import domain_of

    values = population(clustered).values
    domain = domain_of(values, arc.domain().columns)
    own = domain.project(COLUMNS)
    groups = [*((j,) for j in range(len(COLUMNS))), tuple(map(COLUMNS.index, TOGETHER))]
    codes = np.stack([values[name] for name in COLUMNS], axis=1).astype(np.uint8)
    tables = zip(groups, in_memory(own, codes).tables(groups), strict=True)
    exact = [NoisyTable(group, Fraction(1, 10**6), table * GRID) for group, table in tables]
    residuals = combine([column.size for column in own.columns], exact, n_present=len(codes))
    return tuple(each.value for _, each in answers(Analyses(domain=own, residuals=residuals)))


@functools.cache
def measured(clustered: bool, epsilon: float) -> Any:
    """What every replicate measures, as a release of one of them would."""
    import arc_households as arc
    from weighted_surveys import CLUSTER, STRATUM, WEIGHT, Measured

    drawn, _ = population(clustered).drawn(np.random.default_rng(1))
    groups = [(*TOGETHER, WEIGHT, STRATUM)]
    groups += [(*TOGETHER, WEIGHT, CLUSTER)] if clustered else []
    return Measured.of(drawn, epsilon, declared=arc.domain().columns, groups=groups)


Counts = dict[tuple[str, str, str], list[int]]
"""Per kind, design and by what the sampling variance was: how often it held, and of how many."""


def covered(clustered: bool, epsilon: float, runs: int, seed: int = 0) -> Counts:
    """How often intervals hold the figures of the population."""
    from weighted_surveys import covers

    rng, plan = np.random.default_rng([seed, clustered]), measured(clustered, epsilon)
    found: Counts = defaultdict(lambda: [0, 0])
    for _ in range(runs):
        columns, _ = population(clustered).drawn(rng)
        residuals, n = plan.residuals(columns, rng), len(columns[COLUMNS[0]])
        for design in ("declared", "undeclared"):
            own = design == "declared"
            asked = plan.analyses(residuals, n, strata=own, clusters=own and clustered)
            for (kind, interval), true in zip(answers(asked), truth(clustered), strict=True):
                count = found[kind, design, interval.sampling]
                count[0] += covers(interval, true)
                count[1] += 1
    return dict(found)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    chosen = parser.parse_args(arguments)
    print(
        "| drawn | epsilon | figure | design | variance by | coverage |\n|---|---|---|---|---|---|"
    )
    for clustered in (False, True):
        for epsilon in chosen.epsilons:
            print_rows(clustered, epsilon, covered(clustered, epsilon, chosen.replicates))


def print_rows(clustered: bool, epsilon: float, counts: Counts) -> None:
    """Print a row for each kind of figure, design and way of its sampling variance."""
    label = "clusters" if clustered else "single ones"
    for (kind, design, by), (held, of) in sorted(counts.items()):
        row = f"| {label} | {epsilon:g} | {kind} | {design} | {by} | {held / of:.3f} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
