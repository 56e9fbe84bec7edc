"""The one command for all figures of charges and intervals."""

from __future__ import annotations

import importlib
import subprocess
from typing import Any

import pytest

from tests.benchmarks import accuracy


@pytest.mark.parametrize("failing", [None, "quantile_widths"])
def test_every_command_is_run_and_a_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, failing: str | None
) -> None:
    """Each command's own quick form is run by its own test."""
    run: list[list[str]] = []

    def instead(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        run.append(command)
        return subprocess.CompletedProcess(command, int(command[2].endswith(failing or "none")))

    monkeypatch.setattr(subprocess, "run", instead)
    if failing is None:
        accuracy.main(["--quick"])
    else:
        with pytest.raises(SystemExit, match=f"failed: {failing}$"):
            accuracy.main(["--quick"])
    assert [command[3:] for command in run] == [["--quick"]] * len(accuracy.COMMANDS)
    for command in run:
        assert callable(importlib.import_module(command[2]).main)
