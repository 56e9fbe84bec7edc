"""What a command imports before it has anything to do with it: nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from statpress.tasks.release.quality_gates import Between

CONFIG = str(Path(__file__).parents[2] / "configs" / "census2000.yaml")
PROGRAM = """
import sys
from statpress.flows.cli import app
app(sys.argv[1:], exit_on_error=False)
print(*sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {
    "dp_accounting", "duckdb", "great_expectations", "ibis", "opendp", "pandas", "prefect",
    "pyarrow", "scipy", "sqlalchemy",
}  # fmt: skip
OURS = {
    "configs",
    "mechanisms",
    "tasks",
    "statpress.flows.cli.plan_command",
    "statpress.flows.cli.release_commands",
    "statpress.flows.facts",
}
OTHERS = {
    "statpress.mechanisms.estimates",
    "statpress.mechanisms.functions",
    "statpress.mechanisms.tables.exponential_ks",
}
"""What is for products and mechanisms that the config does not name."""
UNUSED = OTHERS | {
    "statpress.mechanisms.marginals",
    "statpress.tasks.bundle.file_formats",
    "statpress.tasks.products",
}


@pytest.mark.parametrize(
    ("command", "spared"),
    [
        (["--help"], {"numpy", "pydantic", "ruamel", "markdown_it", "pygments", *OURS}),
        (
            ["validate", CONFIG],
            {"numpy.ma", "rich.console", "statpress.tasks.release.steps", *UNUSED},
        ),
        (
            ["plan", CONFIG, "--home", "none"],
            {"numpy.ma", "statpress.tasks.release.steps", *OTHERS},
        ),
    ],
    ids=["help", "validate", "plan"],
)
def test_a_command_spares_what_it_does_not_need(
    command: list[str], spared: set[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stderr.split())
    assert "statpress.flows.cli" in modules
    assert modules & (HEAVY | spared) == set()


@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        (
            "import statpress.tasks.release.opened",
            {
                "matplotlib",
                "statpress.mechanisms.planning",
                "statpress.tasks.products.place_product",
                "statpress.tasks.products.product_kind",
            },
        ),
        (
            "from statpress.mechanisms.registry import REGISTRY; REGISTRY['marginals']",
            {
                "statpress.mechanisms.marginals.copies",
                "statpress.mechanisms.marginals.denoising",
                "statpress.mechanisms.marginals.measurement",
            },
        ),
    ],
    ids=["an opened release", "a plan of marginals"],
)
def test_an_import_spares_what_only_a_release_needs(statement: str, spared: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(done.stdout.split())
    assert any(name.startswith("statpress.mechanisms.marginals") for name in modules)
    assert modules & spared == set()


MODULES_OF_THE_QUALITY_PROCESS = """
import sys
from statpress.tasks.release import quality_process as process
process.tasks_of_parent = lambda: (iter(sys.argv[1:]), sys.stdout)
process.main()
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.nightly
def test_the_quality_process_does_not_load_what_it_does_not_use() -> None:
    request = {"gate": "gate", "rows": [Between("x", 1, 1).as_row(1)]}
    command = [sys.executable, "-c", MODULES_OF_THE_QUALITY_PROCESS, json.dumps(request)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert json.loads(done.stdout)["success"]
    loaded = done.stderr.split()
    assert {"pandas._libs.lib", "scipy.stats"} <= {*loaded}
    assert not any(name.startswith(("scipy.stats.", "sqlalchemy.", "pyspark.")) for name in loaded)
