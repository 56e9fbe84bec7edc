"""Command line of re-releases, and the options that runs share: parses, calls, prints."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice

from flows.cli.ledger import HomeFolder, Json, home_of

if TYPE_CHECKING:
    from configs.order import Order, Override

NoOrchestrator = Annotated[
    bool, Parameter(name="--no-orchestrator", negative="", help="Run without Prefect.")
]
Timings = Annotated[
    bool, Parameter(name="--timings", negative="", help="Print where the time went.")
]
Yes = Annotated[
    bool, Parameter(name=["--yes", "-y"], negative="", help="Do not ask before charging.")
]
Overrides = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="Change a value of the config, such as budget.epsilon=0.5; may be repeated, and "
        "wins over STATPRESS__BUDGET__EPSILON in the environment.",
    ),
]
_WAYS = Group("How", validator=LimitedChoice(1, 1), help="Give exactly one.")


def order_of(config: Path, options: list[str] | None) -> Order:
    """The order for a config with the overrides of the environment and of options."""
    from configs.order import Order

    return Order(config, overrides_of(options or []))


def overrides_of(options: list[str]) -> tuple[Override, ...]:
    """The overrides of the environment, then those of options."""
    from configs.order import from_environment, from_options

    return (*from_environment(os.environ), *from_options(options))


def rerelease(
    bundle: Path,
    *,
    reprint: Annotated[bool, Parameter(group=_WAYS, negative="")] = False,
    renew: Annotated[bool, Parameter(group=_WAYS, negative="")] = False,
    revise: Annotated[Path | None, Parameter(group=_WAYS)] = None,
    set_: Overrides = None,
    name: str | None = None,
    folder: Path = Path(),
    plan_only: Annotated[bool, Parameter(negative="")] = False,
    yes: Yes = False,
    home: HomeFolder = None,
    no_orchestrator: NoOrchestrator = False,
    timings: Timings = False,
    json: Json = False,
) -> None:
    """Release a published bundle anew: derived again, on new data, or with a changed config.

    Args:
        bundle: The bundle's folder.
        reprint: Derive its products again from what was drawn; free, without data or ledger.
        renew: The same config on the data of today; charged as a run of its own.
        revise: A changed config, whose differences are shown first; charged as a run of its
            own.
        name: Of the new bundle; the same as --set publish.name.
        folder: Where the config's paths are taken from under --renew; by default the current
            folder.
        plan_only: Show what it would change and cost, and stop.
    """
    started = time.perf_counter()
    from configs.order import from_options
    from flows import rerelease as ways
    from flows.report.terminal import confirm, show, show_json

    options = [*(set_ or ()), *([] if name is None else [f"publish.name={name}"])]
    if reprint:
        facts = ways.reprint(bundle, from_options(options), shown=not json)
        show_json(facts) if json else show(ways.reprint_report(facts))
        return
    place = home_of(home)
    proposal = ways.propose(bundle, revise, overrides_of(options), folder, place)
    if not json:
        for part in ways.proposal_report(proposal):
            show(part)
    if plan_only:
        show_json({"plan": proposal.facts()}) if json else None
        return
    from flows.pressing import press_order
    from flows.runner import session

    proposal.check(place)
    if not yes:
        confirm(proposal.words, "Charge this?")
    with session(place) as opened:
        press_order(
            opened,
            proposal.order,
            started=started,
            orchestrated=not no_orchestrator,
            timings=timings,
            as_json=json,
            facts={"plan": proposal.facts()},
        )
