"""The units for systemd: its own verdict, and what they must hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from installation import DEPLOY, QUIET, program

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
    unit.write_text(text.replace("/opt/statpress/bin/prefect", sys.executable))
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
    assert UNITS == ["statpress-server.service", "statpress-worker.service"]
    server, worker = ((DEPLOY / "systemd" / name).read_text() for name in UNITS)
    assert re.search(r"^User=(.+)$", server, re.M)[1] != re.search(r"^User=(.+)$", worker, re.M)[1]
    assert "InaccessiblePaths=-/srv/statpress -/var/lib/statpress" in server
    assert "ReadOnlyPaths=/srv/statpress/source" in worker
    for name, value in QUIET.items():
        assert f"Environment={name}={value}" in server
    assert "--host 127.0.0.1" in server
