"""The units for systemd: its own verdict, and what they must hold."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from installation import DEPLOY, QUIET, program

from statpress.flows.cli import app

pytestmark = pytest.mark.system

UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("name", UNITS)
def test_unit_is_hardened(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / name).read_text()
    lines = set(text.splitlines())
    assert lines >= {
        "NoNewPrivileges=true",
        "ProtectSystem=strict",
        "ProtectHome=true",
        "PrivateTmp=true",
        "LimitCORE=0",
        "UMask=0077",
        "CapabilityBoundingSet=",
        "StateDirectoryMode=0700",
    }
    assert not {"User=root", "User="} & lines and "\nUser=" in text
    analyse = program("systemd-analyze")
    if analyse is None:
        return
    unit = tmp_path / name
    unit.write_text(re.sub(r"/opt/statpress/bin/\w+", sys.executable, text))
    (tmp_path / "statpress-server.service").touch()
    for command in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run(
            [analyse, *command, str(unit)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    done = subprocess.run(
        [analyse, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "NoNewPrivilege" in done.stderr


def test_units_keep_server_and_private_zone_apart() -> None:
    assert UNITS == [
        "statpress-ledger-export.service",
        "statpress-server.service",
        "statpress-worker.service",
    ]
    export, server, worker = ((DEPLOY / "systemd" / name).read_text() for name in UNITS)
    assert re.search(r"^User=(.+)$", server, re.M)[1] != re.search(r"^User=(.+)$", worker, re.M)[1]
    assert "InaccessiblePaths=-/srv/statpress -/var/lib/statpress" in server
    assert "ReadOnlyPaths=/srv/statpress/source" in worker
    for name, value in QUIET.items():
        assert f"Environment={name}={value}" in server
    assert "--host 127.0.0.1" in server
    assert {"User=statpress", "IPAddressDeny=any"} <= set(export.splitlines())


def test_the_ledger_is_copied_to_another_machine_every_day() -> None:
    unit, timer = (
        (DEPLOY / "systemd" / f"statpress-ledger-export.{kind}").read_text()
        for kind in ("service", "timer")
    )
    first, second = re.findall(r"(?m)^ExecStart=(.+)$", unit)
    _, *words = shlex.split(first)
    app.parse_args(words, exit_on_error=False, print_error=False)
    assert words[-1] in second and "ssh" in second and "StrictHostKeyChecking=yes" in second
    assert "Persistent=true" in timer and "WantedBy=timers.target" in timer
    analyse = program("systemd-analyze")
    if analyse is None:
        return
    calendar = re.search(r"(?m)^OnCalendar=(.+)$", timer)
    command = [analyse, "calendar", "--iterations=2", calendar[1] if calendar else ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
