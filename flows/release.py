"""The release flow: one config in, one bundle out, published or prepared for its approval."""

from __future__ import annotations

from collections.abc import Callable

from configs.order import Order
from tasks.execution.home import Home
from tasks.orchestration.exclusion import one_at_a_time
from tasks.orchestration.monitoring import DrawingProgress, show_budget, show_plan, show_release
from tasks.quality.inspector import Inspector
from tasks.release.places import open_run
from tasks.release.steps import (
    Outcome,
    charge_ledger,
    check_budget,
    check_counts,
    check_input,
    check_products,
    count_once,
    draw_records,
    fix_plan,
    postprocess,
    prepare_bundle,
    publish_bundle,
    read_config,
    rehearse,
    write_products,
)


def press(
    order: Order,
    *,
    home: Home,
    inspector: Inspector,
    insecure_seed: int | None = None,
    advance: Callable[[int], None] = lambda records: None,
) -> Outcome:
    """Press one release.

    Args:
        order: The release config, and what differs from it.
        home: Where the ledger lies.
        inspector: Quality process of this run; its log gives the run id.
        insecure_seed: For tests alone; marks the bundle as not publishable.
        advance: Told the number of records done, for a progress bar.

    Raises:
        StatpressError: One of its kinds; before "charge ledger" nothing was charged.
    """
    release = read_config(order)
    plan = fix_plan(release)
    show_plan(release, plan)
    seeded = insecure_seed is not None
    reviewed = check_budget(home, release, plan, inspector.log.run_id, seeded)
    with (
        one_at_a_time(release.config.dataset),
        open_run(
            release,
            plan,
            home=home,
            inspector=inspector,
            reviewed=reviewed,
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
        products = postprocess(run, plan, drawn)
        write_products(run, release, plan, charge, products)
        check_products(run, release, plan, products)
        if reviewed:
            return prepare_bundle(home, run, release, charge)
        outcome = publish_bundle(home, run, release, charge)
    show_release(release, outcome)
    return outcome
