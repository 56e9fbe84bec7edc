"""Changes between whole releases: coverage of their intervals, and false alarms of "changed".

    python -m tests.benchmarks.changes_coverage [--pairs 200] [--output FILE]

A pair is three releases of one config, charged in a ledger and opened as bundles: two of the same
records, and one of records from a later population, in which two of five columns are distributed
otherwise. Each has microdata by ``marginals``, a table and an estimate at epsilon = 1, delta 1e-6
and 2,500 records. Intervals are at .95. Of the same records nothing changed, so that every
"changed" is a false alarm, as is one about a share of the population that is as before.
Pairs that the file has already are not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.kept_rows import kept_rows

N, LEVEL, OUTPUT = 2_500, 0.95, Path("build/changes_coverage.jsonl")
SIZES = {"region": 3, "sex": 2, "job": 4, "age": 6, "pay": 5}
NUMBERS, WIDTH = ("age", "pay"), 10
CONFIG = """\
title: A survey
dataset: survey
source: {{path: {source}}}
privacy: {{adjacency: replace_one, unit: record, n_records: {n}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
domain:
  region: {{type: categorical, categories: ["0", "1", "2"]}}
  sex: {{type: categorical, categories: ["0", "1"]}}
  job: {{type: categorical, categories: ["0", "1", "2", "3"]}}
  age: {{type: numeric, lower: 0, upper: 60, bins: 6}}
  pay: {{type: numeric, lower: 0, upper: 50, bins: 5}}
products:
  people: {{kind: microdata, mechanism: marginals, columns: [region, sex, job, age, pay],
    screen: "no", copies: 2, share: 0.8, accept: [mostly_noise, mostly_independent]}}
  places: {{kind: table, mechanism: gaussian, columns: [region, job], share: 0.1}}
  pay: {{kind: estimate, statistic: mean, mechanism: joint_moments, columns: [pay], share: 0.1}}
publish: {{directory: {directory}, plots: false, formats: [parquet]}}
"""


def population(later: bool) -> NDArray[np.float64]:
    """Shares of all cells, exactly: jobs and pay depend on the other columns, and on the time."""
    region, sex, job, age, pay = np.indices(tuple(SIZES.values())).astype(float)
    shares = np.array([0.5, 0.3, 0.2])[region.astype(int)] * np.array([0.55, 0.45])[sex.astype(int)]
    shares *= np.array([0.1, 0.2, 0.25, 0.2, 0.15, 0.1])[age.astype(int)]
    liking = np.exp(0.4 * job * (sex - 0.5) + 0.2 * job * (region - 1) - 0.3 * later * (job == 3))
    shares *= liking / liking.sum(axis=2, keepdims=True)
    earning = np.exp(-0.5 * (pay - 0.5 * job - 0.3 * age - 0.4 * later) ** 2)
    shares *= earning / earning.sum(axis=4, keepdims=True)
    return shares / shares.sum()


def drawn(shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Records of a sample: int64[N, columns], codes."""
    cells = rng.choice(shares.size, N, p=shares.ravel())
    return np.stack(np.unravel_index(cells, shares.shape), axis=1)


def of_records(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares of all cells among some records."""
    shares = np.zeros(tuple(SIZES.values()))
    np.add.at(shares, tuple(codes.T), 1 / len(codes))
    return shares


def truth(shares: NDArray[np.float64], question: str, values: dict[str, str]) -> float:
    """What a cell of an answer is among such shares."""
    if question == "shares":
        values = {values["column"]: values["value"]}
    codes = {name: int(text) // (WIDTH if name in NUMBERS else 1) for name, text in values.items()}
    part = shares[tuple(codes.get(name, slice(None)) for name in SIZES)]
    if question.startswith("mean pay"):
        by_pay = part.reshape(-1, SIZES["pay"]).sum(axis=0)
        return float(by_pay @ (WIDTH * (np.arange(SIZES["pay"]) + 0.5)) / by_pay.sum())
    whole = shares[codes["region"]] if question == "jobs by region" else shares
    return float(part.sum() / whole.sum())


def answers(earlier: Any, later: Any, of: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every question of the benchmark, with the cells of its answer."""
    compared = later.change(earlier)
    yield "shares", later.changes(earlier, of=of).facts["cells"]
    yield "mean pay", compared.mean("pay", of=of).facts["cells"]
    yield "mean pay by sex", compared.mean("pay", by="sex", of=of).facts["cells"]
    yield "jobs by region", compared.share("job", by="region", of=of).facts["cells"]


def compared(
    earlier: Any, later: Any, of: str, before: NDArray[np.float64], after: NDArray[np.float64]
) -> dict[str, Any]:
    """By question how many intervals have the truth, of how many, and whether one cried wolf.

    An alarm counts where the truth is that nothing changed.
    """
    found = {}
    for question, cells in answers(earlier, later, of):
        changes = [
            truth(after, question, c["values"]) - truth(before, question, c["values"])
            for c in cells
        ]
        still = [abs(change) < 1e-12 for change in changes]
        found[question] = {
            "held": sum(
                _end(c["lower"], -np.inf) <= change <= _end(c["upper"], np.inf)
                for c, change in zip(cells, changes, strict=True)
            ),
            "cells": len(cells),
            "alarm": any(c["changed"] for c, same in zip(cells, still, strict=True) if same),
            "still": sum(still),
            "found": sum(c["changed"] for c, same in zip(cells, still, strict=True) if not same),
        }
    return found


def _end(end: float | None, unbounded: float) -> float:
    """An end of an interval, which is missing where it has none."""
    return unbounded if end is None else end


def pair(seed: int) -> dict[str, Any]:
    """What comparisons of three releases of a seed say."""
    with tempfile.TemporaryDirectory() as folder:
        return comparisons(*releases(Path(folder), seed))


def releases(folder: Path, seed: int) -> tuple[list[NDArray[np.int64]], list[Any]]:
    """Samples of both populations, and two releases of the earlier and one of the later."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import statpress

    rng = np.random.default_rng(seed)
    samples = [drawn(population(later=later), rng) for later in (False, True)]
    made = []
    for number, codes in enumerate((samples[0], samples[0], samples[1])):
        columns = dict(zip(SIZES, codes.T, strict=True))
        table = {n: columns[n].astype(str).tolist() for n in ("region", "sex", "job")}
        table |= {n: (WIDTH * columns[n] + WIDTH / 2).tolist() for n in NUMBERS}
        pq.write_table(pa.table(table), folder / "source.parquet")
        bundle = released(folder, f"release-{number}", 3 * seed + number)
        made.append(statpress.open(bundle))
    return samples, made


def comparisons(samples: list[NDArray[np.int64]], made: list[Any]) -> dict[str, Any]:
    """What the releases say of changes, of the records and of the populations."""
    first, again, later = made
    known = [of_records(codes) for codes in samples]
    before, after = population(later=False), population(later=True)
    return {
        "same records": compared(first, again, "records", known[0], known[0]),
        "other records": compared(first, later, "records", known[0], known[1]),
        "population": compared(first, later, "population", before, after),
    }


_INSPECTORS: list[Any] = []


def released(folder: Path, name: str, seed: int) -> Path:
    """A whole release of the folder's source, with noise from a seed."""
    from statpress.configs.order import Order
    from statpress.flows.runner import run_release
    from statpress.tasks.ledger.ledger import Ledger
    from statpress.tasks.private_zone.folders import Home
    from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
    from statpress.tasks.private_zone.run_context import RunContext
    from statpress.tasks.private_zone.workers import Parallel
    from statpress.tasks.release.quality_gates import Inspector

    home = Home(folder / "home")
    home.folder("")
    if not Ledger.exists(home.ledger):
        terms = {"adjacency": "replace_one", "unit": "record", "n_records": N, "unit_records": 1}
        with Ledger.open(home.ledger) as ledger:
            ledger.register(dataset="survey", epsilon=4, delta="0.001", **terms)
    config = folder / f"{name}.yaml"
    config.write_text(CONFIG.format(source=folder / "source.parquet", n=N, directory=folder / name))
    log = CuratorLog(home.folder("curator"), new_run_id())
    if not _INSPECTORS:
        _INSPECTORS.append(Inspector(log).__enter__())  # one process for all: it takes seconds
    _INSPECTORS[0].log = log
    context = RunContext(
        home=home, log=log, inspector=_INSPECTORS[0], orchestrated=False, parallel=Parallel()
    )
    return run_release(context, Order(config), insecure_seed=seed).bundle


def rows(pairs: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of a table: coverage, false alarms over all cells of an answer, and changes found."""
    for compared_ in pairs[0]:
        for question in pairs[0][compared_]:
            each = [pair_[compared_][question] for pair_ in pairs]
            sums = {name: sum(one[name] for one in each) for name in each[0]}
            moved = sums["cells"] - sums["still"]
            alarms = f"{sums['alarm'] / len(each):.3f}" if sums["still"] else "-"
            found = f"{sums['found'] / moved:.2f}" if moved else "-"
            yield (
                f"| {compared_} | {question} | {sums['cells'] // len(each)} "
                f"| {sums['held'] / sums['cells']:.3f} | {alarms} | {found} |"
            )


HEADER = """\
| compared | question | cells | coverage | false alarms | changes found |
|---|---|---|---|---|---|"""


def main(arguments: list[str] | None = None) -> None:
    """Make the pairs that the file does not have yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args(arguments)
    keys = [(seed,) for seed in range(chosen.pairs)]
    done = kept_rows(chosen.output, ("seed",), keys, pair)
    print(f"{chosen.pairs} pairs\n\n{HEADER}")
    for line in rows(list(done.values())):
        print(line)


if __name__ == "__main__":
    main()
