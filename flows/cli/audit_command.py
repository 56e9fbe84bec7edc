"""The command ``audit``: what audits on made-up data found, as facts, as tables and as a page.

Nothing here is private: the data follow from the config.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from statpress.configs.loading import PlannedOrder, Release
from statpress.flows.cli.options import Json, Overrides, Result, order_of
from statpress.flows.cli.release_commands import Seed
from statpress.flows.terminal import Progress, table
from statpress.mechanisms.accounting.auditing import ALARM_MISS, MISS
from statpress.mechanisms.errors import AuditError, together
from statpress.mechanisms.mechanism import shown
from statpress.tasks.pages.blocks import Block, Chart, Curves, Grid, Line, Page, Prose, Section
from statpress.tasks.pages.numbers import count, measured, share, short
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.audit import Audited, Bounds
from statpress.tasks.release.audit import audit as audited_products
from statpress.tasks.release.plan_page import check_page, put_page


def audit(
    config: Path,
    *,
    runs: Annotated[int, Parameter(validator=Number(gte=100))] = 5000,
    html: Path | None = None,
    set_: Overrides = None,
    insecure_seed: Seed = None,
    json: Json = False,
) -> Result:
    """Release made-up data many times, and bound from below what a config's mechanisms give away.

    Neither the source nor a ledger is opened. It finds faults, and is no proof of privacy.

    Args:
        config: The release config.
        runs: Releases of each of two made-up datasets that differ in one unit.
        html: Write a page with the bounds and the trade-off curves.
    """
    if html is not None:
        check_page(html)
    order = PlannedOrder.of(order_of(config, set_))
    with Progress(shown=not json) as progress:
        found = audited_products(
            order.release,
            order.plan,
            runs=runs,
            announce=progress.announce,
            insecure_seed=insecure_seed,
        )
    if html is not None:
        put_page(html, _page(order.release, found))
    _check(found)
    written = {} if html is None else {"page": str(html)}

    def report() -> Iterator[Any]:
        for each in found:
            title = f"{each.product.name}, {each.product.mechanism.name}: {each.verdict}"
            yield table(title, _HEADINGS, _rows(each))
        yield _NO_PROOF
        if html is not None:
            yield f"Wrote {html}."

    return Result(json=json, facts=lambda: _facts(found) | written, report=report)


_NO_PROOF = (
    "An audit can find a fault and is no proof of privacy: the guarantee rests on the mechanism's "
    "proof. It went by made-up data only; no source and no ledger was opened."
)
_HEADINGS = ["", "epsilon", "mu", "releases"]


def _rows(audited: Audited) -> list[list[str]]:
    """The claim of a product, and below it what was found, as rows of ``_HEADINGS``."""
    ideal, both = audited.ideal, count(2 * audited.runs)
    tests: list[tuple[str, Bounds | None, str]] = [
        ("at least, by the likelihood ratio", audited.raw, both),
        ("at least, by what is published", audited.blind, count(2 * audited.blind_runs)),
        ("twin with half the noise, at least", audited.twin, both),
    ]
    epsilon, mu = ideal.bounds()
    found = [
        [f"claimed, at delta {short(audited.ideal.delta)}", *_pair(ideal.epsilon, ideal.mu)],
        ["what the ideal test would show, at least", *_pair(epsilon, mu)],
    ]
    listed = [[*found[0], ""], [*found[1], both]]
    for words, bounds, releases in tests:
        if bounds is None:
            listed.append([words, "not tested", "not tested", ""])
        else:
            listed.append([words, *_pair(bounds.epsilon, bounds.mu), releases])
    if audited.tightness is not None:
        figure = share(audited.tightness)
        listed.insert(3, ["of what the ideal test would show", *_either(audited, figure), ""])
    return listed


def _either(audited: Audited, figure: str) -> tuple[str, str]:
    """A figure of the measure that the claim is read by."""
    return ("", figure) if audited.ideal.delta else (figure, "")


def _pair(epsilon: float, mu: float) -> tuple[str, str]:
    return measured(epsilon, 3), measured(mu, 3)


def _facts(found: Sequence[Audited]) -> dict[str, Any]:
    """What a program may want to know."""
    products = {}
    for each in found:
        epsilon, mu = each.ideal.bounds()
        products[each.product.name] = {
            "mechanism": each.product.mechanism.name,
            "verdict": each.verdict,
            "claim": {
                "epsilon": each.ideal.epsilon,
                "delta": each.ideal.delta,
                "mu": each.ideal.mu,
            },
            "ideal": {"epsilon": epsilon, "mu": mu},
            "likelihood_ratio": _bounds(each.raw),
            "share_of_ideal": each.tightness,
            "published": _bounds(each.blind),
            "published_runs": each.blind_runs,
            "twin": _bounds(each.twin),
            "twin_caught": each.caught,
            "contradicted": each.contradicted,
        }
    return {
        "runs": found[0].runs,
        "confidence": 1 - MISS,
        "alarm_level": ALARM_MISS,
        "proof": False,
        "products": products,
    }


def _bounds(bounds: Bounds | None) -> dict[str, float] | None:
    return None if bounds is None else {"epsilon": bounds.epsilon, "mu": bounds.mu}


def _check(found: Sequence[Audited]) -> None:
    """Refuse a mechanism that gives away more than it claims.

    Raises:
        AuditError: There is one.
    """
    errors = []
    for each in found:
        worst = [test for test in (each.raw, each.blind) if test is not None and test.contradicts]
        if worst:
            epsilon, mu = (max(getattr(b, name) for b in worst) for name in ("epsilon", "mu"))
            errors.append(
                AuditError(
                    f"The mechanism '{each.product.mechanism.name}' claims epsilon "
                    f"{measured(each.ideal.epsilon)} and mu {measured(each.ideal.mu)}, and on "
                    f"made-up data gives away at least epsilon {measured(epsilon)} and mu "
                    f"{measured(mu)}.",
                    where=f"products.{each.product.name}",
                )
            )
    if errors:
        raise together(errors)


def _page(release: Release, found: Sequence[Audited]) -> str:
    """The page."""
    marks = [f"{each.product.name}: {each.verdict}" for each in found if each.contradicted]
    page = Page(
        title=f"Audit: {release.config.title}",
        subtitle=f"Dataset {release.config.dataset}. {_NO_PROOF}",
        marks=marks,
        sections=[
            Section("method", "What was done", [Prose(_METHOD)]),
            *(_section(each) for each in found),
        ],
    )
    return rendered(page)


_METHOD = [
    "Two datasets were made up from what the config declares. They differ in one privacy unit, "
    "whose records lie in one cell or in another. The engine counted both as it counts a source, "
    "and the mechanism released each of them many times. A test then said of every release which "
    "dataset it is of. How often it was right bounds from below what the mechanism gives away.",
    f"Each bound holds with confidence {1 - MISS:.0%}, after Clopper and Pearson. One test is the "
    "likelihood ratio of what was released, the most powerful there is for these two datasets. The "
    "other looks only at what is published; its threshold was learnt from one half of the "
    "releases, and its bounds are from the other half.",
    "The ideal test is that of two datasets for which the claimed curve is exact, with as many "
    "releases. A bound as large as its bound means that the audit saw all that is claimed. Of a "
    "mechanism with a delta no test of so few releases comes near the claimed epsilon; mu, which "
    "belongs to errors of a common size, says more there. Of a claim that is not Gaussian, mu is "
    "that of the Gaussian curve with the same delta at epsilon 0.",
    "The twin is the same mechanism with half the noise. An audit that does not find a fault in it "
    "would not find one in the mechanism either. A claim counts as contradicted, and a twin as "
    f"caught, by bounds that fail with a probability of at most {ALARM_MISS:g}.",
]


def _section(audited: Audited) -> Section:
    """What was found of a product."""
    product = audited.product
    blocks: list[Block] = [
        Prose([audited.verdict], tone="warning" if audited.contradicted else "lead"),
        Grid(_HEADINGS, _rows(audited), note="Releases are those of both datasets."),
        _curve(audited),
        Grid(
            ["parameter", "value"],
            [
                ["mechanism", product.mechanism.name],
                *map(list, shown(kind_of(product).parameters(product))),
            ],
            title="How it was made",
            folded=True,
        ),
    ]
    return Section(f"product-{product.name}", product.name, blocks)


def _curve(audited: Audited) -> Chart:
    """The claimed trade-off with what the test attained."""
    right = sorted((mistaken, 1 - right) for _, mistaken, right in audited.ideal.points)
    # The curve is symmetric: either error may be the one that is kept small.
    points = [*right, *((missed, mistaken) for mistaken, missed in reversed(right))]
    points = [(0.0, max(y for _, y in points)), *points, (max(x for x, _ in points), 0.0)]
    attained = [(mistaken, 1 - right) for mistaken, right in audited.attack]
    x_axis, y_axis = "taken for the first dataset and of the second", "missed of the first dataset"
    return Chart(
        f"{audited.product.name}: what the claim leaves to any test",
        Curves(
            [Line("claimed", [x for x, _ in points], [y for _, y in points])],
            x_axis,
            y_axis,
            points=attained,
            from_zero=True,
        ),
        "The claimed trade-off of the two errors of a test, and the likelihood ratio's errors.",
        Grid(
            [x_axis, y_axis],
            [[measured(x), measured(y)] for x, y in attained],
            title="The errors of the likelihood ratio",
        ),
        note="No test may fall below the line, but for chance. Dots: the likelihood ratio.",
    )
