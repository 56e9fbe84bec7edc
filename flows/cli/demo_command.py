"""The command ``demo``: public microdata, and a folder and a ledger of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.flows.cli.options import Json, NoOrchestrator, Result, Timings, Yes
from statpress.flows.cli.release_commands import confirm, outcome_result
from statpress.mechanisms.domain.domain import Adjacency, Privacy, Unit
from statpress.mechanisms.errors import OutputNotWritableError
from statpress.tasks.ledger.account_rules import of_path
from statpress.tasks.ledger.home_ledger import register_dataset, remaining_budget
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import keeping_log
from statpress.tasks.source.demo_data import N_RECORDS, write_demo_data

CONFIGS = (
    "happiness.yaml", "census2000.yaml", "census2000_estimates.yaml", "census2000_places.yaml",
)  # fmt: skip
"""The shipped configs that the demo's folder gets; the first is the one it presses."""

PLACES = ("us_divisions.csv", "us_tiles.csv")
"""Public files that these name."""

BUDGETS = {
    "happiness": {"epsilon": "10", "delta": "1e-5"},
    "census2000": {"epsilon": "10", "delta": "1e-7"},
}
"""Of the whole life of each dataset."""


def demo(
    *,
    directory: Path = Path("statpress-demo"),
    yes: Yes = False,
    no_orchestrator: NoOrchestrator = False,
    timings: Timings = False,
    json: Json = False,
) -> Result:
    """Release a synthetic file of fifteen columns from real survey data, in a folder of its own.

    Args:
        directory: Folder for data, config, ledger and releases.
    """
    started = time.perf_counter()
    from statpress.flows.runner import open_context, run_release
    from statpress.flows.terminal import Progress

    home = Home(directory.absolute() / "home")
    with (
        Progress(shown=not json) as progress,
        _folder_of_its_own(directory.absolute()),
        open_context(home, orchestrated=not no_orchestrator, listener=progress) as context,
    ):
        order, known = prepare(directory.absolute(), home)
        planned = time.perf_counter() - started
        if known and not yes:
            confirm(_cost_of_another(order, home), "Charge again?")
        outcome = run_release(context, order)
    steps = _next_commands(directory, outcome.bundle)
    done = outcome_result(
        json, outcome, context, started, planned if timings else None, {"next": steps}
    )

    def report() -> Iterator[Any]:
        yield from done.report()
        page = directory / outcome.bundle.parent.name / outcome.bundle.name / "report.html"
        yield f"\nLook at {page}, then try"
        yield "\n".join(f"  {step}" for step in steps)

    return Result(json=json, facts=done.facts, report=report)


def prepare(directory: Path, home: Home) -> tuple[PlannedOrder, bool]:
    """Make or reuse the demo's data, configs and ledger accounts, and plan its release.

    Returns:
        The planned release, and whether its dataset was registered before.
    """
    write_demo_data(directory / "data")
    for name in (*CONFIGS, *PLACES):
        copy = directory / name
        if not copy.exists():
            with as_file(files("statpress.configs") / name) as shipped:
                shutil.copyfile(shipped, f"{copy}.new")
            os.replace(f"{copy}.new", copy)
    order = PlannedOrder.of(Order(directory / CONFIGS[0]))
    known = remaining_budget(home, order.release.config.dataset) is not None
    for dataset, limits in BUDGETS.items():
        if remaining_budget(home, dataset) is None:
            privacy = Privacy(
                adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=N_RECORDS[dataset]
            )
            source = of_path(f"data/{dataset}.parquet", str(directory))
            register_dataset(home, dataset, privacy, sources=[source], **limits)
    return order, known


@contextmanager
def _folder_of_its_own(directory: Path) -> Iterator[None]:
    """Make the demo's folder; one that was not there before goes again where the demo fails."""
    made = not os.path.lexists(directory)
    reason = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the disk fails"
    if reason is not None:
        raise OutputNotWritableError(
            f"The demo's folder cannot be made ({reason}).",
            where=str(directory),
            next_step="Name another with --directory.",
        )
    try:
        with keeping_log(directory / "home" / "curator") if made else nullcontext():
            yield
    except BaseException:
        if made:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def _cost_of_another(order: PlannedOrder, home: Home) -> str:
    """What running the demo again costs."""
    remaining = remaining_budget(home, order.release.config.dataset)
    return (
        "The demo was set up before. Running it again charges epsilon "
        f"{order.plan.epsilon:f}, delta {order.plan.delta} of the remaining {remaining}."
    )


def _next_commands(directory: Path, bundle: Path) -> list[str]:
    """Commands to try after the demo.

    Args:
        directory: The demo's folder, as the user named it.
        bundle: What was published.
    """
    folder = shlex.quote(str(directory))
    published = shlex.quote(str(directory / bundle.parent.name / bundle.name))
    home = f"--home {folder}/home"
    return [
        f"statpress query {published} --columns happy --where divorce=yes",
        f"statpress verify {published} {home}",
        f"statpress plan {folder}/{CONFIGS[0]} --compare {home}",
        *(f"statpress run {folder}/{name} {home}" for name in CONFIGS[1:]),
    ]
