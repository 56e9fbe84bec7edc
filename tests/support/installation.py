"""What the tests of the files in ``deploy/`` share."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_LEASES = "prefect.server.concurrency.lease_storage.filesystem"
QUIET = {
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _LEASES,
    "DO_NOT_TRACK": "1",
}
"""What every server of an installation is told: no word to others, leases in files."""
IMAGE = re.compile(r"[a-z0-9./-]+:\d+(\.\d+)+(-[a-z]+)*")
"""The name of an image with a tag that says a version."""


def load_all(path: Path) -> list[Any]:
    """The documents of a YAML file."""
    return list(YAML(typ="safe").load_all(path.read_text()))


def program(name: str) -> str | None:
    """A program beside this interpreter, or on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)
