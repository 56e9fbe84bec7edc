"""Plans: shares become parameters whose composed loss just meets the budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Categorical, Integer, Total
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy, Unit, ZeroPattern
from statpress.mechanisms.errors import (
    AmountError,
    ConfigError,
    DomainTooLargeError,
    InfeasibleBudgetError,
)
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.estimate import ESTIMATE
from statpress.mechanisms.marginals.marginals import MarginalsKnobs
from statpress.mechanisms.mechanism import Needs, Target
from statpress.mechanisms.planning import charges
from statpress.mechanisms.planning.charges import recompute_charge
from statpress.mechanisms.planning.choice import (
    Budget,
    ProductRequest,
    choose,
    compare,
    gaussian_mu,
)
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import _coded_domain, _joint_domains, plan_release
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables.bootstrap import Bootstrap, BootstrapKnobs
from statpress.mechanisms.tables.count_tables import MICRODATA, TABLE, AutoKnobs, CountsKind
from statpress.mechanisms.tables.expected import projected_total_variation
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


# Which joint tables a plan counts, and what is refused because it would need too large a one


WIDE = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=999) for i in range(30)), absent=True)
FRAME_COUNTED = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=100_000)
N = 100_000
BUDGET = Budget(epsilon=Decimal(1), delta=Decimal("1e-6"))


class OfColumns:
    """A mechanism that takes coded columns."""

    needs: ClassVar[Needs] = "columns"


JOINT: Any = Bootstrap
COLUMNS: Any = OfColumns


def names(*positions: int) -> tuple[str, ...]:
    return tuple(f"c{i}" for i in positions)


def needed(domain: Domain, *products: tuple[Any, tuple[str, ...]]) -> list[tuple[Any, Domain]]:
    """Mechanisms with the domains of their products."""
    return [(mechanism, domain.project(own)) for mechanism, own in products]


def test_products_share_a_joint_table_as_long_as_it_fits() -> None:
    small = Domain(WIDE.columns[:6])
    products = needed(small, (JOINT, names(3, 1)), (JOINT, names(0, 5)))
    (joint,) = _joint_domains(small, products, N)
    assert joint == small.project(names(0, 1, 3, 5))
    assert _coded_domain(small, products) is None

    products = needed(WIDE, *((JOINT, names(*range(i, i + 4))) for i in range(0, 28, 2)))
    found = _joint_domains(WIDE, products, N)
    assert 1 < len(found) < len(products)
    for _, own in products:
        assert any(set(own.names) <= set(domain.names) for domain in found)
    for domain in found:
        domain.check_joint()
        assert domain.absent
        assert list(domain.names) == sorted(domain.names, key=WIDE.names.index)


def test_padded_records_units_and_their_parts_and_totals_are_counted_apart() -> None:
    own = WIDE.project(names(1))
    units, total = replace(own, absent=False), Total(name="c1", of=own["c1"], lower=0, upper=9)
    forms = [own, units, replace(units, parts=6), Domain((total,))]
    assert _joint_domains(WIDE, [(JOINT, form) for form in [*forms, *forms]], N) == tuple(forms)


def test_products_are_counted_apart_where_together_nearly_every_record_has_a_cell() -> None:
    """Twin: with few records, or few cells, one table is as small as two."""
    small = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=9) for i in range(8)))
    groups = names(0, 1, 2, 3), names(4, 5, 6, 7), names(3, 4)
    products = needed(small, *((JOINT, group) for group in groups))
    apart = _joint_domains(small, products, 10**8)
    assert [domain.names for domain in apart] == [names(0, 1, 2, 3, 4), names(4, 5, 6, 7)]
    assert len(_joint_domains(small, products, 10**4)) == 1
    assert len(_joint_domains(small, products[::2], 10**8)) == 1


def test_products_of_columns_need_no_joint_table() -> None:
    products = needed(WIDE, (COLUMNS, names(7, 2)), (JOINT, names(1)), (COLUMNS, WIDE.names[3:]))
    coded = _coded_domain(WIDE, products)
    assert coded is not None and coded.names == names(*range(2, 30))
    assert [domain.names for domain in _joint_domains(WIDE, products, N)] == [names(1)]
    assert _joint_domains(WIDE, products[:1], N) == ()
    assert (OfColumns.needs, Bootstrap.needs) == ("columns", "joint")


def planned(mechanism: str, knobs: Any, columns: tuple[str, ...]) -> Plan:
    request = ProductRequest(
        name="people", kind=MICRODATA, mechanism=mechanism, knobs=knobs, columns=columns,
        share=Decimal(1),
    )  # fmt: skip
    return plan_release(
        [request], domain=Domain(WIDE.columns), privacy=FRAME_COUNTED, budget=BUDGET
    )


def test_a_product_is_refused_by_its_own_columns_alone() -> None:
    made = planned("bootstrap", BootstrapKnobs(), names(0, 1))
    assert made.joint == (made.domain,) == (Domain(WIDE.columns[:2]),)
    assert made.coded is None
    with pytest.raises(DomainTooLargeError, match=r"1\.000e.21 cells") as caught:
        planned("bootstrap", BootstrapKnobs(), names(*range(7)))
    assert caught.value.where == "people"
    assert "c0 1,000" in str(caught.value) and "another mechanism" in str(caught.value)
    with pytest.raises(InfeasibleBudgetError, match="joint table of these columns"):
        planned("auto", AutoKnobs(), WIDE.names)


def test_a_charge_for_a_joint_table_that_cannot_be_is_refused() -> None:
    (product,) = planned("bootstrap", BootstrapKnobs(), names(0)).products
    described = product.describe(FRAME_COUNTED) | {"n_cells": str(2**63 + 1)}
    with pytest.raises(AmountError, match="more cells than any joint table"):
        charges.described_loss(described)
    (product,) = planned("marginals", MarginalsKnobs(), names(0)).products
    described = product.describe(FRAME_COUNTED) | {"n_cells": str(2**63 + 1)}
    assert charges.described_loss(described).delta(1.0).upper > 0  # it needs none


# Choosing a mechanism: the figures it rests on, what it says, and what it refuses


def target(delta: float, *, epsilon: float = 1.0, cells: int = 50, n: int = 10_000) -> Target:
    return Target(epsilon=epsilon, delta=delta, n_records=n, n_cells=cells)


def test_the_choice_follows_the_budget() -> None:
    strict = choose(TABLE, AutoKnobs(), target(1e-9))
    loose = choose(TABLE, AutoKnobs(), target(0.05))
    assert (strict.mechanism, loose.mechanism) == ("laplace", "gaussian")
    for choice in (strict, loose):
        errors = [candidate.error("total_variation") for candidate in choice.candidates]
        assert errors == sorted(errors)
        assert f"{errors[0]:.4g}" in choice.reason()
        assert choice.candidates[1].name in choice.reason()


@pytest.mark.parametrize("minimise", ["total_variation", "kolmogorov_smirnov", "cell_sd"])
def test_every_criterion_ranks_by_its_own_figure(minimise: str) -> None:
    choice = choose(TABLE, AutoKnobs(minimise=minimise), target(1e-6))
    best, *others = choice.candidates
    assert all(best.error(choice.minimise) <= other.error(choice.minimise) for other in others)
    assert minimise.replace("_", " ") in choice.reason()


def test_a_mechanism_that_cannot_serve_says_why_and_comes_last() -> None:
    choice = choose(TABLE, AutoKnobs(), target(0.0))
    refused = next(c for c in choice.candidates if c.name == "gaussian")
    assert refused.mechanism is None
    assert "No scale" in refused.reason
    assert choice.mechanism == "laplace"
    estimates = {c.name for c in compare(ESTIMATE, EstimandKnobs(statistic="mean"), target(1e-6))}
    assert "joint_moments" in estimates
    assert "laplace" not in estimates


def test_where_none_can_serve_every_reason_is_given() -> None:
    hopeless = Target(epsilon=1e-16, delta=1e-300, n_records=10, n_cells=10**9)
    with pytest.raises(InfeasibleBudgetError, match=r"No mechanism can serve .*: ") as refused:
        choose(TABLE, AutoKnobs(minimise="cell_sd"), hopeless)
    tried = {candidate.name for candidate in compare(TABLE, AutoKnobs(), hopeless)}
    assert [name for name in tried if name not in str(refused.value)] == []


def test_a_kind_without_mechanisms_is_refused() -> None:
    with pytest.raises(InfeasibleBudgetError):
        choose(CountsKind("nothing"), AutoKnobs(), target(1e-6))


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("shape", ["uniform", "zipf", "tenth"])
def test_the_expected_error_is_that_of_simulated_projections(laplace: bool, shape: str) -> None:
    cells, n, sd = 2000, 20_000, 12.0
    ranks = 1.0 / np.arange(1, cells + 1)
    if shape == "uniform":
        ranks[:] = 1
    if shape == "tenth":
        ranks[cells // 10 :] = 0
    counts = n * ranks / ranks.sum()
    rng = np.random.default_rng(7)
    noise = (rng.laplace if laplace else rng.normal)(
        0, sd / np.sqrt(2) if laplace else sd, (40, cells)
    )
    gaps = [np.abs(project_to_simplex(counts + z, n).values - counts).sum() for z in noise]
    simulated = float(np.mean(gaps)) / (2 * n)

    from statpress.mechanisms.tables import expected as expected_variation

    weights, levels = expected_variation._shape(
        shape == "uniform", cells // 10 if shape == "tenth" else cells, n
    )
    weights, levels = np.append(weights, cells - weights.sum()), np.append(levels, 0.0)
    expected = expected_variation._variation(weights, levels, np.full_like(levels, sd), n, laplace)
    assert expected == pytest.approx(simulated, rel=0.02)


def test_more_noise_is_never_expected_to_be_better() -> None:
    found = [
        projected_total_variation(
            lambda counts, sd=sd: np.full_like(counts, sd), n_records=1000, n_cells=100
        )
        for sd in (0.001, 1.0, 10.0, 100.0, 10_000.0)
    ]
    assert found == sorted(found)
    assert found[0] < 1e-4
    assert 0.5 < found[-1] <= 1
