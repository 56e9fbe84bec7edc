"""``PRIVACY.md``: its figures are those of the statement, rounded against the release."""

from __future__ import annotations

import json
import math
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import pytest

from statpress.mechanisms.accounting.trade_off import limit_advantage
from statpress.tasks.pages.numbers import per_hundred
from statpress.tasks.report.privacy_page import privacy_page, right_guesses

GOLDEN = Path(__file__).parents[1] / "golden" / "privacy"
HEADINGS = (
    "Privacy parameters", "Unit of privacy", "Algorithms and correctness", "Utility and bias",
    "Query model and budget", "Trust model", "Data security and access control", "Side channels",
    "Data collection exposure", "What is not covered",
)  # fmt: skip


def stated() -> Any:
    """The statement of a second release of persons with several records, under zcdp."""
    return json.loads((GOLDEN / "privacy.json").read_text())


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    lines = page.partition(f" {heading}\n")[2].splitlines()
    table = [line for line in lines[: _end(lines)] if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]


def _end(lines: list[str]) -> int:
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    return next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))


def test_the_page_is_as_it_was_read() -> None:
    assert privacy_page(stated()) == (GOLDEN / "PRIVACY.md").read_text()


def test_it_has_the_parts_of_the_pyramid_in_order() -> None:
    page = privacy_page(stated())
    found = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert found == list(HEADINGS)
    assert "10.6028/NIST.SP.800-226" in page


def test_its_curve_encloses_the_statement_s() -> None:
    given = stated()
    found = rows(privacy_page(given), "The privacy curve")
    for (epsilon, low, high), point in zip(found, given["curve"], strict=True):
        assert 0 <= float(epsilon) - point["epsilon"] <= 0.01 * point["epsilon"]
        assert 0.99 * point["delta_lower"] <= float(low) <= point["delta_lower"]
        assert point["delta_upper"] <= float(high) <= 1.01 * point["delta_upper"]


def test_its_figures_are_the_statement_s() -> None:
    given = stated()
    page = privacy_page(given)
    values = {row[0]: row[1] for row in rows(page, "Privacy parameters")}
    for symbol, name in {"ε": "epsilon", "δ": "delta", "ρ": "rho", "δ of ρ": "rho_delta"}.items():
        assert Decimal(values[symbol]) == Decimal(given[name])
    life = given["lifetime"]
    for (_, *cells), measure in zip(
        rows(page, "Query model and budget"), life["limit"], strict=True
    ):
        before, this, left, limit = map(Decimal, cells)
        assert before == Decimal(life["spent_before"][measure])
        assert before + this == Decimal(life["spent"][measure])
        assert (left, limit) == (
            Decimal(life["remaining"][measure]), Decimal(life["limit"][measure]),
        )  # fmt: skip
    for (alarms, missed, found), each in zip(
        rows(page, "What an attack attains"), given["trade_off"], strict=True
    ):
        least = 100 * each["false_negative_rate_at_least"]
        assert float(alarms) == 100 * each["false_positive_rate"]
        assert least - 0.1 < float(missed) <= least
        assert 100 - least <= float(found) < 100 - least + 0.1
    for row, (name, product) in zip(
        rows(page, "Algorithms and correctness"), given["products"].items(), strict=True
    ):
        assert row[0] == f"`{name}`" and row[2] == f"`{product['mechanism']}`"
        epsilon, delta = row[3].split(" at δ = ")
        assert Decimal(epsilon) == Decimal(product["epsilon"])
        assert Decimal(delta) == Decimal(product["delta"])
    for sentence in given["not_covered"]:
        assert f"- {sentence}" in page
    for cited in (each for all_ in given["citations"].values() for each in all_):
        assert cited.get("doi", cited.get("arxiv", "")) in page


def test_guesses_are_rounded_against_the_release() -> None:
    assert right_guesses(0.0) == "50"
    assert right_guesses(1e-9) == "50.1"
    assert right_guesses(0.0942) == "54.8"
    assert right_guesses(1.0) == "100"
    assert per_hundred(0.98199, ROUND_FLOOR) == "98.1"


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "0"), ("3", "1e-5"), ("10", "1e-7")])
def test_a_limit_of_epsilon_is_what_randomised_response_attains(epsilon: str, delta: str) -> None:
    e, d = float(epsilon), float(delta)
    exact = d + (1 - d) * math.tanh(e / 2)  # of the pair that attains (epsilon, delta)
    found = limit_advantage({"epsilon": epsilon, "delta": delta})
    assert exact - 1e-15 <= float(found) <= exact + 1e-12


@pytest.mark.parametrize("rho", ["0.0001", "0.5", "1.9"])
def test_a_limit_of_rho_covers_the_gaussian(rho: str) -> None:
    mu = math.sqrt(2 * float(rho))
    gaussian = math.erf(mu / 2 / math.sqrt(2))
    found = float(limit_advantage({"rho": rho, "rho_delta": "1e-6"}))
    assert gaussian <= found <= 1.5 * gaussian + 1e-6 or found == 1


def test_a_limit_without_measure_protects_nothing() -> None:
    assert limit_advantage({"epsilon": "1000", "delta": "0"}) == 1
    assert limit_advantage({"rho": "2000", "rho_delta": "0"}) == 1


def test_a_column_of_any_name_is_shown_as_it_is() -> None:
    given = stated()
    text = json.dumps(given, ensure_ascii=False).replace("person", "per`s|on")
    page = privacy_page(json.loads(text))
    assert "``per`s|on``" in page and "`per`s|on` " not in page.replace("``per`s|on``", "")


def test_delta_zero_is_no_exception() -> None:
    page = privacy_page(stated() | {"delta": "0"})
    assert "holds without any exception" in page and "stricter rule" not in page


def test_a_limit_that_promises_nothing_is_said_to() -> None:
    given = stated()
    limit = {"epsilon": "10", "delta": "0.00001"}
    given["lifetime"] |= {"policy": "basic", "limit": limit}
    given["lifetime"] |= {"spent_before": limit, "remaining": limit}
    promise = "at most 100 in 100 are right on average: a limit so large promises nothing"
    assert promise in privacy_page(given)
    given["lifetime"]["limit"] = {"epsilon": "1", "delta": "0.00001"}
    assert "promises nothing" not in privacy_page(given)
