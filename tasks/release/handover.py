"""The run's side of drawing in other processes: what it writes for them, and what they drew.

All that can fail without a random bit does so before the charge: that a process sees the run's
folder, knows its mechanisms, and that the counts are written.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import replace
from typing import Any, cast

from mechanisms.domain.counted import Counted
from mechanisms.errors import InternalError, WorkerError
from mechanisms.planning.plan import Plan, PlannedProduct
from tasks.execution.workers import Workers
from tasks.ledger_rules.entries import Entry
from tasks.release import drawing
from tasks.release.places import Run
from tasks.source.private_files import new_file

_FLAWS = {
    drawing.UNSEEN: (
        "It does not see the run's private folder, or may not write there. Nothing was charged.",
        "Have the home in a folder that all workers see at the same path, and run them as the"
        " user who owns it.",
    ),
    drawing.FOREIGN: (
        "It has other versions of Python, statpress, NumPy or OpenDP. Nothing was charged.",
        "Install the same versions for all workers.",
    ),
    drawing.UNKNOWN: (
        "It cannot import a mechanism or statistic of the plan. Nothing was charged.",
        "Have its module on PYTHONPATH where the workers start.",
    ),
    drawing.FAILED: (
        "It failed to look at the run's private folder. Nothing was charged.",
        "The curator finds the detail in the curator log.",
    ),
}


def introduce(run: Run, plan: Plan, workers: Workers) -> None:
    """Give the plan to the workers, and see that all of them can do their part.

    Raises:
        WorkerError: One cannot; nothing is charged.
        OSError: The disk is full, or fails.
    """
    folder, token = run.work / drawing.FOLDER, secrets.token_hex(16)
    folder.mkdir(mode=0o700)
    unfit = None
    try:
        drawing.save(folder / "plan", light(plan))
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
        file.write(json.dumps({"token": token, "versions": drawing.versions()}).encode())
    for word in workers.everywhere(("look", token)):
        if word != drawing.READY:
            flaw, step = _FLAWS.get(word, _FLAWS[drawing.FAILED])
            raise WorkerError(flaw, where=workers.place, next_step=step)


def light(plan: Plan) -> list[PlannedProduct[Any]]:
    """The products as one who draws has need of them: losses are large, and charged already."""
    return [replace(each, loss=cast("Any", None), choice=None) for each in plan.products]


def hand_over(run: Run, counted: Counted) -> None:
    """Write what was counted for the workers.

    Raises:
        OSError: The disk is full, or fails.
    """
    drawing.save_counted(run.work / drawing.FOLDER, counted)


def draw_by(workers: Workers, run: Run, plan: Plan, draw: Entry) -> dict[str, Any]:
    """Have every product drawn by a worker, the longest first; what they released, by name.

    Raises:
        WorkerError: A worker ended before it was done.
        InternalError: One failed; the detail is in the curator log.
        OSError: The disk of one is full, or fails.
    """
    folder, products = run.work / drawing.FOLDER, plan.products
    drawing.save(folder / "entry", (draw, run.insecure_seed))
    order = sorted(range(len(products)), key=lambda number: -products[number].draws)
    for number, word in workers.each({each: ("draw", str(each)) for each in order}):
        _check(word, products[number].name, run, workers)
        run.advance(products[number].draws)
    return {
        product.name: drawing.load(folder / f"{number}.drawn")
        for number, product in enumerate(products)
    }


def _check(word: str, product: str, run: Run, workers: Workers) -> None:
    """Refuse any word but that the product is drawn."""
    if word == drawing.DONE:
        return
    kind, _, number = word.partition(" ")
    if kind == drawing.DISK:
        raise OSError(int(number), os.strerror(int(number)))
    if word == drawing.CLAIMED:
        raise WorkerError(
            f"A worker began to draw '{product}' and ended before it was done; nothing is drawn"
            " twice.",
            where=workers.place,
        )
    raise InternalError(
        f"An unforeseen error stopped the run; incident {run.run_id}.",
        next_step=f"The curator finds the detail in the curator log {run.run_id}.log.",
    )
