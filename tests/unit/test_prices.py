"""What other budgets would buy: read off the offers, against plans of the changed release."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy, Unit
from statpress.mechanisms.planning.choice import Budget, ProductRequest
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import TIMES, Offer, error_of, plan_release
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables.count_tables import TABLE
from statpress.tasks.release.plan_page import error_at_part, errors_over

DOMAIN = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=9) for i in range(3)))
FRAME = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=10_000)
BUDGETS = {
    "approximate": Budget(epsilon=Decimal(1), delta=Decimal("1e-6")),
    "pure": Budget(epsilon=Decimal(1), delta=Decimal(0)),
    "rho": Budget(rho=Decimal("0.05"), delta=Decimal("1e-6"), rho_delta=Decimal(0)),
}


def planned(budget: Budget, shares: list[str], mechanism: str) -> Plan:
    requests = [
        ProductRequest(
            name=f"p{i}",
            kind=TABLE,
            mechanism=mechanism,
            knobs=REGISTRY[mechanism].knobs(),
            columns=(f"c{i}",),
            share=Decimal(each),
        )
        for i, each in enumerate(shares)
    ]
    return plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=budget)


def times(budget: Budget, factor: Decimal) -> Budget:
    grown: dict[str, Any] = {
        each: None if (own := getattr(budget, each)) is None else own * factor
        for each in ("epsilon", "rho")
    }
    return Budget(delta=budget.delta, rho_delta=budget.rho_delta, **grown)


def offers(budget: Budget, shares: list[str], mechanism: str) -> list[Offer]:
    return [Offer(each, planned(times(budget, each), shares, mechanism)) for each in TIMES]


@pytest.mark.parametrize(
    ("form", "mechanism"),
    [("approximate", "gaussian"), ("pure", "laplace"), ("rho", "gaussian")],
)
def test_the_error_at_another_share_is_that_of_the_release_with_this_share(
    form: str, mechanism: str
) -> None:
    budget, shares = BUDGETS[form], ["0.25", "0.25", "0.5"]
    found = offers(budget, shares, mechanism)
    for ratio, changed in ((2.0, ["0.5", "0.2", "0.3"]), (0.5, ["0.125", "0.375", "0.5"])):
        about = error_at_part(found, "p0", ratio, budget, n_products=3)
        exact = error_of(planned(budget, changed, mechanism).products[0])
        assert about == pytest.approx(exact, rel=0.03)
        # A product that is thought to get the same multiple of epsilon is off by more.
        if form == "approximate":
            naive = error_at_part(found, "p0", ratio**0.5, budget, n_products=3)
            assert naive is not None
            assert exact is not None
            assert abs(math.log(naive / exact)) > 0.1


def test_at_its_own_share_the_error_is_the_plans() -> None:
    budget = BUDGETS["approximate"]
    found = offers(budget, ["0.5", "0.5"], "gaussian")
    own = next(offer for offer in found if offer.times == 1)
    assert own.plan is not None
    here = error_at_part(found, "p1", 1.0, budget, n_products=2)
    assert here == pytest.approx(error_of(own.plan.products[1]), rel=1e-12)


def test_errors_fall_with_the_budget_and_nothing_is_read_beyond_the_offers() -> None:
    budget = BUDGETS["pure"]
    found = offers(budget, ["1"], "laplace")
    errors = [error for _, error in errors_over(found, "p0")]
    assert errors == sorted(errors, reverse=True)
    assert len(errors) == len(TIMES)
    assert error_at_part(found, "p0", 9.0, budget, n_products=1) is None
    assert error_at_part(found, "p0", 0.1, budget, n_products=1) is None


def test_a_budget_that_cannot_be_met_has_no_errors() -> None:
    budget = BUDGETS["pure"]
    found = [Offer(Decimal("0.5"), None, "too small"), *offers(budget, ["1"], "laplace")[4:]]
    assert len(errors_over(found, "p0")) == len(found) - 1
    assert error_at_part(found, "p0", 0.5, budget, n_products=1) is None
