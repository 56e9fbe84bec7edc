"""Coverage of what analysts compute on copies of records and combine by Rubin's rule.

    python -m tests.benchmarks.copies_coverage [--tables happiness ...] [--epsilons .3 1 3]
        [--replicates 200] [--output FILE]

The table is the population. Every replicate draws records from it, as many as it has (10,000 of
``adult``), releases them by ``marginals`` with delta = 1e-6, and fits the models of ``ASKED`` to
the single file and to ten copies. Columns count by their codes. Intervals are at .95, for the
population: naive ones of the single file, those of the copies, and those that forget the variance
between the copies. A figure that a copy does not have, as the variance of one record, counts as
missed. Replicates that the file has already are not run again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from statpress.mechanisms.domain.columns import Column, Ordinal
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.copies import combined
from statpress.mechanisms.marginals.linear_moments import ONE, CellFunction, LeastSquares
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import Residuals
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness
from tests.benchmarks.kept_rows import kept_rows

Floats = NDArray[np.float64]
Codes = NDArray[Any]

LEVEL, DELTA, COPIES, EPSILONS = 0.95, 1e-6, 10, (0.3, 1.0, 3.0)
OUTPUT = Path("build/copies_coverage.jsonl")
SUPPORT = str(Path(__file__).parents[1] / "support")
ASKED: dict[str, tuple[str, ...]] = {
    "happiness": (
        "least squares: prestige ~ educ + female + black + income + year",
        "least squares: happy ~ income + attend + educ + female + divorce=1",
        "least squares: tvhours ~ educ + black + babies + prestige",
        "least squares: educ ~ black + female + reg16=3 + reg16=9 + year",
        "least squares: attend ~ female + black + happy + babies + region=4",
        "least squares: prestige ~ educ + female + educ*female",
        "logistic: black=1 ~ educ + prestige + female + region=4",
        "logistic: female ~ prestige + educ + prestige*educ + workstat=6",
        "logistic: workstat=6 ~ female + babies + female*babies",
        "mean: prestige by female",
        "mean: tvhours by happy",
        "median: educ by female",
        "median: prestige by black",
        "difference: educ by female",
        "difference: attend by black",
        "odds ratio: happy=2 and divorce=1",
        "odds ratio: owngun=1 and female",
    ),
    "cps91": (
        "least squares: earns ~ educ + age + hours + union=1 + black",
        "least squares: hours ~ kidlt6 + kidge6 + husearns + educ",
        "least squares: faminc ~ earns + husearns + educ + huseduc",
        "logistic: inlf ~ kidlt6 + educ + husearns + age",
        "logistic: union ~ educ + age + black + educ*age",
        "mean: earns by union",
        "mean: hours by kidlt6",
        "median: educ by inlf",
        "difference: earns by black",
        "odds ratio: inlf=1 and kidlt6=1",
    ),
    "adult": (
        "least squares: hours ~ sex + age + education_num + marital=2",
        "least squares: education_num ~ sex + race=4 + age",
        "least squares: age ~ income + sex + marital=2",
        "logistic: income ~ education_num + age + hours + sex + marital=2",
        "logistic: sex ~ hours + age + income + hours*income",
        "mean: hours by sex",
        "mean: age by income",
        "median: age by sex",
        "difference: education_num by income",
        "odds ratio: income=1 and marital=2",
    ),
    "ladder": (
        "least squares: d ~ a + b + c",
        "least squares: f ~ e + a + a*e",
        "logistic: g ~ a + d + f",
        "logistic: b=0 ~ a + g",
        "mean: d by g",
        "median: f by a",
        "difference: f by g",
        "odds ratio: b=0 and g=1",
    ),
}
"""Questions by table: dummies are ``column=code``, products are of what is centred."""


@dataclass(frozen=True)
class Question:
    """A model, or what is compared between the records with codes 0 and 1 of a column.

    Attributes:
        kind: As it is asked.
        outcome: What is explained or compared.
        terms: By what.
    """

    kind: str
    outcome: str
    terms: tuple[str, ...]

    @classmethod
    def of(cls, asked: str) -> Question:
        """Read a line of ``ASKED``."""
        kind, _, model = asked.partition(": ")
        outcome, terms = re.split(" ~ | by | and ", model, maxsplit=1)
        return cls(kind, outcome, tuple(terms.split(" + ")))

    @property
    def labels(self) -> list[str]:
        """Of its figures."""
        if self.kind in ("mean", "median"):
            return [f"{self.kind}: {self.outcome}, {self.terms[0]}={code}" for code in (0, 1)]
        return [f"{self.kind}: {self.outcome}, {term}" for term in self.terms]


@functools.cache
def questions(table: str) -> list[Question]:
    """All that is asked of a table."""
    return [Question.of(asked) for asked in ASKED[table]]


def ladder(n: int = 5000) -> tuple[tuple[Column, ...], Codes]:
    """Seven columns, each of which follows most closely those before it: strong dependence."""
    rng = np.random.default_rng(20261126)
    codes = np.empty((n, 7), np.uint8)
    codes[:, 0] = rng.integers(0, 6, n)
    for j, size in enumerate((5, 6, 8, 4, 8, 2), start=1):
        before = codes[:, max(j - 3, 0) : j].mean(axis=1) / 6
        codes[:, j] = np.clip(np.rint(before * size + rng.normal(0, 0.12 * size, n)), 0, size - 1)
    sizes = codes.max(axis=0) + 1
    columns = (
        Ordinal(name=name, categories=tuple(range(size)))
        for name, size in zip("abcdefg", sizes.tolist(), strict=True)
    )
    return tuple(columns), codes


@functools.cache
def survey(table: str) -> tuple[Domain, Codes, int]:
    """The declared columns, the codes unsigned[N, d], and the number of records to draw."""
    if table == "ladder":
        columns, codes = ladder()
        return Domain(columns), codes, len(codes)
    sys.path.insert(0, SUPPORT)
    from wide_tables import coded, columns_of

    _, codes = coded(table)
    return Domain(columns_of(table)), codes, 10_000 if table == "adult" else len(codes)


def values_of(table: str, codes: Codes, term: str) -> Floats:
    """A column, a dummy or a product, float64[n]."""
    if "*" in term:
        parts = [values_of(table, codes, part) for part in term.split("*")]
        return np.asarray(np.prod([part - part.mean() for part in parts], axis=0))
    name, _, code = term.partition("=")
    values = codes[:, survey(table)[0].names.index(name)]
    return np.asarray(values == int(code) if code else values, dtype=np.float64)


def figures(table: str, codes: Codes) -> Floats:
    """Estimates and their variances as software for records states them, float64[2, F]."""
    found: list[tuple[float, float]] = []
    for asked in questions(table):
        outcome = values_of(table, codes, asked.outcome)
        if asked.kind in MODELS:
            terms = [values_of(table, codes, term) for term in asked.terms]
            found += MODELS[asked.kind](np.column_stack([np.ones(len(codes)), *terms]), outcome)[1:]
            continue
        second = values_of(table, codes, asked.terms[0])
        if asked.kind == "odds ratio":
            found.append(log_odds_ratio(outcome, second))
            continue
        groups = [outcome[second == code] for code in (0, 1)]
        of_group = median if asked.kind == "median" else mean
        (one, v), (other, w) = (of_group(g) if len(g) > 1 else (np.nan, np.nan) for g in groups)
        found += [(other - one, v + w)] if asked.kind == "difference" else [(one, v), (other, w)]
    return np.array(found).T


def mean(values: Floats) -> tuple[float, float]:
    """The mean and its variance."""
    return float(values.mean()), float(values.var(ddof=1) / len(values))


def median(values: Floats) -> tuple[float, float]:
    """The median of values that lie evenly in cells of width 1, and its variance."""
    shares = np.bincount(values.astype(np.int64)) / len(values)
    reached = shares.cumsum()
    cell = int(np.searchsorted(reached, 0.5))
    inside = (0.5 - reached[cell] + shares[cell]) / shares[cell]
    return cell - 0.5 + float(inside), float(0.25 / (len(values) * shares[cell] ** 2))


def log_odds_ratio(one: Floats, other: Floats) -> tuple[float, float]:
    """Of two dummies, and its variance; half a record more in each cell."""
    cells = np.array([[np.sum((one == i) & (other == j)) for j in (0, 1)] for i in (0, 1)]) + 0.5
    ratio = np.log(cells[0, 0] * cells[1, 1] / (cells[0, 1] * cells[1, 0]))
    return float(ratio), float((1 / cells).sum())


def least_squares(x: Floats, y: Floats) -> list[tuple[float, float]]:
    """Coefficients and their variances, with one variance of the errors."""
    inverse = np.linalg.inv(x.T @ x)
    b = inverse @ (x.T @ y)
    error = float(((y - x @ b) ** 2).sum()) / (len(x) - len(b))
    return list(zip(b.tolist(), (error * np.diag(inverse)).tolist(), strict=True))


def logistic(x: Floats, y: Floats) -> list[tuple[float, float]]:
    """Coefficients and their variances, by Newton's steps."""
    rows, back = np.unique(x, axis=0, return_inverse=True)
    number, ones = np.bincount(back), np.bincount(back, weights=y)
    b = np.zeros(x.shape[1])
    for _ in range(40):
        p = 1 / (1 + np.exp(-(rows @ b)))
        information = (rows * (number * p * (1 - p) + 1e-9)[:, None]).T @ rows
        step = np.clip(np.linalg.solve(information, rows.T @ (ones - number * p)), -3, 3)
        b = b + step
        if np.abs(step).max() < 1e-8:
            break
    variances = np.diag(np.linalg.inv(information))
    return list(zip(b.tolist(), variances.tolist(), strict=True))


MODELS = {"least squares": least_squares, "logistic": logistic}


def widths_of_moments(table: str, residuals: Residuals, n: int) -> Floats:
    """Widths float64[F] of the sets that the tables themselves give; NaN where there are none.

    There are some for least squares without products whose pairs were all measured, where the
    matrix is clear of its noise.
    """
    domain, _, _ = survey(table)

    def function(term: str) -> CellFunction:
        name, _, code = term.partition("=")
        values = np.arange(domain[name].size, dtype=np.float64)
        of_term = (values == int(code)).astype(float) if code else values
        return CellFunction((domain.names.index(name),), of_term)

    widths: list[float] = []
    for asked in questions(table):
        nothing = [np.nan] * len(asked.labels)
        if asked.kind != "least squares" or any("*" in term for term in asked.terms):
            widths += nothing
            continue
        names = [term.partition("=")[0] for term in (asked.outcome, *asked.terms)]
        places = sorted({domain.names.index(name) for name in names})
        if any(pair not in residuals.variances for pair in itertools.combinations(places, 2)):
            widths += nothing
            continue
        terms = [ONE, *map(function, asked.terms)]
        fitted = LeastSquares.of(residuals, function(asked.outcome), terms, n_sampled=n)
        sets = fitted.intervals(LEVEL)[1:] if fitted.is_clear() else []
        widths += [each.upper - each.lower for each in sets] or nothing
    return np.array(widths)


HEADER = """\
| figures | how many | naive | copies | without B | least | width: to a sample's | to the moments' |
|---|---|---|---|---|---|---|---|"""
WAYS = ("naive", "copies", "without the variance between")


def replicate(table: str, epsilon: float, seed: int) -> dict[str, Any]:
    """One sample and one release: what held the population's figure, widths, CPU seconds."""
    sys.path.insert(0, SUPPORT)
    from coded import in_memory

    domain, population, n = survey(table)
    true = truth(table)
    rng = np.random.default_rng([20261126, seed])
    codes = population[rng.integers(len(population), size=n)]
    target = Target(epsilon=epsilon, delta=DELTA, n_records=n, n_cells=2, domain=domain)
    made = Marginals.calibrate(MarginalsKnobs(copies=COPIES), target)
    private = in_memory(domain, codes)
    release = made.release(private, SeededRandomness(np.random.PCG64(seed)))
    begun = time.process_time()
    records = made.postprocess(release)
    single = time.process_time()
    copies = records.copies.sets
    done = time.process_time()
    q, v = figures(table, np.column_stack(records.codes))
    normal = float(norm.ppf((1 + LEVEL) / 2))
    ends = {"naive": (q - normal * np.sqrt(v), q + normal * np.sqrt(v))}
    each = np.array([figures(table, copy) for copy in copies])
    low, high = np.full((2, len(true)), np.nan)
    for f in np.flatnonzero(np.isfinite(each).all(axis=(0, 1))):
        low[f], high[f] = combined(each[:, 0, f], each[:, 1, f]).interval(LEVEL)
    ends["copies"] = low, high
    centre, reach = each[:, 0].mean(axis=0), normal * np.sqrt(each[:, 1].mean(axis=0))
    ends["without the variance between"] = centre - reach, centre + reach
    width = ends["copies"][1] - ends["copies"][0]
    of_sample = 2 * normal * np.sqrt(figures(table, codes)[1])
    by_moments = widths_of_moments(table, records.residuals, n)
    return {
        "held": {
            way: ((low <= true) & (true <= high)).astype(int).tolist()
            for way, (low, high) in ends.items()
        },
        **{
            against: [None if np.isnan(r) else r for r in (width / other).tolist()]
            for against, other in (("to sample", of_sample), ("to moments", by_moments))
        },
        "seconds": [single - begun, done - single],
    }


@functools.cache
def truth(table: str) -> Floats:
    """The population's figures."""
    return np.asarray(figures(table, survey(table)[1])[0])


def rows(table: str, replicates: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of a table: all figures, each kind, and the figures that are covered worst."""
    names = [label for asked in questions(table) for label in asked.labels]
    held = {way: np.array([r["held"][way] for r in replicates]) for way in WAYS}
    to_sample = np.array([r["to sample"] for r in replicates], dtype=np.float64)
    to_moments = np.array([r["to moments"] for r in replicates], dtype=np.float64)
    kinds = [name.partition(":")[0] for name in names]
    for kind in ("all", *dict.fromkeys(kinds)):
        inside = [i for i, own in enumerate(kinds) if kind in ("all", own)]
        shares = [f"{held[way][:, inside].mean():.3f}" for way in WAYS]
        by_figure = held["copies"][:, inside].mean(axis=0)
        moments = to_moments[:, inside]
        ratio = f"{np.nanmedian(moments):.2f}" if np.isfinite(moments).any() else "-"
        yield (
            f"| {kind} | {len(inside)} | {' | '.join(shares)} | {by_figure.min():.2f} "
            f"| {np.nanmedian(to_sample[:, inside]):.2f} | {ratio} |"
        )
    by_figure = held["copies"].mean(axis=0)
    worst = [f"{names[i]} {by_figure[i]:.2f}" for i in np.argsort(by_figure)[:5]]
    single, copies = np.mean([r["seconds"] for r in replicates], axis=0)
    yield f"\nLeast: {'; '.join(worst)}."
    yield f"CPU seconds: single file {single:.2f}, copies {copies:.2f}."


def main(arguments: list[str] | None = None) -> None:
    """Run what the file does not have yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=list(ASKED), default=list(ASKED))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args(arguments)
    settings = list(itertools.product(chosen.tables, chosen.epsilons))
    keys = [(*each, seed) for seed in range(chosen.replicates) for each in settings]
    done = kept_rows(chosen.output, ("table", "epsilon", "seed"), keys, replicate)
    for table, epsilon in settings:
        found = [done[table, epsilon, seed] for seed in range(chosen.replicates)]
        print(f"\n{table}, epsilon = {epsilon:g}, {len(found)} replicates\n")
        print(HEADER)
        for line in rows(table, found):
            print(line)


if __name__ == "__main__":
    main()
