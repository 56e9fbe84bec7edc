"""The command line as a user has it: processes, exit codes, JSON, colours, README."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from decimal import Decimal
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import command_forks
import pytest

from statpress.flows.cli.demo_command import CONFIGS
from statpress.mechanisms.errors import StatpressError

CODES = StatpressError.exit_codes()
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def statpress(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the console script of this environment."""
    script = Path(sys.executable).with_name("statpress")
    full = {**os.environ, "STATPRESS_HOME": str(cwd / "home"), "COLUMNS": "200", **environment}
    return subprocess.run(
        [str(script), *arguments], cwd=cwd, env=full, capture_output=True, text=True, check=False
    )


def forked(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same in a fork of this process."""
    full = {**os.environ, "STATPRESS_HOME": str(cwd / "home"), "COLUMNS": "200"}
    return command_forks.forked(*arguments, cwd=cwd, environment=full)


def commands(*parents: str) -> list[str]:
    """All commands, as the help lists them."""
    from statpress.flows.cli import app
    from statpress.flows.cli.ledger_commands import ledger_app

    found = [name for name in app if not name.startswith("-") and name != "ledger"]
    return found + [f"ledger {name}" for name in ledger_app if not name.startswith("-")]


def test_version_is_that_of_the_installed_package(tmp_path: Path) -> None:
    shown = statpress("--version", cwd=tmp_path)
    assert shown.returncode == 0
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert shown.stdout == f"{stated}\n" == f"{version('statpress')}\n"


def test_the_package_says_that_it_is_typed() -> None:
    assert (files("statpress") / "py.typed").is_file()


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    """In this process; ``tests/golden/test_frozen.py`` has the words."""
    from statpress.flows.cli import app

    assert len(commands()) >= 8
    for command in commands():
        app([*command.split(), "--help"], exit_on_error=False)
        shown = capsys.readouterr().out
        assert f"Usage: statpress {command}" in shown
        assert "--json" in shown


def test_readme_has_exactly_two_set_up_commands() -> None:
    set_up = README.split("## Set up")[1].split("\n## ")[0]
    shown = [line.strip() for line in set_up.splitlines() if line.startswith("    ")]
    assert len(shown) == 2
    assert "statpress demo" in shown[0]
    assert "pytest" in shown[1]
    for each in shown:  # pip alone is refused where the system's Python is managed by others
        assert each.startswith("python3 -m venv .venv && .venv/bin/pip install uv && ")


def test_ci_runs_the_test_command_of_the_readme() -> None:
    chosen = subprocess.run(
        ["bash", ".ci/run", "--show-test-command"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert chosen.stdout.strip() in README
    assert "uv sync --locked" in chosen.stdout and "--group test" in chosen.stdout


def test_the_config_in_the_readme_is_valid(tmp_path: Path) -> None:
    block = README.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "release.yaml").write_text(block)
    assert forked("validate", "release.yaml", cwd=tmp_path).returncode == 0
    ruined = (tmp_path / "release.yaml").read_text().replace("title", "t")
    (tmp_path / "release.yaml").write_text(ruined)
    assert forked("validate", "release.yaml", cwd=tmp_path).returncode == 13


def test_plan_opens_no_source_and_shows_what_it_must(tmp_path: Path) -> None:
    config = str(ROOT / "configs" / "census2000.yaml")  # its data does not exist there
    shown = statpress("plan", config, cwd=tmp_path, NO_COLOR="1")
    assert shown.returncode == 0
    assert "\x1b[" not in shown.stdout
    for word in ("pseudocount", "records", "epsilon", "delta", "sd of a cell", "total variation"):
        assert word in shown.stdout
    assert "not registered" in shown.stdout
    assert not (tmp_path / "home").exists()
    facts = json.loads(forked("plan", config, "--json", cwd=tmp_path).stdout)
    for product in facts["products"].values():
        assert product["epsilon_lower"] <= product["epsilon_upper"] <= float(product["epsilon"])
        assert 0 < product["expected_error"]["projected_total_variation"] < 1
    assert facts["epsilon_lower"] <= facts["epsilon_upper"] <= float(facts["epsilon"]) <= 2
    assert float(facts["epsilon_added"]) > 2
    assert facts["remaining"] is None


def test_ledger_commands(tmp_path: Path) -> None:
    def ledger(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked("ledger", *arguments, cwd=tmp_path)

    assert ledger("show").returncode == CODES["LedgerUnavailableError"]
    opened = ledger("register", "d", "--epsilon", "1.5", "--delta", "1e-8", "--n-records", "10")
    assert opened.returncode == 0
    again = ledger("register", "d", "--epsilon", "9", "--delta", "1e-8", "--n-records", "10")
    assert again.returncode == CODES["AlreadyRegisteredError"]
    refused = ledger("register", "e", "--epsilon", "nan", "--delta", "0", "--n-records", "10")
    assert refused.returncode == CODES["AmountError"], refused.stderr
    limits = ("--epsilon", "1", "--delta", "0", "--n-records", "10")
    assert ledger("register", "e", *limits, "--unit", "person").returncode == 2
    sized = ledger("register", "e", *limits, "--adjacency", "add_remove")
    assert sized.returncode == CODES["ConfigError"]
    assert "no size with '--adjacency add_remove'" in sized.stderr
    facts = json.loads(ledger("show", "d", "--json").stdout)["accounts"][0]
    assert facts["remaining"] == {"epsilon": "1.5", "delta": "1e-8"}
    assert ledger("show", "nobody").returncode == CODES["UnregisteredDatasetError"]
    verified = json.loads(ledger("verify", "--json").stdout)
    assert verified["entries"] == 1


def test_errors_as_json_and_as_text(tmp_path: Path) -> None:
    shown = forked("validate", "nope.yaml", "--json", cwd=tmp_path)
    error = json.loads(shown.stdout)["error"]
    assert shown.returncode == error["exit_code"] == CODES["ConfigNotFoundError"]
    assert error["kind"] == "ConfigNotFound"
    assert error["next_step"]
    shown = forked("validate", "nope.yaml", cwd=tmp_path)
    assert "nope.yaml" in shown.stderr
    assert shown.stdout == ""
    assert forked("no-such-command", cwd=tmp_path).returncode == 2
    assert forked("run", cwd=tmp_path).returncode == 2
    assert forked("verify", "x", "--no-such-option", cwd=tmp_path).returncode == 2


FEW = ("divorce", "happy", "educ", "female", "region")


def with_columns(config: str, names: Sequence[str]) -> str:
    """The config of the demo, with other columns of its records."""
    before, columns = config.split("    columns:")
    return f"{before}    columns: [{', '.join(names)}]\n{columns[columns.index('gate:') :]}"


def with_less(folder: Path) -> None:
    """Put the demo's configs into its folder, without pictures, and few columns and copies."""
    folder.mkdir()
    for name in CONFIGS:
        text = (ROOT / "configs" / name).read_text()
        assert text.count("publish: {") == 1
        (folder / name).write_text(text.replace("publish: {", "publish: {plots: false, "))
    fewer = with_columns((folder / CONFIGS[0]).read_text(), FEW)
    kind = "    kind: microdata\n"
    assert fewer.count(kind) == 1
    (folder / CONFIGS[0]).write_text(fewer.replace(kind, f"{kind}    copies: 2\n"))


@pytest.mark.system
def test_demo_twice_without_the_orchestrator(tmp_path: Path, full: bool) -> None:
    """By day in a fork, which finds a config with few columns and copies in the folder."""
    if not full:
        with_less(tmp_path / "statpress-demo")
    run = statpress if full else forked
    first = run("demo", "--no-orchestrator", "--timings", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    facts = json.loads(first.stdout)
    assert facts["dataset"] == "happiness"
    *parts, total = facts["timings"].values()
    assert min(parts) >= 0 and total == pytest.approx(sum(parts), abs=0.05)
    bundle = Path(facts["bundle"])
    people = (bundle / "data" / "people.csv").read_text().splitlines()
    assert len(people) == 17_137 + 1
    assert len(people[0].split(",")) == (15 if full else len(FEW))
    assert forked("verify", str(bundle), cwd=tmp_path).returncode == 0
    refused = forked("demo", "--no-orchestrator", cwd=tmp_path)
    assert refused.returncode == CODES["ConfirmationError"]
    assert facts["epsilon"] in refused.stderr
    config = tmp_path / "statpress-demo" / "happiness.yaml"  # the folder's own: fewer columns
    config.write_text(with_columns(config.read_text(), FEW[:3]))
    second = forked("demo", "--no-orchestrator", "--yes", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "Look at statpress-demo/releases/happiness-" in second.stdout
    (charged,) = re.findall(r"charged +epsilon ([\d.]+)", second.stdout)
    shown = forked("ledger", "show", "happiness", "--home", "statpress-demo/home", "--json",
                   cwd=tmp_path)  # fmt: skip
    left = json.loads(shown.stdout)["accounts"][0]["remaining"]["epsilon"]
    assert Decimal(left) == 10 - Decimal(facts["epsilon"]) - Decimal(charged)
    bundles = []
    for command in second.stdout.split("then try\n")[1].strip().splitlines():
        name, *words = shlex.split(command)
        assert name == "statpress"
        if not full and "places" in words[1]:
            words[0] = "plan"  # test_place_map.py releases it
        options = ("--no-orchestrator",) if words[0] == "run" else ()
        done = forked(*words, *options, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        if words[0] == "query":
            cells = json.loads(done.stdout)["cells"]
            assert [cell["values"]["happy"] for cell in cells][-1] == "very happy"
        elif words[0] == "run":
            bundles.append(Path(json.loads(done.stdout)["bundle"]))
    census, estimates, *places = bundles
    assert len(places) == full
    assert all("<svg" in (each / "report.html").read_text() for each in places)
    assert "How people are protected" in (estimates / "report.html").read_text()
    with_ledger = ("verify", str(census), "--home", "statpress-demo/home")
    assert forked(*with_ledger, cwd=tmp_path).returncode == 0
    asked = ("--output", "refined", "--consistent", "--integers", "--products", "workers")
    refined = forked("refine", str(census), *asked, "--format", "csv", cwd=tmp_path)
    assert refined.returncode == 0, refined.stderr
    assert "no budget is spent" in refined.stdout and "workers" in refined.stdout
    assert (tmp_path / "refined" / "data" / "workers.csv").exists()
    again = forked("refine", str(census), *asked, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["error"]["kind"] == "BundleExists"
    assert again.returncode == CODES["BundleExistsError"]
    told = forked("refine", str(census), "--output", "anew", "--json", cwd=tmp_path)
    stated = json.loads((tmp_path / "anew" / "refinement.json").read_text())
    assert json.loads(told.stdout) == {"output": "anew", **stated}
    (census / "README.md").write_text("changed")
    changed = forked("verify", str(census), cwd=tmp_path)
    assert changed.returncode == CODES["BundleVerificationError"]
    assert "README.md was changed" in changed.stderr
    changed = forked("refine", str(census), "--output", "other", cwd=tmp_path)
    assert changed.returncode == CODES["BundleVerificationError"]
    assert not (tmp_path / "other").exists()
