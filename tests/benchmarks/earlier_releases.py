"""Records by ``marginals`` with earlier releases as prior and without, and both intervals.

    python -m tests.benchmarks.earlier_releases [SERIES ...] [--quick] [--output DIR]

| series | vintages |
|---|---|
| ``happiness`` | its three years: 14 columns of 2 977, 2 885 and 2 806 records |
| ``cps91`` | 24 months of 5 634 records drawn from it, with drift, a season, and one break |
| ``census2000`` | three states for years, drawn anew for each seed: 3 columns of all records |

Discrete noise from known seeds, replace-one, delta = 1e-6, every setting its default. Errors are
the mean total variation of all pairs between the true and the fitted shares of the third vintage,
over that of it alone. A prior that is ``reversed`` has the codes of every column in reverse, one
that is ``permuted`` has them in a random order, and one that is ``fabricated`` is drawn at random.
The ``exact`` one has the second vintage's tables without any noise, which no release can have: what
it leaves of the error is about the least that any earlier release could.

Of the last vintage stand beside it the share of 95 % intervals that hold the true count, and their
mean width, of all cells of single columns and of some measured pairs: ``own`` from this release
alone, ``with`` those with the prior (``mechanisms.marginals.with_prior``). One line for each
series, epsilon and seed is written as soon as it is known; what is there already is not computed
again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.kept_rows import kept_rows

if TYPE_CHECKING:
    from statpress.mechanisms.domain.domain import Domain
    from statpress.mechanisms.marginals.analyses import Analyses
    from statpress.mechanisms.marginals.prior import Prior
    from statpress.mechanisms.marginals.residuals import NoisyMarginals
    from statpress.mechanisms.marginals.with_prior import PriorAnalyses

SUPPORT = str(Path(__file__).parents[1] / "support")
EPSILONS, SEEDS, DELTA = (0.3, 1.0, 3.0), 20, 1e-6
PRIORS = ("chain", "exact", "reversed", "permuted", "fabricated")
SERIES = {"happiness": 3, "cps91": 24, "census2000": 3}
"""Vintages of each."""
THIRD, MOST_PAIRS = 3, 8
Codes = NDArray[Any]


def vintages(series: str, seed: int, columns: int | None, number: int) -> tuple[Any, list[Codes]]:
    """The declared columns, and codes[n, d] of every vintage."""
    sys.path.insert(0, SUPPORT)
    from wide_tables import coded, columns_of

    sizes, codes = coded(series)
    declared = columns_of(series)
    rng = np.random.default_rng([seed, 7])
    if series == "cps91":
        declared, codes = declared[:columns], codes[:, :columns]
        return declared, list(_months(codes, sizes, rng, number))
    at, used = (0, range(1, len(sizes))) if series == "happiness" else _states(codes, sizes)
    groups = list(range(THIRD))
    if series == "census2000":
        counts = np.bincount(codes[:, at], minlength=sizes[at])
        groups = rng.choice(np.flatnonzero(counts >= 300), THIRD, replace=False).tolist()
    kept = list(used)[:columns]
    own = [codes[codes[:, at] == group][:, kept] for group in groups]
    return tuple(declared[column] for column in kept), own


def _states(codes: Codes, sizes: Sequence[int]) -> tuple[int, list[int]]:
    """The column of states, and all others."""
    from wide_tables import names_of

    at = names_of("census2000").index("state")
    return at, [column for column in range(codes.shape[1]) if column != at]


def _months(
    codes: Codes, sizes: Sequence[int], rng: np.random.Generator, number: int
) -> Iterator[Codes]:
    """Months of as many records: each record's chance drifts, and has a season; one break."""
    places = codes / (np.array(sizes[: codes.shape[1]]) - 1)
    trend, season = (places @ rng.normal(0, 0.25, places.shape[1]) for _ in range(2))
    broken = int(rng.integers(codes.shape[1]))
    for month in range(number):
        chances = np.exp(month / 24 * trend + np.sin(month * np.pi / 6) * season)
        drawn = codes[rng.choice(len(codes), len(codes), p=chances / chances.sum())].copy()
        if month >= number / 2 > 2:
            moved = rng.random(len(drawn)) < 0.2
            drawn[moved, broken] = rng.permutation(drawn[moved, broken])
        yield drawn


def exact(codes: Codes, domain: Domain) -> Prior:
    """A prior that knows all pairs of a vintage, without noise."""
    from statpress.mechanisms.marginals.prior import Prior

    columns = range(len(domain.columns))
    shares = tuple(_true(codes, domain, (column,)) for column in columns)
    pairs = {pair: _true(codes, domain, pair) for pair in itertools.combinations(columns, 2)}
    return Prior(seal="", one_way=shares, variances=(0.0,) * len(shares), pairs=pairs)


def wrong(prior: Prior, rng: np.random.Generator) -> Iterator[tuple[str, Prior]]:
    """Priors that say nothing true of the data."""
    places = [np.arange(len(shares)) for shares in prior.one_way]
    for name, orders in (
        ("reversed", [order[::-1] for order in places]),
        ("permuted", [rng.permutation(order) for order in places]),
    ):
        shares = tuple(s[order] for s, order in zip(prior.one_way, orders, strict=True))
        pairs = {(a, b): t[np.ix_(orders[a], orders[b])] for (a, b), t in prior.pairs.items()}
        yield name, replace(prior, one_way=shares, pairs=pairs)
    drawn = {pair: rng.dirichlet(np.ones(t.size)) for pair, t in prior.pairs.items()}
    pairs = {pair: table.reshape(prior.pairs[pair].shape) for pair, table in drawn.items()}
    shares = tuple(rng.dirichlet(np.ones(len(order))) for order in places)
    yield "fabricated", replace(prior, one_way=shares, pairs=pairs)


def measure(
    series: str, epsilon: float, seed: int, columns: int | None = None, *, errors_only: bool = False
) -> dict[str, float]:
    """Errors and intervals of one seed.

    Args:
        series: One of ``SERIES``.
        epsilon: Of every release.
        seed: Of noise, and of what is drawn of the series.
        columns: The first so many of it.
        errors_only: Whether intervals, of the last vintage, are left out.
    """
    number = THIRD if errors_only else SERIES[series]
    declared, years = vintages(series, seed, columns, number)
    from coded import CodesInMemory

    from statpress.mechanisms.domain.domain import Domain
    from statpress.mechanisms.marginals.denoising import Model
    from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
    from statpress.mechanisms.mechanism import Target
    from statpress.tasks.release.entropy import SeededRandomness

    domain = Domain(declared)

    def released(year: int, prior: Prior | None) -> NoisyMarginals:
        own = years[year]
        target = Target(epsilon=epsilon, delta=DELTA, n_records=len(own), n_cells=2, domain=domain)
        made = replace(Marginals.calibrate(MarginalsKnobs(), target), prior=prior)
        private = CodesInMemory(domain, len(own), tuple(np.ascontiguousarray(own.T)))
        return made.release(private, SeededRandomness(np.random.PCG64([seed, year])))

    prior, found = None, {}
    for year in range(number):
        release = released(year, prior)
        if year == THIRD - 1:
            assert prior is not None
            known = {"alone": None, "chain": prior, "exact": exact(years[year - 1], domain)}
            for name, each in {**known, **dict(wrong(prior, np.random.default_rng(seed)))}.items():
                pairs = Model.of(released(year, each)).pairs
                apart = [
                    np.abs(pairs[a, b] - _true(years[year], domain, (a, b))).sum() / 2
                    for a, b in pairs
                ]
                found[name] = float(np.mean(apart))
        if year == number - 1 and not errors_only:
            found |= intervals(release, years[year], np.random.default_rng([seed, 3]))
        prior = Model.of(release).as_prior(release, "")
    return found


def _true(codes: Codes, domain: Domain, group: Sequence[int]) -> NDArray[np.float64]:
    table = np.zeros([domain.columns[column].size for column in group])
    np.add.at(table, tuple(codes[:, column] for column in group), 1 / len(codes))
    return table


def intervals(release: NoisyMarginals, codes: Codes, rng: np.random.Generator) -> dict[str, float]:
    """Coverage and mean width of 95 % intervals of counts, with the prior and without."""
    from statpress.mechanisms.marginals.analyses import Analyses
    from statpress.mechanisms.marginals.with_prior import PriorAnalyses

    domain, residuals = release.domain, release.residuals()
    alone = Analyses(domain=domain, residuals=residuals)
    both = PriorAnalyses(**vars(alone), released=release)
    found = {}
    for kind, size in (("columns", 1), ("pairs", 2)):
        groups = sorted(g for g, v in residuals.variances.items() if len(g) == size and v)
        most = None if size == 1 else MOST_PAIRS
        kept = [groups[at] for at in rng.permutation(len(groups))[:most]]
        ends = {
            "own": [_wald(alone, group) for group in kept],
            "with": [_quantiles(both, group) for group in kept],
        }
        true = [_true(codes, domain, group).ravel() * len(codes) for group in kept]
        for name, each in ends.items():
            inside, widths = [], []
            for (lower, upper), counts in zip(each, true, strict=True):
                inside.extend((lower - 1e-6 <= counts) & (counts <= upper + 1e-6))
                widths.extend(upper - lower)
            found[f"{name} {kind}"] = float(np.mean(inside)) if inside else float("nan")
            found[f"{name} {kind} width"] = float(np.mean(widths)) if inside else float("nan")
    return found


def _wald(analyses: Analyses, group: Sequence[int]) -> NDArray[np.float64]:
    """Lower and upper ends of 95 % intervals of a group's counts, float64[2, cells]."""
    columns = [analyses.domain.columns[column] for column in group]
    names = [column.name for column in columns]
    cells = itertools.product(*(range(column.size) for column in columns))
    found = [analyses.count(dict(zip(names, ([c] for c in cell), strict=True))) for cell in cells]
    return np.array([[each.lower for each in found], [each.upper for each in found]])


def _quantiles(analyses: PriorAnalyses, group: Sequence[int]) -> NDArray[np.float64]:
    """Those with the prior, float64[2, cells], of all cells of a draw at once."""
    drawn = [own.residuals.table(group).ravel() for own in analyses._draws]
    return np.quantile(drawn, [0.025, 0.975], axis=0)


def ratios(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean errors over that of the year alone."""
    alone = np.mean([row["alone"] for row in rows])
    return {name: float(np.mean([row[name] for row in rows]) / alone) for name in PRIORS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("series", nargs="*", choices=[*SERIES, []], default=[])
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--output", type=Path, default=Path("earlier_releases"))
    said = parser.parse_args()
    seeds, chosen = range(2 if said.quick else SEEDS), said.series or SERIES
    keys = itertools.product(chosen, EPSILONS, seeds)
    file = said.output / "errors.jsonl"
    there = kept_rows(file, ("series", "epsilon", "seed"), keys, measure)
    for series, epsilon in itertools.product(chosen, EPSILONS):
        rows = [there[series, epsilon, seed] for seed in seeds]
        alone = np.mean([row["alone"] for row in rows])
        words = ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios(rows).items())
        print(
            f"{series}, epsilon {epsilon:g}, {len(rows)} seeds: alone {alone:.4f}; over it {words}"
        )
        for kind in ("columns", "pairs"):
            means = {
                name: np.nanmean(
                    [[r[f"{name} {kind}"], r[f"{name} {kind} width"]] for r in rows], 0
                )
                for name in ("own", "with")
            }
            width = means["with"][1] / means["own"][1]
            print(
                f"  {kind}: covered {means['own'][0]:.3f} alone, {means['with'][0]:.3f} with the "
                f"prior, whose intervals are {width:.2f} times as wide"
            )


if __name__ == "__main__":
    main()
