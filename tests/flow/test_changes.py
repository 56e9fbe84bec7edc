"""What changed between two bundles of one config, at the terminal and in Python."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import statpress
from statpress.flows.cli import app
from statpress.mechanisms.errors import QueryError

WIDE = """\
  people:
    {kind: microdata, mechanism: marginals, columns: [region, age, pay], screen: "no", copies: 2,
     accept: [mostly_noise, mostly_independent]}
"""


def year(moved: int) -> pa.Table:
    """Four hundred people, of whom some moved from north to south, which raises their pay."""
    place = np.arange(400)
    south = (place % 2 == 0) | (place < moved)
    return pa.table(
        {
            "region": np.where(south, "south", "north").tolist(),
            "age": (place % 90).tolist(),
            "pay": (20.0 + 50 * south + place % 9).tolist(),
            "born": [datetime.date(1960, 1, 1)] * 400,
        }
    )


@pytest.fixture(scope="module")
def following(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with releases of two years, as ``made``, whose bundles nobody changes."""
    agency = founded(tmp_path_factory.mktemp("following"))
    text = agency.text
    start, end = text.index("  people:"), text.index("publish:")
    agency.replace(text[start:end], WIDE)
    agency.replace("epsilon: 1.0", "epsilon: 20.0")
    agency.amend(epsilon="100", delta="1e-5")
    made = []
    for name, moved in (("first", 0), ("second", 150)):
        agency.write_source(year(moved))
        if made:
            agency.replace("name: first", f"name: {name}")
        made.append(agency.run(insecure_seed=3 + moved).bundle)
    agency.made = made[0], made[1]
    return agency


@pytest.fixture
def bundles(following: Any) -> tuple[Path, Path]:
    found: tuple[Path, Path] = following.made
    return found


def test_what_changed_is_found_and_nothing_else(bundles: tuple[Path, Path]) -> None:
    earlier, later = map(statpress.open, bundles)
    found = later.changes(earlier).frame()
    changed = set(found[found["changed"]][["column", "value"]].itertuples(index=False, name=None))
    assert ("region", "north") in changed and ("region", "south") in changed
    assert not {column for column, _ in changed} - {"region", "pay"}
    moved = found[(found["column"] == "region") & (found["value"] == "south")].iloc[0]
    assert abs(moved["estimate"] - 75 / 400) < 4 * moved["standard_error"]
    mean = later.change(earlier).mean("pay")
    assert mean.facts["cells"][0]["changed"]
    assert mean.value == later.mean("pay").value - earlier.mean("pay").value
    assert abs(mean.value - 75 / 400 * 50) < 5


def test_the_terminal_says_what_the_library_does(
    bundles: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    from statpress.flows.cli import print_outcome

    def said(*words: str) -> str:
        print_outcome(app(list(words), exit_on_error=False, result_action="return_value"))
        return capsys.readouterr().out

    earlier, later = map(statpress.open, bundles)
    names = [str(bundle) for bundle in bundles]
    facts = json.loads(said("compare", *names, "--columns", "region", "--json"))
    assert facts["cells"] == later.changes(earlier, "region").facts["cells"]
    facts = json.loads(said("query", names[1], "--mean", "pay", "--since", names[0], "--json"))
    assert facts["cells"] == later.change(earlier).mean("pay").facts["cells"]
    facts = json.loads(said("regress", names[1], "pay ~ region", "--since", names[0], "--json"))
    assert facts["cells"] == later.change(earlier).regress("pay ~ region").facts["cells"]
    shown = said("compare", *names, "--columns", "region")
    assert "changed" in shown and "earlier" in shown and "yes" in shown
    assert len(later.on_copies.change(earlier).mean("pay").facts["cells"]) == 1


def test_another_definition_breaks_the_series(following: Any, bundles: tuple[Path, Path]) -> None:
    following.replace("upper: 100, bins: 5", "upper: 200, bins: 5")
    following.replace("name: second", "name: third")
    third = statpress.open(following.run(insecure_seed=4).bundle)
    second = statpress.open(bundles[1])
    with pytest.raises(QueryError, match="'pay' is declared otherwise"):
        third.change(second).mean("pay")
    with pytest.raises(QueryError, match="'pay' is declared otherwise"):
        third.changes(second, "pay")
    assert set(third.changes(second).frame()["column"]) == {"region", "age"}
