"""Which joint tables a plan counts, and what is refused because it would need too large a one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from statpress.mechanisms.domain.columns import Integer, Total
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy, Unit
from statpress.mechanisms.errors import AmountError, DomainTooLargeError, InfeasibleBudgetError
from statpress.mechanisms.marginals.marginals import MarginalsKnobs
from statpress.mechanisms.mechanism import Needs
from statpress.mechanisms.planning import charges
from statpress.mechanisms.planning.choice import Budget, ProductRequest
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import _coded_domain, _joint_domains, plan_release
from statpress.mechanisms.tables.bootstrap import Bootstrap, BootstrapKnobs
from statpress.mechanisms.tables.count_tables import MICRODATA, AutoKnobs

WIDE = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=999) for i in range(30)), absent=True)
FRAME = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=100_000)
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
    return plan_release([request], domain=Domain(WIDE.columns), privacy=FRAME, budget=BUDGET)


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
    described = product.describe(FRAME) | {"n_cells": str(2**63 + 1)}
    with pytest.raises(AmountError, match="more cells than any joint table"):
        charges.described_loss(described)
    (product,) = planned("marginals", MarginalsKnobs(), names(0)).products
    described = product.describe(FRAME) | {"n_cells": str(2**63 + 1)}
    assert charges.described_loss(described).delta(1.0).upper > 0  # it needs none
