"""What a plan says of the shares of its products, and of what more of the budget would do."""

from __future__ import annotations

from typing import Any

from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.planning.planner import error_of, error_with_more
from statpress.mechanisms.planning.shares import WORTH
from statpress.tasks.pages.numbers import measured, share


def share_origin(plan: Plan, product: PlannedProduct[Any]) -> str:
    """What follows a product's share if the config leaves it open; empty if it does not."""
    if plan.division is None or product.name not in plan.division.names:
        return ""
    return ", equal" if plan.division.gain == 0 else ", found"


def division_words(plan: Plan) -> str:
    """How open shares were found, in a sentence; empty if none were to be found."""
    if plan.division is None:
        return ""
    gain = plan.division.gain
    if gain is None:
        return "Open shares are found so that every product can be served; equal ones do not do."
    if gain == 0:
        return (
            "Open shares are equal: no others were found with a mean expected error (geometric) "
            f"lower by {share(WORTH)}."
        )
    return (
        "Open shares are found so that the mean expected error of their products (geometric) is "
        f"least: it is {share(gain)} lower than with equal shares."
    )


def with_more(plan: Plan, product: PlannedProduct[Any]) -> str:
    """What a tenth more of the budget would do to a product's error; empty if that is not known."""
    now, then = error_of(product), error_with_more(plan, product)
    if not now or then is None:
        return ""
    change = 1 - then / now
    return f"{measured(then, 3)} ({share(abs(change))} {'less' if change >= 0 else 'more'})"
