"""Shares that a config leaves open are found by expected errors, from public quantities only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statpress.configs.loading import Release, load
from statpress.mechanisms.errors import InfeasibleBudgetError
from statpress.mechanisms.planning.plan import Plan, verdict
from statpress.mechanisms.planning.planner import error_of, error_with_more
from statpress.mechanisms.planning.shares import UNITS, WORTH, divided
from statpress.tasks.release.foreseen import division_words

HEAD = """
title: Open shares
dataset: testdata
source: {{path: data/source.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: {records}}}
budget: {{{budget}}}
domain:
  region: {{type: categorical, categories: [a, b, c, d, e, f, g, h]}}
  age: {{type: integer, lower: 0, upper: 99, width: 5}}
  pay: {{type: numeric, lower: 0, upper: 100, bins: 40}}
  sex: {{type: categorical, categories: [f, m]}}
{gate}publish: {{directory: releases}}
products:
"""
POOL = {
    "cells": "kind: table, mechanism: gaussian, columns: [region, age]",
    "plain": "kind: table, mechanism: gaussian, columns: [age]",
    "sexes": "kind: table, mechanism: laplace, columns: [sex]",
    "drawn": "kind: table, mechanism: bootstrap, columns: [region], accept: mostly_noise",
    "mean": "kind: estimate, statistic: mean, mechanism: joint_moments, columns: [pay]",
    "middle": "kind: estimate, statistic: median, mechanism: noisy_quantile, columns: [pay]",
    "count": "kind: estimate, statistic: count, columns: [sex], values: [f]",
    "fixed": "kind: table, mechanism: laplace, scale: 60, columns: [region]",
    "chosen": "kind: table, mechanism: auto, columns: [age]",
    "wide": "kind: table, mechanism: gaussian, columns: [region, pay]",
}
EPSILON = "epsilon: 1, delta: 1.0e-6"
BUDGETS = {
    "epsilon": EPSILON,
    "pure": "epsilon: 1, delta: 0",
    "rho": "rho: 0.05, delta: 1.0e-6",
}


def release(
    folder: Path,
    names: Sequence[str],
    *,
    budget: str = EPSILON,
    records: int = 20_000,
    shares: Mapping[str, str] | None = None,
    gate: str = "",
) -> Release:
    """A config of some products, in this order."""
    lines = [
        f"  {name}: {{{POOL[name]}{f', share: {shares[name]}' if name in (shares or {}) else ''}}}"
        for name in names
    ]
    head = HEAD.format(budget=budget, records=records, gate=gate)
    path = folder / "release.yaml"
    path.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    return load(path)


def mean_error(plan: Plan) -> float:
    """What is least: the geometric mean of the expected errors."""
    errors = [error_of(product) for product in plan.products]
    return math.exp(sum(math.log(error) for error in errors if error) / len(errors))


def shares_of(plan: Plan) -> dict[str, Decimal]:
    return {product.name: product.request.share for product in plan.products}


def at(made: Release, *shares: float) -> Plan | None:
    """The plan at other shares, in the order of the products; None if it cannot be met."""
    parts = dict(zip((each.name for each in made.requests), map(Decimal, shares), strict=True))
    try:
        return made.plan(shares=parts, briefly=True)
    except InfeasibleBudgetError:
        return None


def equal(made: Release) -> Plan | None:
    return at(made, *(float(each.share) for each in made.requests))


@pytest.mark.parametrize(
    ("names", "budget"),
    [
        pytest.param(("cells", "mean"), "epsilon", marks=pytest.mark.nightly),
        pytest.param(("drawn", "cells"), "epsilon", marks=pytest.mark.nightly),
        pytest.param(("sexes", "fixed"), "epsilon", marks=pytest.mark.nightly),
        pytest.param(("sexes", "middle"), "pure", marks=pytest.mark.nightly),
        (("sexes", "fixed"), "pure"),
        pytest.param(("cells", "mean"), "rho", marks=pytest.mark.nightly),
        (("plain", "count"), "rho"),
    ],
)
def test_two_shares_are_within_a_hundredth_of_the_best_of_a_fine_grid(
    tmp_path: Path, names: Sequence[str], budget: str, full: bool
) -> None:
    made = release(tmp_path, names, budget=BUDGETS[budget])
    grid = {part: at(made, part, 1 - part) for part in np.linspace(0.04, 0.96, 24 if full else 13)}
    errors = {part: mean_error(plan) for part, plan in grid.items() if plan is not None}
    plan = made.plan()
    assert mean_error(plan) <= 1.01 * min(errors.values())
    assert sum(shares_of(plan).values()) == 1


def test_equal_shares_are_not_so_good(tmp_path: Path) -> None:
    """The grid above would catch shares that are not looked for, or given to the wrong product."""
    made = release(tmp_path, ("cells", "mean"))
    plan, even = made.plan(), equal(made)
    assert even is not None
    swapped = at(made, *(float(share) for share in reversed(shares_of(plan).values())))
    assert swapped is not None
    best = min(
        mean_error(p) for part in np.linspace(0.04, 0.96, 8) if (p := at(made, part, 1 - part))
    )
    assert mean_error(even) > 1.01 * best
    assert mean_error(swapped) > mean_error(even)


@pytest.mark.nightly
def test_three_shares_are_within_a_hundredth_of_the_best_of_a_fine_grid(
    tmp_path: Path, full: bool
) -> None:
    made = release(tmp_path, ("cells", "mean", "drawn"))
    parts = np.linspace(0.1, 0.8, 8 if full else 5)
    plans = [at(made, a, b, 1 - a - b) for a, b in itertools.product(parts, parts) if a + b < 0.99]
    best = min(mean_error(plan) for plan in plans if plan is not None)
    assert mean_error(made.plan()) <= 1.01 * best


@pytest.mark.nightly
@settings(
    max_examples=settings().max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    names=st.lists(st.sampled_from(sorted(POOL)), min_size=2, max_size=5, unique=True),
    budget=st.sampled_from(sorted(BUDGETS)),
    records=st.sampled_from([500, 20_000, 1_000_000]),
)
def test_found_shares_are_never_worse_than_equal_ones(
    tmp_path: Path, names: list[str], budget: str, records: int
) -> None:
    """Nor do they depend on the order, make a product unreadable, or pass the budget."""
    made = release(tmp_path, names, budget=BUDGETS[budget], records=records)
    even = equal(made)
    try:
        plan = made.plan()
    except InfeasibleBudgetError:
        assert even is None
        return
    assert sum(shares_of(plan).values()) == 1
    assert plan.division is not None and set(plan.division.names) == set(names)
    if even is not None:
        if not plan.division.spared:
            assert mean_error(plan) <= mean_error(even) * (1 + 1e-9)
        for product, before in zip(plan.products, even.products, strict=True):
            if verdict(before).name == "usable":
                assert verdict(product).name in ("usable", "nearly_disclosed")
    if plan.division.gain:
        assert plan.division.gain >= WORTH or plan.division.spared
        turned = release(tmp_path, names[::-1], budget=BUDGETS[budget], records=records).plan()
        assert shares_of(turned) == shares_of(plan)
    limit = plan.budget
    assert plan.epsilon <= limit.epsilon if limit.epsilon else plan.rho <= limit.rho


def test_a_product_is_spared_what_equal_shares_would_leave_of_it(tmp_path: Path) -> None:
    """Three small tables gain more, by their factors, and had nearly all of it."""
    made = release(tmp_path, ("wide", "sexes", "plain", "count"), records=2_000)
    even, plan = equal(made), made.plan()
    assert even is not None
    assert [verdict(each).name for each in even.products] == ["mostly_noise", *["usable"] * 3]
    assert {verdict(each).name for each in plan.products} == {"usable"}
    assert plan.division is not None and plan.division.spared == ("wide",)
    assert "so that something is left of wide" in division_words(plan)
    spared = float(shares_of(plan)["wide"])
    nearly = at(made, 0.8 * spared, *[(1 - 0.8 * spared) / 3] * 3)  # nor has it much more
    assert nearly is not None and verdict(nearly.products[0]).name == "mostly_noise"


def test_what_is_accepted_is_not_spared(tmp_path: Path) -> None:
    """So a config that a run released in spite of it is planned as it was."""
    POOL["accepted"] = f"{POOL['wide']}, accept: mostly_noise"
    try:
        plan = release(tmp_path, ("accepted", "sexes", "plain", "count"), records=2_000).plan()
    finally:
        del POOL["accepted"]
    assert plan.division is not None and not plan.division.spared
    assert verdict(plan.products[0]).name == "mostly_noise"


def test_what_cannot_be_spared_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """Not even all that is open would do for it."""
    plan = release(tmp_path, ("wide", "sexes", "plain", "count"), records=500).plan()
    assert verdict(plan.products[0]).name == "mostly_noise"
    assert plan.division is not None and not plan.division.spared
    assert plan.division.gain is not None and plan.division.gain >= WORTH
    assert shares_of(plan)["wide"] < Decimal("0.25")


def test_a_product_that_cannot_use_more_gets_no_more_than_it_needs(tmp_path: Path) -> None:
    """Its noise is fixed, at a pure epsilon of 1/30."""
    made = release(tmp_path, ("fixed", "sexes"), budget=BUDGETS["pure"])
    plan = made.plan()
    fixed, other = plan.products
    assert float(fixed.epsilon) <= float(fixed.request.share) <= 1.2 * float(fixed.epsilon)
    assert other.request.share == 1 - fixed.request.share
    assert error_with_more(plan, fixed) == pytest.approx(error_of(fixed), rel=1e-12)
    gained = error_with_more(plan, other)
    assert gained is not None
    own = float(other.request.share)
    assert gained / error_of(other) == pytest.approx(own / (own + 0.1), rel=0.02)


def test_shares_that_are_given_stay(tmp_path: Path) -> None:
    """And if there is only one that is open, it has the rest."""
    plan = release(tmp_path, ("drawn", "mean", "cells"), shares={"drawn": "0.5"}).plan()
    shares = shares_of(plan)
    assert shares["drawn"] == Decimal("0.5") and sum(shares.values()) == 1
    assert plan.division is not None and plan.division.names == ("mean", "cells")
    assert shares["mean"] < shares["cells"]
    rest = release(tmp_path, ("cells", "mean"), shares={"cells": "0.3"}).plan()
    assert shares_of(rest) == {"cells": Decimal("0.3"), "mean": Decimal("0.7")}
    assert rest.division is None


def test_noisy_checks_keep_their_share(tmp_path: Path) -> None:
    gate = "checks: {pay: {outside_at_most: 0.01}}\ngate: {noise: true, share: 0.02}\n"
    plan = release(tmp_path, ("cells", "mean"), gate=gate).plan()
    assert plan.gate is not None and plan.gate.request.share == Decimal("0.02")
    assert sum(shares_of(plan).values()) == Decimal("0.98")
    assert plan.division is not None and plan.division.gain


def test_parameters_that_equal_shares_do_not_fit_may_fit_others(tmp_path: Path) -> None:
    """0.8 of an epsilon of 1 is what the noise costs: more than a half, and less than all."""
    POOL["dear"] = POOL["fixed"].replace("scale: 60", "scale: 2.5")
    try:
        made = release(tmp_path, ("dear", "sexes"), budget=BUDGETS["pure"])
        assert equal(made) is None
        plan = made.plan()
        assert plan.division is not None and plan.division.gain is None
        assert Decimal("0.8") <= shares_of(plan)["dear"] < Decimal("0.9")
        small = release(tmp_path, ("dear", "sexes"), budget="epsilon: 0.5, delta: 0")
        with pytest.raises(InfeasibleBudgetError, match="dear"):
            small.plan()
    finally:
        del POOL["dear"]


def test_equal_products_have_equal_shares(tmp_path: Path) -> None:
    made = release(tmp_path, ("cells", "plain"))
    plan = made.plan()
    assert plan.division is not None and plan.division.gain == 0
    assert set(shares_of(plan).values()) == {Decimal("0.5")}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.floats(-5, 5), min_size=6, max_size=6), min_size=2, max_size=3))
def test_units_are_divided_at_the_least_cost_whatever_the_curves(
    knots: list[list[float]],
) -> None:
    units = np.arange(UNITS + 1)
    costs = {
        name: np.interp(units, np.linspace(0, UNITS, 6), each) for name, each in enumerate(knots)
    }
    costs[0][:200] = math.inf
    found = divided(costs)
    assert sum(found.values()) == UNITS
    reached = sum(costs[name][own] for name, own in found.items())
    sums = costs[0][:, None] + costs[1]  # what two have together, of all or of what a third leaves
    left = UNITS - units[:, None] - units
    third = costs[2] if len(costs) == 3 else np.where(units == 0, 0.0, math.inf)
    least = np.min(np.where(left >= 0, sums + third[left], math.inf))
    assert reached == pytest.approx(least, abs=1e-9)
