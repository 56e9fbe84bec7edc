"""The page of a plan: what a release would cost and how good it would be, before it is paid for.

From public quantities only, so that a methodologist and a board may look at it together. Its prose
is in the template ``plan.html.jinja``. The plans for other budgets are made in forks of this
process where there are processors.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import ROUND_FLOOR, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from warnings import catch_warnings, simplefilter

import numpy as np

from statpress.configs.loading import Release
from statpress.mechanisms.errors import OutputNotWritableError, StatpressError
from statpress.mechanisms.mechanism import shown
from statpress.mechanisms.planning.choice import Budget, gaussian_mu
from statpress.mechanisms.planning.plan import Plan, PlannedProduct, verdict
from statpress.mechanisms.planning.planner import TIMES, Offer, criterion_of, error_of
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.pages.blocks import (
    Block,
    Chart,
    Curves,
    Gallery,
    Grid,
    Line,
    Option,
    Page,
    Prose,
    Slider,
)
from statpress.tasks.pages.numbers import at_most, count, how_many, measured, share, short
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.workers import usable_processors
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.foreseen import (
    division_words,
    rho_delta_of,
    share_origin,
    warnings,
    with_more,
)

_ERRORS = {
    "total variation of pairs": "The share of records that stand in a wrong cell of a table of "
    "two columns, on average over pairs.",
    "sd of a cell, average": "By how many records a count is typically off.",
    "total variation, projected": "The share of records that stand in a wrong cell.",
    "KS distance": "The largest error of a cumulative share.",
    "width of the interval": "From the lower to the upper end, in the units of the estimate.",
    "largest error": "Of the function's value, over its whole range.",
}
"""What the errors are that mechanisms are compared by."""
VERDICTS = {
    "usable": "usable",
    "mostly_noise": "mostly noise",
    "mostly_independent": "mostly independent",
    "nearly_disclosed": "nearly discloses the data",
    "not_known": "depends on the data",
}
"""The names of verdicts for a person."""
_ONE = Decimal(1)
_GROWS = " Where it grows with the budget, that is too small for the figure to mean anything."


def _budgets(plan: Plan, offers: Sequence[Offer], remaining: Loss | None) -> Slider:
    """What each budget gives."""
    start = next(place for place, offer in enumerate(offers) if offer.times == _ONE)
    options = [Option(_label(offer), [_offer(offer, plan, remaining)]) for offer in offers]
    return Slider("Budget of the release:", options, start)


def _label(offer: Offer) -> str:
    """The budget of an offer as its slider names it."""
    times = "the planned budget" if offer.times == _ONE else f"{offer.times} times the planned one"
    if offer.plan is None:
        return f"{times}: cannot be met"
    return f"epsilon {short(offer.plan.epsilon, digits=4)}, {times}"


def _offer(offer: Offer, plan: Plan, remaining: Loss | None) -> Block:
    """What one budget gives."""
    if offer.plan is None:
        return Prose([f"This budget cannot be met: {offer.reason}"])
    rows = []
    for product in offer.plan.products:
        own = next(each for each in plan.products if each.name == product.name)
        rows.append(
            [
                product.name,
                product.mechanism.name,
                criterion_of(product),
                measured(error_of(product), 3),
                measured(error_of(own), 3),
                VERDICTS[verdict(product).name],
            ]
        )
    left = "" if remaining is None else f" {repeats(offer.plan, remaining)}"
    return Grid(
        ["product", "mechanism", "expected error", "here", "as planned", "verdict"],
        rows,
        note=f"An attacker gains at most {at_most(offer.plan.attack_advantage)}.{left}",
    )


def _curve(product: PlannedProduct[Any], offers: Sequence[Offer]) -> Chart | None:
    """A product's error over the budget; None where too few are known."""
    known = errors_over(offers, product.name)
    if len(known) < 2:
        return None
    plans = [offer.plan for offer, _ in known]
    epsilons = [float(each.epsilon) for each in plans if each is not None]
    errors = [error for _, error in known]
    own = [
        (epsilon, error)
        for epsilon, (offer, error) in zip(epsilons, known, strict=True)
        if offer.times == _ONE
    ]
    words = criterion_of(product)
    grows = _GROWS if any(b > 1.05 * a for a, b in pairwise(errors)) else ""
    return Chart(
        f"{product.name}: {words}",
        Curves(
            [Line("", epsilons, errors)],
            "epsilon of the release",
            f"expected {words}",
            points=own,
            log_x=True,
            from_zero=True,
        ),
        f"The expected error goes from {measured(errors[0], 3)} at epsilon "
        f"{measured(epsilons[0], 3)} to {measured(errors[-1], 3)} at {measured(epsilons[-1], 3)}.",
        Grid(
            ["epsilon of the release", f"expected {words}"],
            [[measured(x), measured(y)] for x, y in zip(epsilons, errors, strict=True)],
        ),
        note=f"{_ERRORS.get(words, '')} The dot is this plan.{grows}".strip(),
    )


def _shares(release: Release, plan: Plan, offers: Sequence[Offer]) -> Grid | None:
    """What a larger or smaller share of a product would buy; None of a single one."""
    if len(plan.products) < 2:
        return None
    budget, n_products, rows = release.budget(), len(plan.products), []
    for product in plan.products:
        own = float(product.request.share)
        half, double = (
            error_at_part(offers, product.name, ratio, budget, n_products=n_products)
            if ratio * own < 1
            else None
            for ratio in (0.5, 2.0)
        )
        figures = [measured(each, 3) for each in (half, error_of(product), double)]
        more = with_more(plan, product) or measured(None)
        rows.append(
            [
                product.name,
                share(own) + share_origin(plan, product),
                criterion_of(product),
                *figures,
                more,
            ]
        )
    division = division_words(plan)
    return Grid(
        [
            "product",
            "share",
            "expected error",
            "with half its share",
            "planned",
            "with twice",
            "with a tenth more of the budget",
        ],
        rows,
        note=f"{division} "
        * bool(division)
        + "Errors with half and twice a share are read off the "
        "curves above, so they are approximate. What one product gains the others lose: the shares "
        "add up to the release's budget.",
    )


def repeats(plan: Plan, remaining: Loss) -> str:
    """How often a release fits into what remains, in a sentence."""
    often = [
        int((left / cost).to_integral_value(ROUND_FLOOR))
        for measure, left in remaining.amounts.items()
        if (cost := plan.amounts[measure])
    ]
    if not often or min(often) < 1:
        return "The remaining budget does not cover this release."
    times = "once" if min(often) == 1 else f"{count(min(often))} times"
    return f"The remaining budget covers this release {times}."


_APART = 3  # products that would stop a run, up to which each has a warning of its own


def plan_page(
    release: Release,
    plan: Plan,
    offers: Sequence[Offer],
    remaining: Loss | None,
    stopping: Sequence[str],
) -> str:
    """The page."""
    marks = [f"A run would stop: {reason}" for reason in stopping]
    page = Page(
        title=f"Plan: {release.config.title}",
        sections=(),
        subtitle=f"Dataset {release.config.dataset}. From public quantities only: nobody has "
        "looked at the data, and nothing is charged.",
        marks=[*marks, *warnings(release, plan, apart=_APART)],
    )
    return rendered(
        page,
        template="plan.html.jinja",
        plan=plan,
        remaining=remaining,
        fits=None if remaining is None else repeats(plan, remaining),
        size=how_many(plan.privacy.n_units, plan.privacy.n_records, plan.privacy.size),
        verdicts=_verdicts(plan),
        budgets=_budgets(plan, offers, remaining),
        curves=Gallery([c for c in (_curve(each, offers) for each in plan.products) if c]),
        shares=_shares(release, plan, offers),
        made=_made,
        verdict=verdict,
        canonical=canonical,
    )


def _verdicts(plan: Plan) -> str:
    """The products by verdict."""
    names: dict[str, list[str]] = {}
    for product in plan.products:
        names.setdefault(VERDICTS[verdict(product).name], []).append(product.name)
    return "; ".join(f"{words}: {', '.join(listed)}" for words, listed in names.items())


def _made(product: PlannedProduct[Any]) -> Grid:
    """How a product will be made, folded away."""
    chosen = [] if product.choice is None else [["chosen for", product.choice.reason()]]
    rows = [
        ["mechanism", product.mechanism.name],
        *chosen,
        *([label, value] for label, value in shown(kind_of(product).parameters(product))),
        ["cells", count(product.domain.n_possible)],
        [
            "cost as a release of its own",
            f"epsilon {short(product.epsilon, digits=4)} at delta {canonical(product.delta)}",
        ],
    ]
    return Grid(["parameter", "value"], rows, title="How it will be made", folded=True)


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

    Raises:
        OutputNotWritableError: The page cannot be written.
    """
    offers = offers_of(home, release, plan, announce)
    put_page(path, plan_page(release, plan, offers, remaining, [str(each) for each in stopping]))


def put_page(path: Path, page: str) -> None:
    """Write a page in one step.

    Raises:
        OutputNotWritableError: It cannot be written.
    """
    written = path.with_name(f".{path.name}.new")
    try:
        written.write_text(page, encoding="utf-8")
        os.replace(written, path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise OutputNotWritableError(
            f"The page cannot be written ({error.strerror}).",
            where=str(path),
            next_step="Make room, or name another place.",
        ) from None


def offers_of(
    home: Home, release: Release, plan: Plan, announce: Callable[[str], None]
) -> list[Offer]:
    """The plan among those of other budgets with its shares, ascending.

    Each takes as long as the first; where there are several processors some are made in forks.
    """
    rho_delta = rho_delta_of(home, release)
    shares = {product.name: product.request.share for product in plan.products}

    def offered(times: Decimal) -> Offer:
        try:
            planned = release.plan(rho_delta=rho_delta, times=times, briefly=True, shares=shares)
        except StatpressError as error:
            return Offer(times, None, error.what)
        for product in planned.products:
            _ = product.compared_error  # takes long, and is kept
        return Offer(times, planned)

    others = [times for times in TIMES if times != Decimal(1)]
    announce(f"plan for {len(others)} other budgets")
    found = [Offer(Decimal(1), plan), *in_forks(offered, others)]
    return sorted(found, key=lambda offer: offer.times)


PATIENCE = 30.0
"""Default of ``in_forks``, in seconds."""
T = TypeVar("T")
R = TypeVar("R")


def in_forks(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    processes: int | None = None,
    patience: float = PATIENCE,
) -> list[R]:
    """Compute a function of public values in forks of this process if that can be done.

    What a fork does not give, since it failed, was killed or hangs, is computed here.

    Args:
        work: Draws nothing, and opens nothing that the forks would share.
        items: What it is called with.
        processes: Number of processes, by default that of usable processors.
        patience: Seconds that a fork may take longer than five times what this process took
            for its part.
    """
    begun = time.monotonic()
    most = usable_processors() if processes is None else processes
    parts = max(1, min(most, len(items))) if sys.platform == "linux" else 1
    found: dict[int, R] = {}
    forks = [_fork(work, items, range(part, len(items), parts)) for part in range(1, parts)]
    try:
        found |= {number: work(items[number]) for number in range(0, len(items), parts)}
        patience += 5 * (time.monotonic() - begun)
        for _, pipe in forks:
            with suppress(pickle.UnpicklingError, EOFError), os.fdopen(pipe, "rb") as results:
                if select.select([pipe], [], [], patience)[0]:
                    found |= pickle.load(results)  # noqa: S301 (of a fork of our own)
    finally:
        for process, _ in forks:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return [found[number] if number in found else work(items[number])
            for number in range(len(items))]  # fmt: skip


def _fork(work: Callable[[T], R], items: Sequence[T], numbers: range) -> tuple[int, int]:
    """A fork that writes its results by number; its process, and where to read them."""
    import cloudpickle

    reading, writing = os.pipe()
    with catch_warnings():
        simplefilter("ignore")  # that there are threads, of which the fork has none
        process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    try:
        os.close(reading)
        results = cloudpickle.dumps({number: work(items[number]) for number in numbers})
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(results)
    finally:
        os._exit(0)


def errors_over(offers: Sequence[Offer], name: str) -> list[tuple[Offer, float]]:
    """The offers for which a product's error is known, with that error."""
    found = [(offer, error_of(offer.product(name))) for offer in offers]
    return [(offer, error) for offer, error in found if error is not None]


def error_at_part(
    offers: Sequence[Offer], name: str, ratio: float, budget: Budget, *, n_products: int
) -> float | None:
    """About the error of a product whose part of the budget is some multiple of its own.

    A product's error depends on its part only, and the same part comes of a larger share or of a
    larger budget. So it is read off the offers, linear in logarithms. What is divided is epsilon
    or rho, or the square of the Gaussian mu where several products have a delta
    (``mechanisms.planning.choice``).

    Args:
        offers: In ascending order.
        name: Of the product.
        ratio: Of the part to the product's own, above 0.
        budget: The config's.
        n_products: Of the release.

    Returns:
        None if the offers do not reach so far.
    """
    known = [(offer, error) for offer, error in errors_over(offers, name) if error > 0]
    parts = [_part(offer.times, budget, n_products) for offer, _ in known]
    if len(known) < 2 or not parts[0] <= ratio <= parts[-1]:
        return None
    errors = [math.log(error) for _, error in known]
    return math.exp(float(np.interp(math.log(ratio), np.log(parts), errors)))


def _part(times: Decimal, budget: Budget, n_products: int) -> float:
    """What so many times the budget multiplies every product's part by."""
    if budget.rho is not None or n_products == 1 or not budget.delta:
        return float(times)
    assert budget.epsilon is not None
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    larger, own = gaussian_mu(epsilon * float(times), delta), gaussian_mu(epsilon, delta)
    return (larger / own) ** 2
