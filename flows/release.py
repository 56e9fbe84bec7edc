"""The release flow: one config in, one bundle out."""

from __future__ import annotations

from collections.abc import Callable

from tasks.exclusion import one_at_a_time
from tasks.home import Home
from tasks.inspector import Inspector
from tasks.monitoring import DrawingProgress, show_budget, show_plan, show_release
from tasks.pipeline import (
    Outcome,
    charge_ledger,
    check_budget,
    check_counts,
    check_input,
    check_products,
    count_once,
    draw_records,
    fix_plan,
    publish_bundle,
    read_config,
    rehearse,
    write_products,
)
from tasks.run import open_run


def press(
    config: str,
    *,
    home: Home,
    inspector: Inspector,
    insecure_seed: int | None = None,
    advance: Callable[[int], None] = lambda records: None,
) -> Outcome:
    """Press one release.

    Args:
        config: Path of the release config.
        home: Where the ledger lies.
        inspector: Quality process of this run; its log gives the run id.
        insecure_seed: For tests alone; marks the bundle as not publishable.
        advance: Told the number of records done, for a progress bar.

    Raises:
        StatpressError: One of its kinds; before "charge ledger" nothing was charged.
    """
    release = read_config(config)
    plan = fix_plan(release)
    show_plan(release, plan)
    check_budget(home, release, plan, inspector.log.run_id, insecure_seed is not None)
    with (
        one_at_a_time(release.config.dataset),
        open_run(
            release,
            plan,
            home=home,
            inspector=inspector,
            insecure_seed=insecure_seed,
            advance=DrawingProgress.of(release, plan, advance),
        ) as run,
    ):
        rehearse(run, release, plan)

        # Private zone: what the source holds, and whether it passed its checks.
        check_input(run, release)
        table = count_once(run, release, plan)
        check_counts(run, release, table)

        charge = charge_ledger(home, run, release, plan)
        show_budget(home, release.config.dataset)

        # Public zone: everything from the draw on.
        drawn = draw_records(home, run, plan, table, charge)
        write_products(run, release, plan, charge, drawn)
        check_products(run, release, plan, drawn)
        outcome = publish_bundle(home, run, release, plan, charge)
    show_release(release, outcome)
    return outcome
