"""Records by ``marginals`` of a third year, with the two before as prior and without.

    python -m tests.benchmarks.earlier_releases [--quick] [--output DIR]

``happiness`` by year, 14 columns of 2 977, 2 885 and 2 806 records; discrete noise from known
seeds, replace-one, delta = 1e-6, every setting its default. Errors are the mean total variation of
all pairs between the true and the fitted shares, over that of the third year alone. A prior that
is ``reversed`` has the codes of every column in reverse, one that is ``permuted`` has them in a
random order, and one that is ``fabricated`` is drawn at random. One line for each seed and epsilon
is written as soon as it is known; what is there already is not computed again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from statpress.mechanisms.marginals.prior import Prior

SUPPORT = str(Path(__file__).parents[1] / "support")
EPSILONS, SEEDS, YEARS, DELTA = (0.3, 1.0, 3.0), 20, 3, 1e-6
PRIORS = ("chain", "reversed", "permuted", "fabricated")


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


def measure(epsilon: float, seed: int, columns: int | None = None) -> dict[str, float]:
    """Errors of one seed: alone, and with each prior."""
    sys.path.insert(0, SUPPORT)
    from coded import CodesInMemory
    from wide_tables import coded, columns_of

    from statpress.mechanisms.domain.domain import Domain
    from statpress.mechanisms.marginals.denoising import Model
    from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
    from statpress.mechanisms.mechanism import Target
    from statpress.tasks.release.entropy import SeededRandomness

    sizes, codes = coded("happiness")
    domain = Domain(columns_of("happiness")[1:][:columns])
    years = [codes[codes[:, 0] == year][:, 1:][:, :columns] for year in range(YEARS)]
    last = years[-1]
    true = {}
    for a, b in itertools.combinations(range(last.shape[1]), 2):
        true[a, b] = np.zeros((sizes[1 + a], sizes[1 + b]))
        np.add.at(true[a, b], (last[:, a], last[:, b]), 1 / len(last))

    def released(year: int, prior: Prior | None) -> Any:
        own = years[year]
        target = Target(epsilon=epsilon, delta=DELTA, n_records=len(own), n_cells=2, domain=domain)
        made = replace(Marginals.calibrate(MarginalsKnobs(), target), prior=prior)
        private = CodesInMemory(domain, len(own), tuple(np.ascontiguousarray(own.T)))
        return made.release(private, SeededRandomness(np.random.PCG64([seed, year])))

    def error(prior: Prior | None) -> float:
        pairs = Model.of(released(YEARS - 1, prior)).pairs
        return float(
            np.mean([np.abs(pairs[pair] - table).sum() / 2 for pair, table in true.items()])
        )

    prior = None
    for year in range(YEARS - 1):
        release = released(year, prior)
        prior = Model.of(release).as_prior(release, "")
    assert prior is not None
    others = dict(wrong(prior, np.random.default_rng(seed)))
    return {name: error(each) for name, each in {"alone": None, "chain": prior, **others}.items()}


def ratios(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean errors over that of the year alone."""
    alone = np.mean([row["alone"] for row in rows])
    return {name: float(np.mean([row[name] for row in rows]) / alone) for name in PRIORS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--output", type=Path, default=Path("earlier_releases"))
    said = parser.parse_args()
    said.output.mkdir(parents=True, exist_ok=True)
    file = said.output / "errors.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    there = {(row["epsilon"], row["seed"]): row for row in map(json.loads, lines)}
    for epsilon in EPSILONS:
        rows = []
        for seed in range(2 if said.quick else SEEDS):
            if (epsilon, seed) not in there:
                row = {"epsilon": epsilon, "seed": seed, **measure(epsilon, seed)}
                with file.open("a", encoding="utf-8") as output:
                    output.write(json.dumps(row) + "\n")
                there[epsilon, seed] = row
            rows.append(there[epsilon, seed])
        alone = np.mean([row["alone"] for row in rows])
        words = ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios(rows).items())
        print(f"epsilon {epsilon:g}, {len(rows)} seeds: alone {alone:.4f}; over it {words}")


if __name__ == "__main__":
    main()
