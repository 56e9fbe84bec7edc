"""Drawing the products of a run in other processes, which are told a home, a run and a number.

All else lies in the folder ``draw`` of the run's private work folder, for its owner only:

| file | holds |
|---|---|
| ``token`` | a random word and the versions: who reads it sees this very folder |
| ``plan`` | products with mechanisms at fixed parameters; public |
| ``counted``, ``*.npy`` | what was counted; private |
| ``entry`` | the ledger's entry that the run begins to draw, and a test's seed |
| ``N.claimed`` | nothing; who makes it draws product N, and nobody after them ever does |
| ``N.drawn`` | what product N's mechanism released; there once it is whole |

``entry`` comes last and only after the charge, and without it no generator can be made. A process
says one of a few public words; everything else that happens in it goes to the curator log.

All that can fail without a random bit does so before the charge: that a process sees the run's
folder, knows its mechanisms, and that the counts are written.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import platform
import secrets
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.contingency_table import ContingencyTable, Counted
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import InternalError, StatpressError, WorkerError
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.private_zone.guards import IN_A_STEP, CuratorLog, guarded, silence_core_dumps
from statpress.tasks.private_zone.workers import Task, Workers, tasks_of_parent
from statpress.tasks.products.product_kind import kind_of, private_input
from statpress.tasks.release.entropy import generator
from statpress.tasks.release.runs import Run
from statpress.tasks.source.guarding import new_file
from statpress.tasks.source.scanning import SpilledColumns

FOLDER = "draw"
READY, UNSEEN, FOREIGN, UNKNOWN = "ready", "unseen", "foreign", "unknown"
"""What a process says that is asked to ``look``."""
DONE, CLAIMED, FAILED, DISK = "done", "claimed", "failed", "disk"
"""What one says that is asked to ``draw``; the last with an error number of the system."""

_MAPPED = 1 << 20


def perform(home: str, run_id: str, task: Task) -> str:
    """Do what a run asks of this process, and say a public word; raises nothing of what failed.

    Args:
        home: Root of the run's home, as this process sees it too.
        run_id: The run.
        task: ``("look", token)`` or ``("draw", number)``.
    """
    silence_core_dumps()
    verb, about = task
    folder = Path(home) / "work" / run_id / FOLDER
    log = CuratorLog(Path(home) / "curator", run_id)

    def work() -> str:
        return _look(folder, about) if verb == "look" else _draw(folder, int(about))

    with suppress(StatpressError):
        return guarded(work, log, IN_A_STEP)()
    return FAILED


def _look(folder: Path, token: str) -> str:
    """Whether this process sees the folder, may write there, and knows what is planned."""
    try:
        seen = json.loads((folder / "token").read_text(encoding="utf-8"))
        if seen["token"] != token:
            return UNSEEN
        if seen["versions"] != versions():
            return FOREIGN
        mark = folder / f"{uuid.uuid4().hex}.seen"
        new_file(mark).close()
        mark.unlink()
    except (OSError, ValueError):
        return UNSEEN
    try:
        for product in load(folder / "plan"):
            kind_of(product)
    except (pickle.UnpicklingError, ImportError, AttributeError, LookupError):
        return UNKNOWN
    return READY


def _draw(folder: Path, number: int) -> str:
    """Draw a product, once and for all."""
    drawn = folder / f"{number}.drawn"
    try:
        draw, seed = load(folder / "entry")
        product = load(folder / "plan")[number]
        private = private_input(product, load_counted(folder))
        try:
            new_file(folder / f"{number}.claimed").close()
        except FileExistsError:  # whoever drew it may have ended right after
            return DONE if drawn.exists() else CLAIMED
        rng = generator(draw, product.name, insecure_seed=seed)
        unfinished = folder / f"{number}.unfinished"
        save(unfinished, product.mechanism.release(private, rng))
        unfinished.rename(drawn)
    except OSError as error:
        return f"{DISK} {error.errno or 0}"
    return DONE


def versions() -> dict[str, str]:
    """What two processes must have in common to read each other's files."""
    names = ("statpress", "numpy", "opendp")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes functions that statistics make, and tables of counts, which refuse lest they leave."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ContingencyTable):
            parts = tuple(getattr(value, f.name) for f in fields(value) if f.init)
            return type(value), parts
        return super().reducer_override(value)


def save(path: Path, value: Any) -> None:
    """Write something for the run's other processes.

    Raises:
        OSError: The disk is full, or fails.
        Exception: The value, or a part of it, cannot be written; of any kind.
    """
    with io.BufferedWriter(new_file(path)) as file:
        _Pickler(file, protocol=5).dump(value)


def load(path: Path) -> Any:
    """What one of the run's processes has written, in a folder that only its owner can enter."""
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301


@dataclass(frozen=True, repr=False)
class _Files:
    """What was counted, but for the numbers that have files of their own; private."""

    joint: tuple[Domain, ...]
    coded: tuple[Domain, Path, int, int] | None


def save_counted(folder: Path, counted: Counted) -> None:
    """Write what was counted; coded columns are files already."""
    for number, table in enumerate(counted.joint):
        for name, array in (("cells", table.cells), ("counts", table.counts)):
            with io.BufferedWriter(new_file(folder / f"{number}.{name}.npy")) as file:
                np.save(file, array)
    coded = None
    if counted.coded is not None:
        spilled = cast("SpilledColumns", counted.coded)
        coded = spilled.domain, spilled.folder, spilled.n_present, spilled.n_absent
    save(folder / "counted", _Files(tuple(table.domain for table in counted.joint), coded))


def load_counted(folder: Path) -> Counted:
    """What was counted; large arrays stay in their files, and in memory once for all processes."""
    files: _Files = load(folder / "counted")
    joint = tuple(
        ContingencyTable(
            domain,
            _array(folder / f"{number}.cells.npy"),
            _array(folder / f"{number}.counts.npy"),
        )
        for number, domain in enumerate(files.joint)
    )
    return Counted(joint, SpilledColumns(*files.coded) if files.coded else None)


def _array(path: Path) -> NDArray[np.int64]:
    mode: Any = "r" if path.stat().st_size > _MAPPED else None
    return np.asarray(np.load(path, mmap_mode=mode))


def main() -> None:
    """Serve the run that started this process, until it ends."""
    tasks, answers = tasks_of_parent()
    home, run_id = sys.argv[1:3]
    for line in tasks:
        verb, about = json.loads(line)
        print(perform(home, run_id, (verb, about)), file=answers, flush=True)


if __name__ == "__main__":
    main()


_FLAWS = {
    UNSEEN: (
        "It does not see the run's private folder, or may not write there. Nothing was charged.",
        "Have the home in a folder that all workers see at the same path, and run them as the"
        " user who owns it.",
    ),
    FOREIGN: (
        "It has other versions of Python, statpress, NumPy or OpenDP. Nothing was charged.",
        "Install the same versions for all workers.",
    ),
    UNKNOWN: (
        "It cannot import a mechanism or statistic of the plan. Nothing was charged.",
        "Have its module on PYTHONPATH where the workers start.",
    ),
    FAILED: (
        "It failed to look at the run's private folder. Nothing was charged.",
        "The curator finds the detail in the curator log.",
    ),
}


def introduce(run: Run, plan: Plan, workers: Workers) -> None:
    """Give the plan to the workers, and see that all of them can do their part."""
    folder, token = run.work / FOLDER, secrets.token_hex(16)
    folder.mkdir(mode=0o700)
    unfit = None
    try:
        save(folder / "plan", light(plan))
    except OSError:
        raise
    except Exception as error:  # whatever an object from outside the package does
        unfit = type(error).__name__
    if unfit is not None:
        raise WorkerError(
            f"A mechanism of the plan cannot be given to another process ({unfit}). Nothing was"
            " charged.",
            next_step="Define its functions at the top of a module, or run with --workers 1.",
        )
    with new_file(folder / "token") as file:
        file.write(json.dumps({"token": token, "versions": versions()}).encode())
    for word in workers.everywhere(("look", token)):
        if word != READY:
            flaw, step = _FLAWS.get(word, _FLAWS[FAILED])
            raise WorkerError(flaw, where=workers.place, next_step=step)


def light(plan: Plan) -> list[PlannedProduct[Any]]:
    """The products as one who draws has need of them: losses are large, and charged already."""
    return [replace(product, loss=cast("Any", None), choice=None) for product in plan.products]


def draw_by(workers: Workers, run: Run, plan: Plan, draw: Entry) -> dict[str, Any]:
    """Have every product drawn by a worker, the longest first; what they released, by name."""
    folder, products = run.work / FOLDER, plan.products
    save(folder / "entry", (draw, run.insecure_seed))
    order = sorted(range(len(products)), key=lambda number: -products[number].draws)
    for number, word in workers.each({number: ("draw", str(number)) for number in order}):
        _check(word, products[number].name, run, workers)
        run.advance(products[number].draws)
    return {
        product.name: load(folder / f"{number}.drawn") for number, product in enumerate(products)
    }


def _check(word: str, product: str, run: Run, workers: Workers) -> None:
    """Refuse any word but that the product is drawn."""
    if word == DONE:
        return
    kind, _, number = word.partition(" ")
    if kind == DISK:
        raise OSError(int(number), os.strerror(int(number)))
    if word == CLAIMED:
        raise WorkerError(
            f"A worker began to draw '{product}' and ended before it was done; nothing is drawn"
            " twice.",
            where=workers.place,
        )
    raise InternalError(
        f"An unforeseen error stopped the run; incident {run.run_id}.",
        next_step=f"The curator finds the detail in the curator log {run.run_id}.log.",
    )
