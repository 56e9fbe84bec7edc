"""Plans: shares become parameters whose composed loss just meets the budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy, Unit, ZeroPattern
from statpress.mechanisms.errors import AmountError, ConfigError, InfeasibleBudgetError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.charges import recompute_charge
from statpress.mechanisms.planning.choice import Budget, ProductRequest, choose, gaussian_mu
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables.bootstrap import BootstrapKnobs
from statpress.mechanisms.tables.count_tables import MICRODATA, TABLE, AutoKnobs
from statpress.mechanisms.tables.perturbed import PerturbedKnobs

DOMAIN = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=3 + i) for i in range(5)))
PAIRS = list(itertools.combinations(DOMAIN.names, 2))
FRAME = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=10_000)
ONE = Budget(epsilon=Decimal(1), delta=Decimal("1e-6"))


def request(i: int, mechanism: str, share: Any, knobs: Any = None) -> ProductRequest:
    own = AutoKnobs() if mechanism == "auto" else REGISTRY[mechanism].knobs()
    return ProductRequest(
        name=f"p{i}",
        kind=TABLE,
        mechanism=mechanism,
        knobs=own if knobs is None else knobs,
        columns=PAIRS[i],
        share=Decimal(share),
    )


def plan(mechanisms: Sequence[str], budget: Budget = ONE, shares: Sequence[Any] = ()) -> Plan:
    given = shares or [Decimal(1) / len(mechanisms)] * len(mechanisms)
    requests = [request(i, m, s) for i, (m, s) in enumerate(zip(mechanisms, given, strict=True))]
    return plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=budget)


MIXED = ["gaussian", "laplace", "bootstrap", "gaussian"]


def test_a_composed_plan_spends_the_budget_and_no_more() -> None:
    made = plan(MIXED)
    assert made.loss.delta(1.0).upper <= 1e-6
    assert made.loss.delta(1.0).upper >= 0.85e-6
    assert Decimal("0.99") < made.epsilon <= 1
    assert made.delta == Decimal("1e-6")
    assert made.epsilon_bounds.lower <= made.epsilon_bounds.upper <= float(made.epsilon)
    assert made.epsilon_bounds.upper < 1.01 * made.epsilon_bounds.lower
    assert made.added > Decimal("1.5")


def test_the_charge_agrees_with_another_accountant() -> None:
    made = plan(["gaussian", "laplace", "gaussian"])
    from dp_accounting.pld import privacy_loss_distribution as pld

    composed = None
    for product in made.products:
        scale = float(product.mechanism.describe()["scale"].split("/")[0]) / float(
            (product.mechanism.describe()["scale"].split("/") + ["1"])[1]
        )
        if product.mechanism.name == "gaussian":
            one = pld.from_discrete_gaussian_mechanism(scale, value_discretization_interval=1e-4)
        else:
            one = pld.from_discrete_laplace_mechanism(1 / scale, value_discretization_interval=1e-4)
        both = one.compose(one)  # a record moves between two cells
        composed = both if composed is None else composed.compose(both)
    assert composed is not None
    delta = composed.get_delta_for_epsilon(float(made.epsilon))
    assert 0.9e-6 < delta < 1.02e-6  # theirs is pessimistic by its discretisation


def test_gaussian_products_get_their_shares_of_mu_squared() -> None:
    made = plan(["gaussian"] * 3, shares=["0.5", "0.3", "0.2"])
    precision = [1 / product.mechanism.scale**2 for product in made.products]
    for product, got in zip(made.products, precision, strict=True):
        assert float(got / sum(precision)) == pytest.approx(float(product.request.share), rel=0.005)


def test_composing_gives_every_product_less_noise_than_adding_would() -> None:
    made = plan(["gaussian"] * 10)
    alone = Budget(epsilon=Decimal("0.1"), delta=Decimal("1e-7"))
    split = plan(["gaussian"], alone).products[0].mechanism.scale
    assert made.products[0].mechanism.scale < split / 2


def test_one_product_is_held_to_the_budget_itself() -> None:
    made = plan(["gaussian"])
    assert made.products[0].loss.delta(1.0).upper <= 1e-6
    scale = made.products[0].mechanism.scale
    finer = REGISTRY["gaussian"](scale * Fraction(1023, 1024))
    assert finer.loss(n_records=10_000, n_cells=20).delta(1.0).upper > 1e-6
    assert made.epsilon <= 1


def test_few_pure_products_are_charged_no_delta() -> None:
    made = plan(["laplace", "laplace"])
    assert (made.epsilon, made.delta) == (1, 0)
    assert [product.mechanism.scale for product in made.products] == [4, 4]


def test_many_pure_products_compose() -> None:
    made = plan(["laplace"] * 10)
    assert made.delta == Decimal("1e-6")
    assert made.products[0].mechanism.scale < 20  # of adding their tenths of epsilon
    assert made.loss.delta(1.0).upper <= 1e-6
    assert made.loss.pure_epsilon.lower > 1


def test_without_delta_epsilon_is_divided_exactly() -> None:
    third = Decimal(1) / 3
    made = plan(["laplace", "bootstrap"], Budget(epsilon=third, delta=Decimal(0)), ["0.4", "0.6"])
    assert made.delta == 0
    assert made.epsilon <= third
    assert made.loss.pure_epsilon.upper <= float(third)
    assert float(made.epsilon) == pytest.approx(1 / 3, rel=0.02)


def test_a_budget_of_rho_is_divided_exactly() -> None:
    made = plan(MIXED, Budget(rho=Decimal("0.1"), delta=Decimal("1e-6")))
    assert Decimal("0.099") < made.rho <= Decimal("0.1")
    for product in made.products:
        found = product.loss.approximate_rho(float(product.rho_delta))
        assert found.rho.upper <= 0.025
        assert product.rho_delta <= Decimal("2.5e-7")
        assert (product.rho_delta > 0) == (product.mechanism.name == "bootstrap")
    whole = Budget(rho=Decimal("0.1"), delta=Decimal("1e-6"), rho_delta=Decimal(0))
    assert all(p.loss.rho.upper <= 0.025 for p in plan(MIXED, whole).products)
    assert plan(MIXED, whole).amounts["rho_delta"] == 0
    assert made.epsilon >= Decimal(made.loss.epsilon(1e-6).upper)
    single = plan(["gaussian"], Budget(rho=Decimal("0.125"), delta=Decimal("1e-6")))
    assert single.products[0].mechanism.scale == pytest.approx(math.sqrt(1 / 0.125), rel=0.002)


def test_draws_are_verified_by_the_rule_that_they_were_charged_by() -> None:
    knobs = BootstrapKnobs(pseudocount=Fraction(5), records=3000)
    made = plan_release(
        [request(0, "bootstrap", "1", knobs)],
        domain=DOMAIN,
        privacy=FRAME,
        budget=Budget(rho=Decimal(9), delta=Decimal("1e-8")),
    )
    (described,) = made.describe()
    assert described["rho_rule"] == "net_steps"

    def least(**changes: str) -> Decimal:
        entry = {**described, **changes}
        if not entry["rho_rule"]:  # as earlier versions wrote it
            del entry["rho_rule"]
        return recompute_charge([entry], epsilon=made.epsilon, delta=made.delta)["rho"]

    assert 0 <= made.rho - least() < Decimal("1e-6")
    assert least(rho_rule="") == least(rho_rule="moved_draws") > made.rho
    assert least(rho_rule="", rho_delta="0") > least(rho_rule="")
    with pytest.raises(AmountError, match="unknown rule"):
        least(rho_rule="none")


def test_what_fixed_parameters_leave_goes_to_the_others() -> None:
    fixed = PerturbedKnobs(scale=Fraction(40))
    requests = [request(0, "gaussian", "0.5", fixed), request(1, "gaussian", "0.5")]
    made = plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=ONE)
    assert made.products[0].mechanism.scale == 40
    even = plan(["gaussian", "gaussian"]).products[1].mechanism.scale
    assert made.products[1].mechanism.scale < 0.8 * even
    assert made.loss.delta(1.0).upper <= 1e-6


@pytest.mark.parametrize("other", ["laplace", "gaussian"])
def test_parameters_that_fit_a_share_of_epsilon_are_accepted(other: str) -> None:
    """Laplace noise of a pure half costs more than half of the Renyi divergence."""
    requests = [
        request(0, "laplace", "0.5", PerturbedKnobs(scale=Fraction(4))),
        request(1, other, "0.5"),
    ]
    made = plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=ONE)
    assert made.products[0].mechanism.scale == 4
    assert made.epsilon <= 1
    assert made.delta == (0 if other == "laplace" else Decimal("1e-6"))
    if other == "gaussian":
        assert made.products[1].loss.delta(0.5).upper <= 0.5e-6
    again = recompute_charge(made.describe(), epsilon=made.epsilon, delta=made.delta)
    assert again["epsilon"] <= made.epsilon


def test_only_fixed_parameters_are_charged_what_they_cost() -> None:
    fixed = PerturbedKnobs(scale=Fraction(400))
    requests = [request(i, "gaussian", "0.5", fixed) for i in range(2)]
    made = plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=ONE)
    assert made.epsilon < Decimal("0.05")
    assert made.delta == Decimal("1e-6")


@pytest.mark.parametrize("products", [1, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("mechanism", "knobs"),
    [
        ("gaussian", PerturbedKnobs(scale=Fraction(2))),
        ("bootstrap", BootstrapKnobs(pseudocount=Fraction(2))),
    ],
)
def test_the_smallest_budget_that_would_do_does(products: int, mechanism: str, knobs: Any) -> None:
    share = Decimal(1) / products
    requests = [
        request(0, mechanism, share, knobs),
        *([request(1, "gaussian", share)] * (products - 1)),
    ]

    def planned(epsilon: Decimal) -> Plan:
        budget = Budget(epsilon=epsilon, delta=ONE.delta)
        return plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=budget)

    with pytest.raises(InfeasibleBudgetError) as caught:
        planned(Decimal(1))
    assert caught.value.where == "p0"
    said = Decimal(str(caught.value).split("would do is about ")[1].split(" ")[0].rstrip("."))
    assert planned(said * Decimal("1.02")).products[0].request.knobs == knobs
    with pytest.raises(InfeasibleBudgetError):
        planned(said * Decimal("0.97"))


def test_a_budget_that_no_size_mends_promises_nothing() -> None:
    with pytest.raises(InfeasibleBudgetError) as caught:
        plan(["gaussian"], Budget(epsilon=Decimal(1), delta=Decimal(0)))
    assert "would do" not in str(caught.value)


def test_a_missing_delta_is_said_first_and_alone() -> None:
    wide = Domain(tuple(Integer(name=f"wide{i}", lower=0, upper=9) for i in range(25)))
    with pytest.raises(InfeasibleBudgetError) as caught:
        choose(
            MICRODATA,
            AutoKnobs(),
            Target(epsilon=1.0, delta=0.0, n_records=10_000, n_cells=10**25, domain=wide),
        )
    assert "without a delta above 0, which 'marginals' would need" in caught.value.what
    assert caught.value.next_step == "Give a delta above 0."
    assert "wide24" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_charge_recomputes_and_a_smaller_one_does_not() -> None:
    made = plan(MIXED)
    stated = {"epsilon": made.epsilon, "delta": made.delta}
    assert recompute_charge(made.describe(), **stated)["epsilon"] == made.epsilon
    for less in ("0.98", "0.5"):
        small = stated | {"epsilon": made.epsilon * Decimal(less)}
        assert recompute_charge(made.describe(), **small)["epsilon"] > small["epsilon"]
    finer = stated | {"delta": made.delta / 2}
    assert recompute_charge(made.describe(), **finer)["epsilon"] > made.epsilon
    twin = [d | ({"scale": "2"} if "scale" in d else {}) for d in made.describe()]
    with pytest.raises(AmountError, match="below the"):
        recompute_charge(twin, **stated)
    silent = [
        d | ({"scale": "2", "epsilon": "99"} if "scale" in d else {}) for d in made.describe()
    ]
    assert recompute_charge(silent, **stated)["epsilon"] > made.epsilon


def test_rho_recomputes_by_the_rule_it_was_charged_by() -> None:
    made = plan(["bootstrap", "gaussian"])
    stated = {"epsilon": made.epsilon, "delta": made.delta}
    drawn, noisy = made.describe()
    again = recompute_charge([drawn, noisy], **stated)
    assert again["rho"] <= made.amounts["rho"] <= again["rho"] * Decimal("1.00001")
    assert again["rho_delta"] == made.amounts["rho_delta"] == Decimal(str(drawn["rho_delta"])) > 0
    # The entries of earlier versions: the rho of the whole loss, and no delta.
    (product,) = (p for p in made.products if p.rho_delta)
    whole = Decimal(product.loss.rho.upper)
    old = {name: value for name, value in drawn.items() if name != "rho_delta"}
    before = recompute_charge([old | {"rho": str(whole)}, noisy], **stated)
    noise = recompute_charge([noisy], **stated)["rho"]
    assert before["rho"] - noise <= whole <= (before["rho"] - noise) * Decimal("1.00001")
    assert before["rho"] > 4 * again["rho"] and before["rho_delta"] == 0
    # Forged: the small rho without its delta, or with a smaller one, is not covered.
    assert before["rho"] > made.amounts["rho"]
    less = recompute_charge([drawn | {"rho_delta": "1e-9"}, noisy], **stated)
    assert less["rho"] > made.amounts["rho"]
    more = recompute_charge([drawn | {"rho_delta": "1e-5"}, noisy], **stated)
    assert more["rho_delta"] > made.amounts["rho_delta"]
    for wrong in ("-1e-9", "1", "nan"):
        with pytest.raises((AmountError, ArithmeticError)):
            recompute_charge([drawn | {"rho_delta": wrong}, noisy], **stated)


def test_a_choice_charged_as_only_pure_still_recomputes() -> None:
    described = {
        "mechanism": "sample_resample", "epsilon_per_record": "0.5", "records": 9,
        "distance": "ks", "candidates": 50, "n_records": 400, "n_cells": "9", "unit_records": 1,
        "epsilon": "0.5", "delta": "0", "rho": "0.122459331202",
    }  # fmt: skip
    again = recompute_charge([described], epsilon=Decimal("0.5"), delta=Decimal(0))
    assert again["epsilon"] == Decimal("0.5")
    assert again["rho"] < Decimal("0.0313") < Decimal("0.122459331202")


def test_charges_of_added_epsilons_still_recompute() -> None:
    """As the ledger's entries of the first versions state them."""
    one = plan(["gaussian"], Budget(epsilon=Decimal("0.5"), delta=Decimal("5e-7")))
    both = one.describe() + one.describe()
    again = recompute_charge(both, epsilon=2 * one.epsilon, delta=2 * one.delta)
    assert again["epsilon"] <= 2 * one.epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-10), (8.0, 0.01)])
def test_gaussian_mu_is_the_budget_s(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert GaussianLoss(Fraction(mu)).delta(epsilon).upper == pytest.approx(delta, rel=1e-5)


def test_a_rare_disclosure_in_a_huge_domain_is_charged() -> None:
    """Advantages of 1e-16 are below what a double near 1 shows, and not nothing."""
    wide = Domain(tuple(Integer(name=n, lower=0, upper=2**31 - 1) for n in "ab"))
    frame = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=10)
    requests = [
        ProductRequest(
            name=name,
            kind=MICRODATA,
            mechanism="bootstrap",
            knobs=BootstrapKnobs(records=records, pseudocount=pseudocount),
            columns=(name,),
            share=Decimal("0.5"),
        )
        for name, records, pseudocount in (
            ("a", "n", Fraction("3.3")),
            ("b", 2, Fraction("1.55")),
        )
    ]
    budget = Budget(epsilon=Decimal(1), delta=Decimal("1e-18"))
    made = plan_release(requests, domain=wide, privacy=frame, budget=budget)
    for product in made.products:
        assert product.loss.epsilon(1e-18).lower <= float(made.epsilon) <= 1


def test_shares_of_rho_are_never_charged_past_it() -> None:
    shares = ["0.3333333333333333", "0.3333333333333333", "0.3333333333333334"]
    made = plan(["laplace"] * 3, Budget(rho=Decimal(1), delta=Decimal("1e-18")), shares)
    assert Decimal("0.99") < made.rho <= 1
    assert made.epsilon.is_finite()


def test_an_open_mechanism_is_judged_by_what_will_be_deployed() -> None:
    ten = Domain(tuple(Integer(name=n, lower=0, upper=9) for n in "ab"))
    frame = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=1000)

    def opened(names: str, epsilon: str, delta: str) -> Plan:
        requests = [
            ProductRequest(
                name=name,
                kind=TABLE,
                mechanism="auto",
                knobs=AutoKnobs(),
                columns=(name,),
                share=Decimal(1) / len(names),
            )
            for name in names
        ]
        budget = Budget(epsilon=Decimal(epsilon), delta=Decimal(delta))
        return plan_release(requests, domain=ten, privacy=frame, budget=budget)

    for made, name in (
        (opened("a", "0.7", "0.01"), "gaussian"),
        (opened("ab", "1", "1e-3"), "laplace"),
        (opened("ab", "1", "1e-6"), "laplace"),
        (opened("a", "1", "1e-6"), "laplace"),
    ):
        for product in made.products:
            assert product.mechanism.name == name
            assert product.choice is not None
            said = product.choice.least
            assert product.expected_error.projected_total_variation == pytest.approx(said, rel=0.01)


def test_domains_that_are_equal_but_written_otherwise_are_told_apart() -> None:
    def planned(categories: tuple[Any, ...]) -> Plan:
        domain = Domain((Categorical(name="x", categories=categories),))
        requests = [
            ProductRequest(
                name="p",
                kind=TABLE,
                mechanism="laplace",
                knobs=PerturbedKnobs(),
                columns=("x",),
                share=Decimal(1),
            )
        ]
        return plan_release(requests, domain=domain, privacy=FRAME, budget=ONE)

    assert planned((0, 1)).domain["x"].categories[0] is not False
    assert planned((False, True)).domain["x"].categories[0] is False


@pytest.mark.parametrize("mechanism", ["density", "exponential_ks", "sample_resample"])
def test_a_zero_and_the_absent_cell_do_not_make_up_for_each_other(mechanism: str) -> None:
    """As many cells as combinations, and yet not the same."""
    zero = ZeroPattern((("a", ((3, 3),)),))
    domain = Domain((Integer(name="a", lower=0, upper=3),), (zero,), absent=True)
    assert domain.n_possible == 4
    units = Privacy.of_units(adjacency=Adjacency.REPLACE_ONE, column="u", max_records=2, n_units=50)
    one = replace(request(0, mechanism, 1), columns=("a",))
    with pytest.raises(ConfigError, match="impossible or stand for no value"):
        plan_release([one], domain=domain, privacy=units, budget=ONE)
