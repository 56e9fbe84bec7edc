"""The shares of one-way tables and scores that ``auto`` finds, against fixed ones.

    python -m tests.benchmarks.fixed_shares [--tables kdd:1600:32 ...] [--epsilons ...] [--seeds 5]
    python -m tests.benchmarks.fixed_shares --best 10 --seeds 3 --tables cps91 happiness ...

By realised error: the mean total variation of all pairs between the shares of the true and the
published records, over the same seeds. ``kdd:1600:32`` are 1 600 of its records, drawn once, and
its first 32 columns. The fixed shares are a coarse grid, or with ``--best`` those of a grid of 200
with the least expected error. That the best is chosen after the fact favours it by a little.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.wide_microdata import DELTA, EPSILONS, shares, variation

TABLES = ("kdd:1600:32",)
COARSE = tuple(itertools.product((0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97), (0.01, 0.02)))
FINE = tuple(itertools.product(np.linspace(0.08, 0.97, 20).round(4), np.geomspace(0.003, 0.2, 10)))

Split = tuple[float, float]


@dataclass(frozen=True)
class Compared:
    """Realised errors on a table at one epsilon, means over the seeds."""

    table: str
    epsilon: float
    auto: Split
    error: float
    best: Split
    least: float

    @property
    def above(self) -> float:
        """How far ``auto`` is above the best fixed shares, relative."""
        return self.error / self.least - 1


def compare(
    name: str, epsilon: float, seeds: int, splits: tuple[Split, ...] = COARSE, best: int = 0
) -> Compared:
    """Release with the shares that ``auto`` finds and with the others."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from coded import CodesInMemory
    from wide_tables import coded, columns_of

    from statpress.mechanisms.domain.domain import Domain
    from statpress.mechanisms.marginals import allocation
    from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
    from statpress.mechanisms.mechanism import Target
    from statpress.tasks.release.entropy import SeededRandomness

    table, *cut = name.split(":")
    sizes, codes = coded(table)
    rows, width = map(int, cut) if cut else codes.shape
    picked = np.sort(np.random.default_rng(0).permutation(len(codes))[:rows])
    by_column, sizes = np.ascontiguousarray(codes[picked, :width].T), sizes[:width]
    domain = Domain(columns_of(table)[:width])
    true = shares(sizes, by_column, 2)
    target = Target(epsilon=epsilon, delta=DELTA, n_records=rows, n_cells=2, domain=domain)
    private = CodesInMemory(domain, rows, tuple(by_column))

    def made(split: Split | None) -> Marginals:
        given = {} if split is None else {"one_way_share": split[0], "screen_share": split[1]}
        return Marginals.calibrate(MarginalsKnobs(**given), target)

    def error(mechanism: Marginals) -> float:
        found = []
        for seed in range(seeds):
            release = mechanism.release(private, SeededRandomness(np.random.PCG64(seed)))
            records = mechanism.postprocess(release).codes
            found.append(variation(true, shares(sizes, records, 2)).mean())
        return float(np.mean(found))

    auto = made(None)
    if best:
        work = allocation._Workload.of(sizes, auto.groups, 2)

        def expected(split: Split) -> float:
            split_shares = allocation.Shares(*split, auto.shares.triples)
            return allocation._errors(
                work, split_shares, float(auto.mu), rows, allocation.COMPARED
            )[1]

        kept = (split for split in splits if sum(split) + auto.shares.triples < 1)
        splits = tuple(sorted(kept, key=expected)[:best])
    found = {split: error(made(split)) for split in splits}
    least = min(found, key=found.__getitem__)
    own = auto.shares.one_way, auto.shares.screen
    return Compared(name, epsilon, own, error(auto), least, found[least])


HEADER = """\
| table | epsilon | auto: one-way, scores | error | best fixed | error | auto above |
|---|---|---|---|---|---|---|"""


def line(c: Compared) -> str:
    """A row of the table."""
    own, best = (f"{one:.3g}, {two:.2g}" for one, two in (c.auto, c.best))
    return (
        f"| {c.table} | {c.epsilon:g} | {own} | {c.error:.5f} | {best} | {c.least:.5f} "
        f"| {c.above:+.1%} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--best", type=int, default=0, help="of 200, by expected error")
    given = parser.parse_args()
    splits = FINE if given.best else COARSE
    print(HEADER)
    for name, epsilon in itertools.product(given.tables, given.epsilons):
        print(line(compare(name, epsilon, given.seeds, splits, given.best)), flush=True)


if __name__ == "__main__":
    main()
