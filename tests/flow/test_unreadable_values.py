"""Values that are there and cannot be read: refused, counted apart, allowed by a check only."""

from __future__ import annotations

from typing import Any

import pytest

from statpress.mechanisms.errors import QualityGateError

N, UNREADABLE = 400, 200


def text_source(agency: Any, checks: str = "", unreadable: int = UNREADABLE) -> None:
    """The agency's records as a CSV, whose amounts have thousands separators from some row on."""
    agency.replace("data/source.parquet", "data/source.csv")
    agency.replace("publish:", f"{checks}publish:")
    lines = ["region,age,pay,born"]
    for i in range(N):
        pay = "" if i < 20 else str(i % 97) if i < N - unreadable else f'"2,{i:03}"'
        region = "west" if i == 7 else ("north", "south", "")[i % 3]
        lines.append(f"{region},{i % 90},{pay},{1950 + i % 50}-01-01")
    agency.source.with_suffix(".csv").write_text("\n".join(lines) + "\n")


def log_of(agency: Any) -> str:
    return agency.inspector.log.path.read_text()


def test_unreadable_amounts_are_not_published_as_missing(agency: Any) -> None:
    text_source(agency)
    before = agency.entries()
    with pytest.raises(QualityGateError) as caught:
        agency.run()
    *same, look, refused = agency.entries()
    assert (
        same == before and look.kind == "look" and refused.kind == "refuse" and not agency.bundles()
    )
    said = str(caught.value).replace(str(agency.inspector.log.path), "")  # digits by chance
    assert "2,1" not in said and str(UNREADABLE) not in said
    log = log_of(agency)
    assert "pay: 200 unreadable of 400, none allowed; first in record 201, line 202 of " in log
    assert '\'2,200\', which is read with source: {thousands: ",", or decimal: ","}.' in log
    assert "unreadable_at_most" not in log  # nobody is told to let it pass
    figures = log[log.index("gate input: FAILED") :]
    assert log.index("pay: 200 unreadable of") < log.index("gate input: FAILED")
    assert "FAILED unreadable pay: 200, none allowed" in figures.splitlines()[1]
    assert figures.count("FAILED ") == 1 and "Between" not in log
    assert "missing pay: 20, at most 400\n" in figures
    assert "outside region: 1, not limited\n" in figures


def test_what_is_allowed_becomes_missing(agency: Any) -> None:
    text_source(agency, "checks: {pay: {unreadable_at_most: 0.5}}\n")
    agency.run()
    assert [path.name for path in agency.bundles()] == ["first"]
    assert "unreadable pay: 200, at most 200\n" in log_of(agency)


def test_one_more_than_allowed_is_refused(agency: Any) -> None:
    text_source(agency, "checks: {pay: {unreadable_at_most: 0.5}}\n", unreadable=201)
    with pytest.raises(QualityGateError):
        agency.run()
