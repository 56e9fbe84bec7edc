"""Seeded releases of every kind, and all that the commands say, are what they were.

``tests/support/frozen.py`` makes them through the command line. What lies in ``frozen/data`` and in
``frozen/statements`` never changes; ``frozen/pages`` and ``frozen/commands`` change where words are
meant to. ``python tests/support/frozen.py`` then writes the tree anew, and the commit shows how.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import frozen
import pytest

REFRESH = "python tests/support/frozen.py"
LINES = 60
"""Of a difference that are shown."""


def names(part: str) -> list[str]:
    """The files of one part of the tree."""
    paths = (path for path in (frozen.FROZEN / part).rglob("*") if path.is_file())
    return sorted(path.relative_to(frozen.FROZEN).as_posix() for path in paths)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as it is made now, in a process of its own."""
    tree = tmp_path_factory.mktemp("frozen") / "tree"
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    script = str(Path(frozen.__file__))
    done = subprocess.run(
        [sys.executable, script, str(tree)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return tree


def check(made: Path, name: str) -> None:
    """Hold a file against the one that is kept."""
    kept, now = frozen.FROZEN / name, made / name
    assert now.exists(), f"{name} is not made any more. If that is meant: {REFRESH}"
    if now.read_bytes() == kept.read_bytes():
        return
    lines = difflib.unified_diff(
        kept.read_text(encoding="utf-8", errors="backslashreplace").splitlines(),
        now.read_text(encoding="utf-8", errors="backslashreplace").splitlines(),
        f"frozen/{name}", "now", lineterm="", n=1,
    )  # fmt: skip
    shown = [line[:400] for line in lines]
    more = f"\n... and {len(shown) - LINES} lines more" if len(shown) > LINES else ""
    text = "\n".join(shown[:LINES]) + more
    pytest.fail(f"{name} is another. If that is meant: {REFRESH}\n{text}", pytrace=False)


@pytest.mark.parametrize("name", names("data"))
def test_data_never_change(name: str, made: Path) -> None:
    check(made, name)


@pytest.mark.parametrize("name", names("statements"))
def test_statements_never_change(name: str, made: Path) -> None:
    check(made, name)


@pytest.mark.parametrize("name", names("pages"))
def test_pages_change_in_words_only(name: str, made: Path) -> None:
    check(made, name)


@pytest.mark.parametrize("name", names("commands"))
def test_commands_change_in_words_only(name: str, made: Path) -> None:
    check(made, name)


def test_nothing_else_is_made(made: Path) -> None:
    now = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert sorted(now) == names("."), f"If that is meant: {REFRESH}"


def test_every_command_is_asked_for_help(made: Path) -> None:
    for place, listed in (
        ("statpress", frozen.COMMANDS),
        ("ledger", frozen.OF_THE_LEDGER),
    ):
        text = (made / "commands" / "help" / f"{place}.txt").read_text()
        start = text.index("Commands")
        words = {
            line.strip("│ ").split()[0] for line in text[start:].splitlines()[1:] if "│ " in line
        }
        assert set(listed) <= words
