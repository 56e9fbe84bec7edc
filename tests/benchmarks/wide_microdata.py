"""Synthetic microdata of 4 to 40 columns: error, time and memory.

    python -m tests.benchmarks.wide_microdata [--quick] [--tables census2000 ...] [--output DIR]
    python -m tests.benchmarks.wide_microdata --tables latent:1000000 latent:50000:100 codes:50000

Mean total variation of all pairs and all triples of columns, and of the worst pair, between the
shares of the true and the published records; with discrete noise from known seeds (with
``--system-noise`` from the production sampler), delta = 1e-6, replace-one unless ``--adjacency``
says otherwise. ``happiness:8`` are its first 8 columns, ``latent:N:D`` N records of D columns from
a model (40 if D is left out), and ``codes:N`` N records of three columns of 1 000 codes and eight
small ones, both without triples.
With them stand what columns that are independent but have exactly the true one-way shares would
have, and the shares of pairs that are farther from the truth than that, and than records of such
columns. CPU seconds are of noise and of post-processing, the numba kernel being compiled already;
memory is the peak of a process of its own, and what the plan says.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUPPORT = str(Path(__file__).parents[1] / "support")
TABLES = ("census2000", "happiness:5", "happiness:8", "happiness:12", "happiness", "cps91")
STRONG = ("adult", "kdd")
"""Tables with stronger dependence and more codes, which are fetched when they are asked for."""
EPSILONS, SEEDS, DELTA = (0.3, 1.0, 3.0), 5, 1e-6

Shares = dict[tuple[int, ...], NDArray[np.float64]]


@dataclass(frozen=True)
class Figures:
    """Of one table and epsilon; errors are means over the seeds."""

    table: str
    columns: int
    epsilon: float
    pairs: float
    triples: float
    worst_pair: float
    worse_than_independent: float
    worse_than_independent_records: float
    one_way: float
    independent_pairs: float
    independent_triples: float
    expected_pairs: float
    expected_one_way: float
    noise_seconds: float
    seconds: float
    megabytes: float
    planned_megabytes: float


def shares(sizes: tuple[int, ...], codes: Sequence[NDArray[Any]], order: int) -> Shares:
    """Flat shares of all groups of an order, of codes by column."""
    found = {}
    for group in itertools.combinations(range(len(sizes)), order):
        cells = np.zeros(len(codes[0]), np.int32)
        for column in group:
            cells *= sizes[column]
            cells += codes[column]
        counts = np.bincount(cells, minlength=int(np.prod([sizes[c] for c in group])))
        found[group] = counts / len(codes[0])
    return found


def variation(one: Shares, two: Shares) -> NDArray[np.float64]:
    """Total variation of every group."""
    return np.array([0.5 * np.abs(one[group] - two[group]).sum() for group in one])


def products(single: Shares, groups: Shares) -> Shares:
    """Independent columns with the given shares."""
    found = {}
    for group in groups:
        table = np.ones(1)
        for column in group:
            table = np.multiply.outer(table, single[(column,)]).ravel()
        found[group] = table
    return found


def measure(
    name: str,
    epsilon: float,
    seeds: int,
    *,
    system_noise: bool = False,
    adjacency: str = "replace_one",
) -> Figures:
    """Release and compare, some times over."""
    sys.path.insert(0, SUPPORT)
    from coded import CodesInMemory
    from wide_tables import ManyColumns, coded, columns_of, latent, many_codes

    from statpress.mechanisms.domain.columns import Ordinal
    from statpress.mechanisms.domain.domain import Adjacency, Domain
    from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
    from statpress.mechanisms.marginals.swaps import compiled_column
    from statpress.mechanisms.mechanism import Target
    from statpress.tasks.release.entropy import SeededRandomness, SystemRandomness

    compiled_column("uint8")
    table, *parts = name.split(":")
    width = int(parts[-1]) if parts else None
    domain: Any
    if table in ("latent", "codes"):
        sizes, by_column = (latent if table == "latent" else many_codes)(*map(int, parts))
        kinds = (Ordinal(name=f"c{j}", categories=tuple(range(k))) for j, k in enumerate(sizes))
        domain, orders = ManyColumns(tuple(kinds)), (1, 2)
    else:
        sizes, codes = coded(table, width)
        by_column = np.ascontiguousarray(codes.T)
        domain, orders = Domain(columns_of(table, width)), (1, 2, 3)
    n = by_column.shape[1]
    true = {order: shares(sizes, by_column, order) for order in orders}
    independent = {
        order: variation(true[order], products(true[1], true[order])) for order in orders[1:]
    }
    shuffled = np.random.default_rng(0).permuted(by_column, axis=1)
    apart = variation(true[2], shares(sizes, shuffled, 2))
    target = Target(
        epsilon=epsilon,
        delta=DELTA,
        n_records=n,
        n_cells=2,
        domain=domain,
        adjacency=Adjacency(adjacency),
    )
    made = Marginals.calibrate(MarginalsKnobs(), target)
    private = CodesInMemory(domain, n, tuple(by_column))
    rows = []
    for seed in range(seeds):
        bits = np.random.PCG64(seed)
        rng = SystemRandomness(bits) if system_noise else SeededRandomness(bits)
        begun = time.process_time()
        release = made.release(private, rng)
        drawn = time.process_time()
        records = made.postprocess(release).codes
        done = time.process_time()
        one, two, *rest = (variation(true[k], shares(sizes, records, k)) for k in orders)
        three = rest[0].mean() if rest else np.nan
        worse = (two > independent[2]).mean(), (two > apart).mean()
        errors = two.mean(), three, two.max(), *worse, one.mean()
        rows.append((*errors, drawn - begun, done - drawn))
    pairs, triples, worst, *worse, single, noise, seconds = np.mean(rows, axis=0).tolist()
    expected = made.expected_error(n_records=n, n_cells=2)
    return Figures(
        table=name,
        columns=len(sizes),
        epsilon=epsilon,
        pairs=pairs,
        triples=triples,
        worst_pair=worst,
        worse_than_independent=worse[0],
        worse_than_independent_records=worse[1],
        one_way=single,
        independent_pairs=float(independent[2].mean()),
        independent_triples=float(independent[3].mean()) if 3 in orders else np.nan,
        expected_pairs=expected.pair_total_variation,
        expected_one_way=expected.one_way_total_variation,
        noise_seconds=noise,
        seconds=seconds,
        megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        planned_megabytes=expected.memory / 2**20,
    )


def in_its_own_process(name: str, epsilon: float, seeds: int, **options: Any) -> Figures:
    """The same, so that the peak of memory is its own."""
    code = (
        "import json; from dataclasses import asdict; "
        "from tests.benchmarks.wide_microdata import measure; "
        f"print(json.dumps(asdict(measure({name!r}, {epsilon!r}, {seeds!r}, **{options!r}))))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return Figures(**json.loads(found.stdout))


HEADER = """\
| table | columns | epsilon | pairs | triples | worst pair | worse, than records | one-way \
| independent: pairs | triples | CPU s noise | CPU s rest | MB | planned |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def line(f: Figures) -> str:
    """A row of the table."""
    worse = f"{f.worse_than_independent:.1%}, {f.worse_than_independent_records:.1%}"
    return (
        f"| {f.table} | {f.columns} | {f.epsilon:g} | {f.pairs:.4f} | {f.triples:.4f} "
        f"| {f.worst_pair:.3f} | {worse} | {f.one_way:.4f} "
        f"| {f.independent_pairs:.4f} | {f.independent_triples:.4f} "
        f"| {f.noise_seconds:.1f} | {f.seconds:.1f} "
        f"| {f.megabytes:.0f} | {f.planned_megabytes:.0f} |"
    )


def main() -> None:
    """Print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--adjacency", default="replace_one", help="or add_remove")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--system-noise", action="store_true", help="the production sampler")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = []
    print(HEADER)
    for name, epsilon in itertools.product(given.tables, given.epsilons):
        seeds = 1 if given.quick or name.startswith(("latent", "codes")) else given.seeds
        options = {"system_noise": given.system_noise, "adjacency": given.adjacency}
        found.append(in_its_own_process(name, epsilon, seeds, **options))
        print(line(found[-1]), flush=True)
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(each) for each in found], indent=1)
        (given.output / "wide_microdata.json").write_text(text)


if __name__ == "__main__":
    main()
