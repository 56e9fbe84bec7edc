"""mbi: synthetic records by AIM and MST on its estimator.

The package has the estimator, its repository the mechanisms; these are written here from the
papers, with the settings of the repository: AIM of McKenna, Mullins, Sheldon and Miklau 2022
(https://arxiv.org/abs/2201.12677, algorithms 1 to 3; 16 d rounds, models of up to 80 MB, 1000
iterations), for the workload of all pairs, and MST of McKenna, Miklau and Sheldon 2021
(https://arxiv.org/abs/2108.04978, algorithm 1).

Adjacency: one record added or removed (AIM, definition 1; ``bounded=False`` in the repository).
"""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import mbi  # noqa: E402 -- it warns of 32 bits where they are not set before
from mbi import junction_tree  # noqa: E402
from scipy.optimize import brentq, minimize_scalar  # noqa: E402
from scipy.special import softmax  # noqa: E402
from task_file import Task, answer, names  # noqa: E402

Clique = tuple[str, ...]
ABSOLUTE = math.sqrt(2 / math.pi)
MOST_MAPS = 16_000
"""Of memory, after a round; Linux allows a process 65,530, and a round may take thousands."""


def rho_of(epsilon: float, delta: float) -> float:
    """What zCDP buys epsilon at delta (Canonne, Kamath and Steinke 2020, proposition 12)."""

    def log_delta(rho: float) -> float:
        def at(log_order: float) -> float:
            a = 1 + math.exp(log_order)
            return (a - 1) * (a * rho - epsilon) - math.log(a - 1) + a * math.log1p(-1 / a)

        return float(minimize_scalar(at, bounds=(-6, 12), method="bounded").fun)

    return float(brentq(lambda rho: log_delta(rho) - math.log(delta), 1e-8, epsilon))


class Private:
    """The private records; every draw takes its noise from here."""

    def __init__(self, task: Task, codes: np.ndarray) -> None:
        columns = names(task)
        self.rng = np.random.default_rng(task["seed"])
        self.domain = mbi.Domain(columns, task["sizes"])
        self.data = mbi.Dataset({c: codes[:, j] for j, c in enumerate(columns)}, self.domain)

    def exact(self, clique: Clique) -> np.ndarray:
        return np.asarray(self.data.project(clique).datavector(), dtype=float)

    def measure(self, clique: Clique, sigma: float) -> mbi.LinearMeasurement:
        exact = self.exact(clique)
        return mbi.LinearMeasurement(exact + self.rng.normal(0, sigma, exact.size), clique, sigma)

    def choose(self, scores: dict[Clique, float], epsilon: float, sensitivity: float) -> Clique:
        """The exponential mechanism."""
        cliques = list(scores)
        weights = softmax(0.5 * epsilon / sensitivity * np.array([scores[c] for c in cliques]))
        return cliques[self.rng.choice(len(cliques), p=weights)]


def estimated(
    domain: mbi.Domain, measured: list, model: object = None, iters: int = 1000
) -> mbi.MarkovRandomField:
    return mbi.estimation.MirrorDescent().estimate(domain, measured, iters=iters, warm_start=model)


def maps() -> int:
    """Maps of memory that this process has; JAX has some of everything that it compiled."""
    with open("/proc/self/maps", "rb") as listed:
        return sum(1 for _ in listed)


def aim(task: Task, codes: np.ndarray) -> np.ndarray:
    """Choose the pair or column that is worst approximated, measure it, estimate; until spent."""
    private, columns = Private(task, codes), names(task)
    rho, rounds = rho_of(task["epsilon"], task["delta"]), 16 * len(columns)
    workload = list(itertools.combinations(columns, 2))
    candidates: dict[Clique, float] = {(c,): float(len(columns) - 1) for c in columns}
    for pair in workload:
        candidates[pair] = float(sum(len(set(pair) & set(other)) for other in workload))
    exact = {clique: private.exact(clique) for clique in candidates}
    sigma, epsilon = math.sqrt(rounds / (2 * 0.9 * rho)), math.sqrt(8 * 0.1 * rho / rounds)
    measured = [private.measure((c,), sigma) for c in columns]
    spent = len(columns) * 0.5 / sigma**2
    model = estimated(private.domain, measured)
    last = False
    while not last:
        if rho - spent < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            left = rho - spent
            sigma, epsilon, last = math.sqrt(1 / (2 * 0.9 * left)), math.sqrt(8 * 0.1 * left), True
        spent += epsilon**2 / 8 + 0.5 / sigma**2
        most = 80 * spent / rho
        inside = {
            part for c in model.cliques for k in (1, 2) for part in itertools.combinations(c, k)
        }
        scores = {}
        for clique, weight in candidates.items():
            size = junction_tree.hypothetical_model_size(private.domain, [*model.cliques, clique])
            if clique in inside or size <= most:
                gap = np.abs(exact[clique] - np.asarray(model.project(clique).datavector())).sum()
                scores[clique] = weight * (gap - ABSOLUTE * sigma * private.domain.size(clique))
        chosen = private.choose(scores, epsilon, max(candidates[c] for c in scores))
        measured.append(private.measure(chosen, sigma))
        before = np.asarray(model.project(chosen).datavector())
        if maps() > MOST_MAPS:
            jax.clear_caches()  # every model is compiled anew
        model = estimated(private.domain, measured, model)
        moved = np.abs(np.asarray(model.project(chosen).datavector()) - before).sum()
        if moved <= ABSOLUTE * sigma * private.domain.size(chosen):
            sigma, epsilon = sigma / 2, epsilon * 2
    return records(model, columns, len(codes), task["seed"])


def mst(task: Task, codes: np.ndarray) -> np.ndarray:
    """All columns, then the pairs of a spanning tree; cells that seem empty are merged."""
    columns = names(task)
    rho = rho_of(task["epsilon"], task["delta"])
    private = Private(task, codes)
    sigma = math.sqrt(3 / (2 * rho))
    each = sigma * math.sqrt(len(columns))
    merging: dict[str, np.ndarray] = {}
    measured = []
    for column in columns:
        found = private.measure((column,), each)
        kept = np.asarray(found.noisy_measurement) >= 3 * each
        if not kept.all():
            merging[column] = np.where(kept, np.cumsum(kept) - 1, kept.sum())
        measured.append(found)
    measured = [m.compress(merging, private.domain) for m in measured]
    private.data = private.data.compress(merging)
    private.domain = private.data.domain
    model = estimated(private.domain, measured, iters=2500)
    gaps = {
        pair: float(
            np.abs(private.exact(pair) - np.asarray(model.project(pair).datavector())).sum()
        )
        for pair in itertools.combinations(columns, 2)
    }
    part = {column: column for column in columns}
    epsilon, tree = math.sqrt(8 * (rho / 3) / (len(columns) - 1)), []
    for _ in columns[1:]:
        open_pairs = {p: gap for p, gap in gaps.items() if part[p[0]] != part[p[1]]}
        a, b = private.choose(open_pairs, epsilon, 1.0)
        tree.append((a, b))
        joined = part[b]
        part = {c: part[a] if of == joined else of for c, of in part.items()}
    each = sigma * math.sqrt(len(tree))
    measured += [private.measure(pair, each) for pair in tree]
    model = estimated(private.domain, measured, iters=10_000)
    found = records(model, columns, len(codes), task["seed"])
    for j, column in enumerate(columns):
        if column in merging:
            drawn = found[:, j].copy()
            for value in range(merging[column].max() + 1):
                at = drawn == value
                members = np.flatnonzero(merging[column] == value)
                found[at, j] = private.rng.choice(members, at.sum())
    return found


def records(model: mbi.MarkovRandomField, columns: list[str], rows: int, seed: int) -> np.ndarray:
    np.random.seed(seed)
    made = model.synthetic_data(rows=rows).to_dict()
    return np.stack([np.asarray(made[c]) for c in columns], axis=1).astype(np.uint8)


if __name__ == "__main__":
    answer("mbi", {"aim": aim, "mst": mst})
