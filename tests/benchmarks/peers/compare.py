"""The same data, bins and budget for every peer and for this project.

Each run is a process of its own. All runs of a method on a table, at every epsilon and seed, share
one limit of seconds; those that the limit leaves out are said to be.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.peers import environments
from tests.benchmarks.peers.asked import MEANS, METHODS, PLAN, SEEDS, TABLES, Method
from tests.benchmarks.wide_microdata import DELTA, EPSILONS, Shares, shares, variation

SUPPORT = str(Path(__file__).parents[2] / "support")


@dataclass(frozen=True)
class Compared:
    """Figures of a method on a table at one epsilon, means over the seeds.

    Attributes:
        errors: By name: ``pairs``, ``triples`` and ``worst pair`` total variations; ``counts``,
            the L1 error over n, ``clamped``, that of counts with negative ones at 0, and
            ``projected``, that of the column projected, where there is one; ``mean``, the absolute
            error over the range; ``epsilon`` of a plan.
        seeds: How many were run.
        ended: Why there are fewer than were asked for; empty if there are not.
    """

    peer: str
    version: str
    method: str
    adjacency: str
    work: str
    table: str
    columns: tuple[int, ...]
    epsilon: float
    errors: dict[str, float]
    seeds: int
    seconds: float
    cpu_seconds: float
    megabytes: float
    ended: str = ""


@dataclass
class Data:
    """A public table, its true shares, and the folder of what is answered about it."""

    name: str
    folder: Path
    sizes: tuple[int, ...] = ()
    codes: Any = None
    ordered: list[bool] = field(default_factory=list)
    true: dict[int, Shares] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, folder: Path) -> Data:
        sys.path.insert(0, SUPPORT)
        from wide_tables import coded, columns_of

        from statpress.mechanisms.domain.columns import Ordinal

        sizes, codes = coded(name)
        np.save(folder / f"{name}.npy", codes)
        ordered = [isinstance(column, Ordinal) for column in columns_of(name)]
        by_column = np.ascontiguousarray(codes.T)
        true = {order: shares(sizes, by_column, order) for order in (2, 3)}
        return cls(name, folder, tuple(map(int, sizes)), codes, ordered, true)

    def errors(self, work: str, columns: tuple[int, ...], found: Any) -> dict[str, float]:
        """How far off an answer is."""
        if work == "records":
            by_column = np.ascontiguousarray(found.T)
            pairs, triples = (
                variation(self.true[k], shares(self.sizes, by_column, k)) for k in (2, 3)
            )
            return {
                "pairs": float(pairs.mean()),
                "triples": float(triples.mean()),
                "worst pair": float(pairs.max()),
            }
        if work == "mean":
            values = self.codes[:, columns[0]] / (self.sizes[columns[0]] - 1)
            return {"mean": float(abs(found[0] - values.mean()))}
        shape = [self.sizes[j] for j in columns]
        flat = np.ravel_multi_index([self.codes[:, j].astype(np.int64) for j in columns], shape)
        counts, *projected = np.atleast_2d(found)
        true, n = np.bincount(flat, minlength=len(counts)), len(self.codes)
        forms = dict(zip(("counts", "projected"), (counts, *projected), strict=False))
        forms["clamped"] = np.maximum(counts, 0)
        return {form: float(np.abs(values - true).sum() / n) for form, values in forms.items()}


def compare(
    *,
    tables: tuple[str, ...] = tuple(TABLES),
    methods: tuple[Method, ...] = METHODS,
    epsilons: tuple[float, ...] = EPSILONS,
    seeds: int = SEEDS,
    limit: float = 900.0,
    resume: bool = False,
    folder: Path = environments.FOLDER / "results",
    make: Callable[[str], str] = environments.made,
) -> Iterator[Compared]:
    """Run everything; a peer that cannot be installed is in the result with its error.

    Args:
        tables: Public tables.
        methods: Who is asked for what.
        epsilons: Budgets; delta is 1e-6, but 0 where the noise is Laplace's.
        seeds: Runs of each.
        limit: Seconds for all runs of a method on a table.
        resume: Whether results of an earlier, unfinished call are taken as they are.
        folder: Folder of the results.
        make: Makes the environment of a peer; returns why it cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = {name: Data.of(name, folder) for name in tables}
    missing = {peer: make(peer) for peer in sorted({m.peer for m in methods} - {"ours"})}
    for method, name in itertools.product(methods, tables):
        if method.work == "plan":
            if name != tables[0]:
                continue
            groups: tuple[tuple[int, ...], ...] = ((),)
        elif method.work == "records":
            groups = ((),)
        else:
            means = ((MEANS[name],),) if name in MEANS else ()
            groups = TABLES[name] if method.work == "table" else means
        for columns in groups:
            if missing.get(method.peer):
                yield _empty(method, name, columns, epsilons[0], missing[method.peer])
                continue
            budgets = epsilons if method.work != "plan" else (0.0,)
            yield from _runs(method, data[name], columns, budgets, seeds, limit, resume)


def _runs(
    method: Method,
    data: Data,
    columns: tuple[int, ...],
    epsilons: tuple[float, ...],
    seeds: int,
    limit: float,
    resume: bool,
) -> Iterator[Compared]:
    """All budgets and seeds of a method on a table, within the limit."""
    left, ended = limit, ""
    figures: dict[float, list[dict[str, Any]]] = {epsilon: [] for epsilon in epsilons}
    for seed, epsilon in itertools.product(range(seeds), epsilons):
        if ended:
            break
        begun = time.perf_counter()
        found, ended = _run(method, data, columns, epsilon, seed, left, resume)
        left -= time.perf_counter() - begun
        if found is not None:
            figures[epsilon].append(found)
        if ended == "limit":
            ended = f"ended after {limit:.0f} s for all runs on this table"
    for epsilon, found_at in figures.items():
        if not found_at:
            yield _empty(method, data.name, columns, epsilon, ended)
            continue
        mean = {
            key: float(np.mean([each["errors"][key] for each in found_at]))
            for key in found_at[0]["errors"]
        }
        yield Compared(
            **asdict(method),
            version=found_at[0]["version"],
            table=data.name,
            columns=columns,
            epsilon=epsilon,
            errors=mean,
            seeds=len(found_at),
            seconds=float(np.mean([each["seconds"] for each in found_at])),
            cpu_seconds=float(np.mean([each["cpu_seconds"] for each in found_at])),
            megabytes=float(max(each["megabytes"] for each in found_at)),
            ended=ended if len(found_at) < seeds else "",
        )


def _run(
    method: Method,
    data: Data,
    columns: tuple[int, ...],
    epsilon: float,
    seed: int,
    left: float,
    resume: bool,
) -> tuple[dict[str, Any] | None, str]:
    """One run: its figures, or None and why not, ``limit`` for the limit."""
    folder = data.folder
    parts = (method.peer, method.method, data.name, "-".join(map(str, columns)), epsilon, seed)
    stem = folder / "_".join(map(str, parts))
    result, answers = stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.npy")
    if resume and result.exists():
        return json.loads(result.read_text()), ""
    task, taken = (stem.with_name(f"{stem.name}.{end}") for end in ("task", "taken"))
    asked = {
        "method": method.method,
        "data": str(folder / f"{data.name}.npy"),
        "sizes": data.sizes,
        "ordered": data.ordered,
        "epsilon": epsilon,
        "delta": DELTA,
        "seed": seed,
        "columns": columns,
        "parts": PLAN,
        "answers": str(answers),
        "result": str(taken),
    }
    task.write_text(json.dumps(asked))
    ours = method.peer == "ours"
    python = sys.executable if ours else str(environments.python_of(method.peer))
    script = environments.HERE / f"run_{method.peer}.py"
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [python, str(script), str(task)],
            check=False,
            capture_output=True,
            text=True,
            timeout=max(left, 0.0),
            env=alone,
        )
    except subprocess.TimeoutExpired:
        return None, "limit"
    finally:
        task.unlink()
    if done.returncode:
        return None, environments.last_line(done.stderr)
    found, answer = json.loads(taken.read_text()), np.load(answers)
    taken.unlink()
    answers.unlink()
    if method.work == "plan":
        found["errors"] = {"epsilon": float(answer[0])}
    else:
        found["errors"] = data.errors(method.work, columns, answer)
    result.write_text(json.dumps(found))
    return found, ""


def _empty(
    method: Method, table: str, columns: tuple[int, ...], epsilon: float, why: str
) -> Compared:
    """No figures, and why."""
    nothing = float("nan")
    return Compared(
        **asdict(method),
        version="",
        table=table,
        columns=columns,
        epsilon=epsilon,
        errors={},
        seeds=0,
        seconds=nothing,
        cpu_seconds=nothing,
        megabytes=nothing,
        ended=why or "not run",
    )
