"""A statistic from outside the packages: registered, planned, released and verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_forks import forked

from statpress.mechanisms.estimates.statistics import STATISTICS

PRESS = """
import statpress.flows.runner
from victims import InProcess
statpress.flows.runner.Inspector = InProcess  # its process takes seconds to start
import sys; from {module} import {name} as main; sys.argv[0] = 'statpress'; main()
"""
SUPPORT = Path(__file__).parents[1] / "support"
REGISTERED = """
from dataclasses import dataclass
from fractions import Fraction
import sys

from statpress.mechanisms.estimates.statistics import NamedStatistic
from statpress.mechanisms.estimates.statistics import register

@dataclass(frozen=True)
class SecondMoment:
    columns: int = 1
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (0.0, 1.0)

    def evaluate(self, weights, columns):
        return weights @ columns[:, :1] ** 2 / weights.sum(axis=1, keepdims=True)

assert "configs" not in sys.modules
register(NamedStatistic(name="second_moment", bounded=SecondMoment()))
"""
PRODUCTS = """\
  squares: {kind: estimate, columns: [age], statistic: second_moment, share: 0.5}
  spread: {kind: estimate, mechanism: dp_bootstrap, columns: [age], statistic: second_moment,
    share: 0.5}
"""


def press(*arguments: object) -> Any:
    """The facts that the command prints, in a process of its own that has a second moment."""
    (script,) = entry_points(group="console_scripts", name="statpress")
    module, _, name = script.value.partition(":")
    done = subprocess.run(
        [sys.executable, "-c", REGISTERED + PRESS.format(module=module, name=name),
         *map(str, arguments), "--json"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(SUPPORT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def squares(agency: Any) -> Any:
    first, _, rest = agency.text.partition("  people:")
    agency.replace(agency.text, f"{first}{PRODUCTS}publish:{rest.partition('publish:')[2]}")
    return agency


@pytest.mark.nightly
def test_a_statistic_from_outside_is_planned_and_released(squares: Any) -> None:
    place = ("--home", squares.home.root)
    press("run", squares.config, *place, "--no-orchestrator")
    (bundle,) = squares.bundles()
    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    truth = np.mean(((np.minimum(np.arange(400) % 90, 99) // 10 * 10 + 4.5) / 99) ** 2)
    for name in ("squares", "spread"):
        (row,) = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        assert row["quantity"] == "second_moment of age"
        assert row["method"] in ("subsample_split", "dp_bootstrap")
        assert stated[name]["constant"] == "1"
        assert row["lower"] < row["estimate"] < row["upper"]
        sd = stated[name]["expected_error"]["noise_sd"][0]
        assert abs(row["estimate"] - truth) < 5 * sd + 5 * np.sqrt(0.09 / 400)
    verified = forked("verify", *map(str, (bundle, *place)), "--json", cwd=squares.folder)
    assert json.loads(verified.stdout)["against_ledger"] is True  # by who knows it not


def test_what_is_not_registered_is_refused(squares: Any) -> None:
    assert "second_moment" not in STATISTICS
    refused = forked("validate", str(squares.config), "--json", cwd=squares.folder)
    assert refused.returncode == 10
    assert json.loads(refused.stdout)["error"]["where"].endswith("products.squares.statistic")
