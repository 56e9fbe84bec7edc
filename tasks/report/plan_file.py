"""The page of a plan in its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from configs.loading import Release
from mechanisms.errors import OutputNotWritableError
from mechanisms.planning.plan import Plan
from tasks.execution.home import Home
from tasks.ledger_rules.amounts import Loss
from tasks.pages.page import rendered
from tasks.plans.offers import offers_of
from tasks.report.plan_page import plan_page

SUFFIX = ".html"


def check_page(path: Path) -> None:
    """Refuse a file that is not named as a page, before anything is computed for it.

    Raises:
        OutputNotWritableError: It is not, or its folder is not there.
    """
    if path.suffix != SUFFIX:
        raise OutputNotWritableError(
            "The page would take the place of a file that is not one.",
            where=str(path),
            next_step=f"Give it a name that ends with '{SUFFIX}'.",
        )
    if not path.parent.is_dir():
        raise OutputNotWritableError(
            "There is no such folder to write the page to.",
            where=str(path.parent),
            next_step="Make it, or name another.",
        )


def write_plan_page(
    path: Path,
    home: Home,
    release: Release,
    plan: Plan,
    remaining: Loss | None,
    stopping: Sequence[Exception],
    announce: Callable[[str], None],
) -> None:
    """Plan for other budgets too, and write the page in one step.

    Args:
        path: Of the page; what is there is replaced.
        home: Where the ledger lies.
        release: The config.
        plan: Of that.
        remaining: What the ledger still grants.
        stopping: Why a run would stop.
        announce: Told which budget is planned.

    Raises:
        OutputNotWritableError: The page cannot be written.
    """
    offers = offers_of(home, release, plan, announce)
    page = plan_page(release, plan, offers, remaining, [str(each) for each in stopping])
    written = path.with_name(f".{path.name}.new")
    try:
        written.write_text(rendered(page), encoding="utf-8")
        os.replace(written, path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise OutputNotWritableError(
            f"The page cannot be written ({error.strerror}).",
            where=str(path),
            next_step="Make room, or name another place.",
        ) from None
