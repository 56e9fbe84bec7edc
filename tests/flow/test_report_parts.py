"""A product whose part of the report cannot be made: before the charge, and after the draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statpress.mechanisms.errors import InternalError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.products.count_product import Microdata
from statpress.tasks.report.report import UNSHOWN

OUTBURST = "a figure that no page can show"


def failing(monkeypatch: pytest.MonkeyPatch, *, drawn: bool) -> None:
    """Have the part of microdata fail in the rehearsal, or once there are files."""
    part = Microdata.part

    def fail(self: Any, folder: Path, name: str, *rest: Any) -> Any:
        if any(folder.glob("data/*")) == drawn:
            raise ArithmeticError(OUTBURST)
        return part(self, folder, name, *rest)

    monkeypatch.setattr(Microdata, "part", fail)


def test_a_charged_release_is_kept_and_the_page_says_so(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, drawn=True)
    outcome = agency.run()
    assert verify_bundle(outcome.bundle)["publishable"]
    page = (outcome.bundle / "report.html").read_text(encoding="utf-8")
    assert all(page.count(UNSHOWN.format(name)) == 1 for name in ("people", "births"))
    assert (outcome.bundle / "data" / "people.csv").is_file()
    assert OUTBURST not in "".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in outcome.bundle.rglob("*")
        if path.is_file()
    )
    assert OUTBURST in agency.inspector.log.path.read_text(encoding="utf-8")


def test_in_the_rehearsal_it_stops_the_run_before_the_charge(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, drawn=False)
    before = agency.entries()
    with pytest.raises(InternalError):
        agency.run()
    assert agency.entries() == before
    assert agency.bundles() == []
