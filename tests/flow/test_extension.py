"""A mechanism and a kind of product that are registered from outside are pressed like our own."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command_forks import printed_in_fork

from statpress.flows.cli import app

TOYS = Path(__file__).parent / "toys"
PRODUCTS = """\
products:
  ages: {kind: table, mechanism: coarse_laplace, columns: [age], share: 0.3}
  best: {kind: table, mechanism: auto, columns: [region], share: 0.3}
  upper: {kind: half, columns: [age], share: 0.4}
publish:"""


@pytest.fixture
def toyed(agency: Any) -> Any:
    before, rest = agency.text.split("products:")
    agency.text = before + PRODUCTS + rest.split("publish:")[1]
    agency.config.write_text(agency.text)

    return agency


def say_in_turn(*commands: tuple[str, ...]) -> None:
    """Print a list of what each of the commands says, in a process that knows the toys."""
    for module in [each for name, each in sys.modules.items() if name.startswith("statpress.")]:
        for each in list(vars(module).values()):
            if hasattr(each, "cache_clear"):
                each.cache_clear()  # it may hold what there was before the toys
    sys.path.insert(0, str(TOYS))
    importlib.import_module("toys")
    for before, command in zip(("[", *"," * len(commands)), commands, strict=False):
        print(before)
        app([*command, "--json"], exit_on_error=False)
    print("]")


@pytest.mark.usefixtures("judged_here")
def test_a_release_with_a_mechanism_and_a_kind_from_outside(toyed: Any) -> None:
    home = ("--home", str(toyed.home.root))
    bundle, refined = toyed.releases / "first", toyed.folder / "refined"
    told = printed_in_fork(
        say_in_turn,
        ("plan", str(toyed.config), *home),
        ("run", str(toyed.config), "--no-orchestrator", *home),
        ("verify", str(bundle), *home),
        ("ledger", "verify", *home),
        ("refine", str(bundle), "--output", str(refined), "--consistent"),
    )
    planned, outcome, *_ = json.loads(told)
    upper = planned["products"]["upper"]
    assert upper["kind"] == "half" and upper["mechanism"] == "noisy_half"
    assert "coarse_laplace" in json.dumps(planned["products"]["ages"])
    assert Path(outcome["bundle"]) == bundle
    (row,) = pq.read_table(bundle / "data" / "upper.parquet").to_pylist()
    assert 0 <= row["share"] <= 1
    assert "share of records in the upper cells" in (bundle / "README.md").read_text()
    assert "see the file" in (bundle / "report.html").read_text()
    assert "raw" in pq.read_table(bundle / "data" / "ages.parquet").column_names
    stated = json.loads((refined / "refinement.json").read_text())
    assert set(stated["products"]) == {"ages", "best"}
    assert stated["without_counts"] == ["upper"]


PLUGIN = """\
import dataclasses
from typing import Any, ClassVar

import toys
from exact_laws import law_of
from law_values import NoiseLaw, laplace_noise

from statpress.mechanisms.registry import register
from statpress.mechanisms.tables.perturbed import LaplaceTable


class HalfLaw(NoiseLaw):
    def outcome(self, raw: Any) -> Any:
        return (raw,)


@law_of.register
def _(mechanism: toys.NoisyHalf, counts: Any) -> Any:
    return HalfLaw((sum(counts[mechanism.first :]),), laplace_noise(mechanism.scale))


@dataclasses.dataclass(frozen=True)
class HalfTheNoise(LaplaceTable):
    name: ClassVar[str] = "half_the_noise"

    def _noise(self, rng: Any, size: int) -> Any:
        return rng.discrete_laplace(self.scale / 2, size)


@dataclasses.dataclass(frozen=True)
class Unknown:
    name: ClassVar[str] = "unknown"
    kinds: ClassVar[Any] = toys.NoisyHalf.kinds
    knobs: ClassVar[type] = toys.HalfKnobs
    pure: ClassVar[bool] = True


register(HalfTheNoise)
register(Unknown)
"""


@pytest.mark.nightly
def test_a_mechanism_from_outside_inherits_the_contract(tmp_path: Path) -> None:
    """Toys that keep it, one that draws half its noise, and one without a law."""
    (tmp_path / "toy_contracts.py").write_text(PLUGIN)
    tests = Path(__file__).parents[1]
    path = [tmp_path, TOYS, tests / "support"]
    suites = [*tests.glob("unit/test_mechanism_*.py"), tests / "unit/test_product_contract.py"]
    command = [sys.executable, "-m", "pytest", "-p", "toy_contracts", "-p", "no:cacheprovider"]
    chosen = "coarse_laplace or noisy_half or half_the_noise or unknown"
    done = subprocess.run(
        [*command, "-q", "-rA", "--tb=no", f"--basetemp={tmp_path / 'runs'}", "-k", chosen]
        + [str(suite) for suite in suites],
        capture_output=True,
        text=True,
        check=False,
        cwd=tests.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
    )
    outcomes: dict[str, dict[str, set[str]]] = {}
    for line in done.stdout.splitlines():
        outcome, _, test = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR") and "[" in test:
            name, _, rest = test.partition("[")
            about = rest.partition("]")[0].partition("-")[0]
            named = outcomes.setdefault(about, {}).setdefault(outcome, set())
            named.add(name.rpartition("::")[2])
    whole = outcomes["coarse_laplace"]["PASSED"]
    assert len(whole) > 15, done.stdout + done.stderr
    assert set(outcomes["coarse_laplace"]) == set(outcomes["noisy_half"]) == {"PASSED"}
    assert outcomes["half_the_noise"]["FAILED"] >= {
        "test_releases_follow_the_law",
        "test_its_errors_vary_together_as_stated",
    }
    assert "test_its_law_is_known_or_there_is_a_reason" in outcomes["unknown"]["FAILED"]


def test_a_name_is_taken_once() -> None:
    from statpress.mechanisms.registry import REGISTRY, register
    from statpress.tasks.products.product_kind import KINDS
    from statpress.tasks.products.product_kind import register as register_kind

    with pytest.raises(ValueError, match="already"):
        register(REGISTRY["laplace"])
    with pytest.raises(ValueError, match="already"):
        register_kind(KINDS["table"])
