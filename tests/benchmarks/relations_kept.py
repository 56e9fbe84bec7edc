"""What records of ``adult`` keep beyond pairs, and how models trained on them do on real ones.

    python -m tests.benchmarks.relations_kept [--seeds 5] [--epsilons 1 3]
    uv run --with scikit-learn python -m tests.benchmarks.relations_kept --train

Of each epsilon, on average over the seeds (discrete noise, replace-one, delta = 1e-6):

* *interactions*: of the 60 triples of columns whose tables are farthest from maximum entropy given
  their pairs, the residual of three columns in the records, projected on the true one; 1 is all;
* *logit*: the coefficient of female times married of a logistic regression of income on both, on
  education, age and hours; with the true one beside it;
* *never seen*: records that hold a pair of values that no true record has;
* *vanished*: values of a true share below 1 % that no record has.

With ``--train``: 0.7 of the records are released, with and without ``target: income``; a logistic
regression and boosted trees are trained on the records to tell income, and the area under the curve
on the others is compared with that of a model trained on the true records.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUPPORT = str(Path(__file__).parents[1] / "support")
STRONGEST, DELTA, TRAINED = 60, 1e-6, 0.7
Codes = NDArray[np.unsignedinteger[Any]]


def maximum_entropy(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """The three-way table of maximum entropy with the pairs of one."""
    from statpress.mechanisms.marginals.fitting import fit_margins

    pairs = {(0, 1): table.sum(axis=2), (0, 2): table.sum(axis=1), (1, 2): table.sum(axis=0)}
    return fit_margins(np.full(table.shape, 1 / table.size), pairs)


def interactions(
    codes: Codes, sizes: tuple[int, ...], triples: list[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    """The residuals of three columns that pairs do not have, in shares."""
    from statpress.mechanisms.marginals.residuals import centred
    from statpress.mechanisms.marginals.target_tables import counts_of

    shapes = [tuple(sizes[column] for column in triple) for triple in triples]
    tables = counts_of(codes, triples, shapes)
    shares = [t.reshape(s) / len(codes) for t, s in zip(tables, shapes, strict=True)]
    return [centred(table - maximum_entropy(table)) for table in shares]


class Adult:
    """The true table, and what records of it are compared with."""

    def __init__(self) -> None:
        sys.path.insert(0, SUPPORT)
        from wide_tables import coded, columns_of, names_of

        self.names = names_of("adult")
        self.sizes, self.codes = coded("adult")
        self.columns = columns_of("adult")
        triples = list(itertools.combinations(range(len(self.sizes)), 3))
        small = [t for t in triples if np.prod([self.sizes[c] for c in t]) <= 20_000]
        found = dict(zip(small, interactions(self.codes, self.sizes, small), strict=True))
        self.strongest = sorted(small, key=lambda t: -float((found[t] ** 2).sum()))[:STRONGEST]
        self.true = [found[triple] for triple in self.strongest]
        self.pairs = list(itertools.combinations(range(len(self.sizes)), 2))
        self.empty = [table == 0 for table in self._tables(self.codes)]
        self.rare = [
            (share > 0) & (share < 0.01)
            for share in (
                np.bincount(self.codes[:, c], minlength=size) / len(self.codes)
                for c, size in enumerate(self.sizes)
            )
        ]

    def _tables(self, codes: Codes) -> list[NDArray[np.int64]]:
        from statpress.mechanisms.marginals.target_tables import counts_of

        shapes = [(self.sizes[a], self.sizes[b]) for a, b in self.pairs]
        tables = counts_of(codes, self.pairs, shapes)
        return [table.reshape(shape) for table, shape in zip(tables, shapes, strict=True)]

    def released(self, codes: Codes, epsilon: float, seed: int, **knobs: Any) -> Codes:
        """Records of a release of some of the true ones."""
        from coded import CodesInMemory

        from statpress.mechanisms.domain.domain import Domain
        from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
        from statpress.mechanisms.mechanism import Target
        from statpress.tasks.release.entropy import SeededRandomness

        domain, n = Domain(self.columns), len(codes)
        target = Target(epsilon=epsilon, delta=DELTA, n_records=n, n_cells=2, domain=domain)
        made = Marginals.calibrate(MarginalsKnobs(**knobs), target)
        private = CodesInMemory(domain, n, tuple(np.ascontiguousarray(codes.T)))
        release = made.release(private, SeededRandomness(np.random.PCG64(seed)))
        return np.stack(made.postprocess(release).codes, axis=1)

    def recovered(self, records: Codes) -> float:
        """The share of the strongest interactions."""
        kept = interactions(records, self.sizes, self.strongest)
        return float(
            np.mean([(k * t).sum() / (t**2).sum() for k, t in zip(kept, self.true, strict=True)])
        )

    def logit(self, codes: Codes) -> float:
        """The coefficient of female times married."""
        column = {name: codes[:, place].astype(float) for place, name in enumerate(self.names)}
        female, married = column["sex"] == 0, column["marital"] == 2  # in alphabetical order
        others = [column[name] for name in ("education_num", "age", "hours")]
        design = np.stack([np.ones(len(codes)), female, married, female & married, *others], axis=1)
        income, found = column["income"], np.zeros(design.shape[1])
        for _ in range(30):
            share = 1 / (1 + np.exp(-design @ found))
            curvature = design.T @ (design * (share * (1 - share))[:, None])
            found += np.linalg.solve(curvature, design.T @ (income - share))
        return float(found[3])

    def never_seen(self, records: Codes) -> float:
        """The share of records with a pair of values that no true record has."""
        never = np.zeros(len(records), dtype=np.bool_)
        for (a, b), empty in zip(self.pairs, self.empty, strict=True):
            never |= empty[records[:, a], records[:, b]]
        return float(never.mean())

    def vanished(self, records: Codes) -> float:
        """The share of rare values that no record has."""
        gone = [
            np.bincount(records[:, c], minlength=self.sizes[c])[rare] == 0
            for c, rare in enumerate(self.rare)
        ]
        return float(np.concatenate(gone).mean())


def areas(train: Codes, test: Codes, label: int, sizes: tuple[int, ...]) -> tuple[float, float]:
    """Areas under the curve of a logistic regression and of boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = [column for column in range(len(sizes)) if column != label]
    codes = OneHotEncoder(categories=[np.arange(sizes[column]) for column in columns])
    models = (
        make_pipeline(codes, LogisticRegression(max_iter=300)),
        HistGradientBoostingClassifier(random_state=0),
    )
    found = []
    for model in models:
        model.fit(train[:, columns], train[:, label])
        told = model.predict_proba(test[:, columns])[:, 1]
        found.append(float(roc_auc_score(test[:, label], told)))
    return found[0], found[1]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--train", action="store_true", help="needs scikit-learn")
    given = parser.parse_args()
    adult = Adult()
    if given.train:
        label = adult.names.index("income")
        print("| epsilon | target | gap of logistic regression | of boosted trees |")
        print("|---|---|---|---|")
        for epsilon, target in itertools.product(given.epsilons, (None, "income")):
            gaps = []
            for seed in range(given.seeds):
                order = np.random.default_rng(seed).permutation(len(adult.codes))
                train, test = np.split(adult.codes[order], [int(TRAINED * len(order))])
                records = adult.released(train, epsilon, seed, target=target)
                real, ours = (areas(each, test, label, adult.sizes) for each in (train, records))
                gaps.append(np.subtract(real, ours))
            logistic, boosted = np.mean(gaps, axis=0)
            print(f"| {epsilon:g} | {target or ''} | {logistic:.4f} | {boosted:.4f} |", flush=True)
        return
    true = f"{adult.logit(adult.codes):.2f}"
    print(f"| epsilon | interactions | logit (true {true}) | never seen | vanished |")
    print("|---|---|---|---|---|")
    for epsilon in given.epsilons:
        rows = []
        for seed in range(given.seeds):
            records = adult.released(adult.codes, epsilon, seed)
            rows.append(
                [each(records) for each in (adult.recovered, adult.logit, adult.never_seen)]
                + [adult.vanished(records)]
            )
        kept, logit, never, gone = np.mean(rows, axis=0)
        ends = np.quantile([row[1] for row in rows], [0, 1])
        print(
            f"| {epsilon:g} | {kept:.3f} | {logit:.2f} ({ends[0]:.2f} to {ends[1]:.2f}) "
            f"| {never:.3f} | {gone:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
