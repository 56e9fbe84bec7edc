"""Seeded releases of every kind, and all that the commands say, are what they were.

``tests/support/frozen.py`` makes them through the command line. What lies in ``frozen/data`` and in
``frozen/statements`` never changes; ``frozen/pages`` and ``frozen/commands`` change where words are
meant to. ``python tests/support/frozen.py`` then writes the tree anew, and the commit shows how.
The whole tree has files that only extras write; data of the other releases are made without them.
"""

from __future__ import annotations

import difflib
import json
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


def made_by(tmp_path_factory: pytest.TempPathFactory, *how: str) -> Path:
    """The tree as it is made now, in a process of its own."""
    tree = tmp_path_factory.mktemp("frozen") / "tree"
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(Path(frozen.__file__)), str(tree), *how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    return tree


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole tree."""
    return made_by(tmp_path_factory)


def difference(made: Path, name: str) -> str:
    """How a file differs from the one that is kept; empty if it does not."""
    kept, now = frozen.FROZEN / name, made / name
    if not now.exists():
        return f"{name} is not made any more."
    if now.read_bytes() == kept.read_bytes():
        return ""
    lines = difflib.unified_diff(
        kept.read_text(encoding="utf-8", errors="backslashreplace").splitlines(),
        now.read_text(encoding="utf-8", errors="backslashreplace").splitlines(),
        f"frozen/{name}", "now", lineterm="", n=1,
    )  # fmt: skip
    shown = [line[:400] for line in lines]
    more = f"\n... and {len(shown) - LINES} lines more" if len(shown) > LINES else ""
    return "\n".join([f"{name} is another.", *shown[:LINES]]) + more


def check(made: Path, kept: list[str]) -> None:
    """Hold files against those that are kept."""
    assert kept
    if found := [text for name in kept if (text := difference(made, name))]:
        text = "\n\n".join(found[:10])
        words = f"{len(found)} of {len(kept)} files differ. If that is meant: {REFRESH}"
        pytest.fail(f"{words}\n\n{text}", pytrace=False)


def test_data_that_need_no_extra_never_change(tmp_path_factory: pytest.TempPathFactory) -> None:
    """And what is stated of their privacy, but for the account that the ledger keeps."""
    tree = made_by(tmp_path_factory, "--core")
    check(tree, [each for name in frozen.OF_THE_CORE for each in names(f"data/{name}")])
    account = {"ledger_entry": None, "lifetime": None}
    for name in frozen.OF_THE_CORE:
        path = f"statements/privacy/{name}.json"
        now, kept = (json.loads((of / path).read_text()) for of in (tree, frozen.FROZEN))
        assert now | account == kept | account, path


@pytest.mark.system
@pytest.mark.parametrize("part", ["data", "statements"])
def test_data_and_statements_never_change(part: str, made: Path) -> None:
    check(made, names(part))


@pytest.mark.system
@pytest.mark.parametrize("part", ["pages", "commands"])
def test_pages_and_commands_change_in_words_only(part: str, made: Path) -> None:
    check(made, names(part))


@pytest.mark.system
def test_nothing_else_is_made(made: Path) -> None:
    now = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert sorted(now) == names("."), f"If that is meant: {REFRESH}"


@pytest.mark.system
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
