"""The quick form of the table of charges: less than before, never less than by other means."""

from __future__ import annotations

import pytest

from tests.benchmarks import concentrated_charges
from tests.benchmarks.concentrated_charges import Charge


def check(charge: Charge, least: float) -> None:
    """The charge is so many times less than it was, and not too small."""
    assert charge.other_rho <= charge.rho * (1 + 1e-9)
    assert charge.other_delta <= charge.delta * (1 + 1e-9)
    assert charge.rho * least <= charge.before


def test_draws_are_charged_less_and_no_less_than_they_lose() -> None:
    for drawn, most in zip(concentrated_charges.DRAWS[:2], (0.1944, 0.0422), strict=True):
        charge = concentrated_charges.of_draws(drawn)
        check(charge, 20)
        assert charge.rho <= most and charge.delta <= drawn.delta
        assert charge.rho == pytest.approx(charge.other_rho, rel=1e-6)


def test_exponential_mechanisms_are_charged_by_their_range() -> None:
    for charge in concentrated_charges.of_exponentials("1"):
        check(charge, 3.5)
        assert charge.rho <= 1 / 8


def test_the_shipped_products_cost_a_tenth_and_a_tenth_buys_better_ones() -> None:
    sums = []
    for rho in (None, "0.1"):
        charges = concentrated_charges.of_shipped(rho)
        for charge in charges:
            check(charge, 40)
        sums.append(sum(charge.rho for charge in charges))
        assert sums[-1] <= 0.1 and sum(charge.delta for charge in charges) <= 1e-8
    assert sums[1] > 0.099  # and the budget is used


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    concentrated_charges.main(["--quick"])
    said = capsys.readouterr().out
    assert "bootstrap, k = 19.5, m = 29501, 350 cells                 2.458   0.042157" in said
    assert "both products: rho 3.8203 before, 0.070595 now but for 5.51e-09" in said
