"""Bad input: its own error, nothing charged, nothing left, no private value told."""

import re
import traceback

import bad_input
import pytest

from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    SourceError,
    SourceNotFoundError,
    StatpressError,
)

CANARY_OR_NUMBER = re.compile(f"{bad_input.CANARY}|48151623")


SLOW = {"records past the budget"}
"""A plan that takes seconds to be refused, as one of ``test_plans.py`` is."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.nightly] * (n in SLOW)) for n in bad_input.CASES],
)
def test_bad_input(agency, name: str) -> None:
    breaks, expected = bad_input.CASES[name]
    breaks(agency)
    readable = name not in ("ledger gone", "ledger is text")
    before = agency.entries() if readable else None
    left = agency.bundles() if agency.releases.is_dir() else []
    with pytest.raises(StatpressError) as caught:
        agency.run()
    assert type(caught.value) is expected
    assert caught.value.exit_code == expected.exit_code
    assert caught.value.next_step
    assert (agency.bundles() if agency.releases.is_dir() else []) == left
    if before is not None:
        entries = agency.entries()
        looked = issubclass(expected, SourceError) and expected is not SourceNotFoundError
        of_the_data = looked and expected is not ColumnNotFoundError
        written = ["look"] * looked + ["refuse"] * of_the_data
        assert [entry.kind for entry in entries[len(before) :]] == written
        assert entries[: len(before)] == before
        assert CANARY_OR_NUMBER.search(repr(entries)) is None
    assert not list((agency.home.root / "work").glob("*"))
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert bad_input.CANARY not in told
    assert "48151623" not in told
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_every_kind_of_bad_input_has_an_exit_code_of_its_own() -> None:
    """Two kinds never share a code."""
    kinds = {expected for _, expected in bad_input.CASES.values()}
    codes = {kind.exit_code for kind in kinds}
    assert len(codes) == len(kinds)
