"""Every command reads and plans its config once, and passes both on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import statpress.configs.loading
from statpress.flows.cli import app


@pytest.fixture
def calls(agency: Any, judged_here: None, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often configs were read and planned."""
    counted: Counter[str] = Counter()

    def counting(name: str) -> Any:
        honest = getattr(statpress.configs.loading, name)

        def call(*arguments: Any, **named: Any) -> Any:
            counted[name] += 1
            return honest(*arguments, **named)

        return call

    for name in ("validate", "plan_release"):
        monkeypatch.setattr(statpress.configs.loading, name, counting(name))
    monkeypatch.setenv("STATPRESS_HOME", str(agency.home.root))
    monkeypatch.chdir(agency.folder)
    return counted


@pytest.mark.parametrize(
    "command", ["validate release.yaml", "plan release.yaml", "run release.yaml --no-orchestrator"]
)
def test_a_config_is_read_and_planned_once(calls: Counter[str], command: str) -> None:
    app(command, exit_on_error=False)
    assert calls == {"validate": 1, "plan_release": 1}


@pytest.mark.nightly
def test_a_rerelease_plans_once(
    calls: Counter[str], agency: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    app("run release.yaml --no-orchestrator --json", exit_on_error=False)
    bundle = json.loads(capsys.readouterr().out)["bundle"]
    calls.clear()
    app(
        ["rerelease", bundle, "--renew", "--name", "second", "--yes", "--no-orchestrator"],
        exit_on_error=False,
    )
    assert (agency.releases / "second").is_dir()
    assert calls["plan_release"] == 1


def test_the_demo_plans_once(
    calls: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it charges: from there on it is a run like the others."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("statpress.flows.release.charge_ledger", stop)
    command = ["demo", "--no-orchestrator", "--yes", "--directory", str(tmp_path / "demo")]
    for _ in range(2):  # set up, then run again
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            app(command, exit_on_error=False)
        assert calls == {"validate": 1, "plan_release": 1}


def test_a_run_that_was_not_planned_before_plans_within(calls: Counter[str], agency: Any) -> None:
    agency.run()
    assert calls == {"validate": 1, "plan_release": 1}
