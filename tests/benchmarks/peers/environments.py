"""A virtual environment for every peer, below ``build/``, from its pinned requirements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FOLDER = ROOT / "build" / "peers"
PEERS = ("opendp", "mbi", "diffprivlib", "dp_accounting", "dpmm")


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment."""
    return FOLDER / peer / "bin" / "python"


def made(peer: str) -> str:
    """Make the environment unless it is there; empty, or why it cannot be had."""
    pinned = (HERE / f"{peer}.txt").read_text()
    stamp = FOLDER / peer / "requirements.txt"
    if stamp.exists() and stamp.read_text() == pinned:
        return ""
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(FOLDER / peer)],
        [str(python_of(peer)), "-m", "pip", "install", "-q", "-r", str(HERE / f"{peer}.txt")],
    )
    for command in commands:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            return last_line(done.stderr)
    stamp.write_text(pinned)
    return ""


def last_line(text: str) -> str:
    """What a program said last, in a line with letters."""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalpha, line))]
    return lines[-1][:200] if lines else "no message"
