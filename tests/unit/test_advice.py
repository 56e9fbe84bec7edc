"""Nobody is advised to protect people less: by messages, next steps or pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from statpress.mechanisms import errors

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(f"{room}/README.md" for room in (
    "configs", "deploy", "flows", "mechanisms", "tasks",
)))  # fmt: skip
DO = r"\b(?:write|declare|use|take|give|choose|name|open|register|try|set|release|allow|accept)\b"
WEAKER = {
    "a weaker unit": re.compile(
        rf"{DO}[^.;:]*(?:unit: record|single-record unit|units? of one record|max_records:? 1\b)",
        re.IGNORECASE,
    ),
    "a second account": re.compile(
        rf"{DO}[^.;]*\b(?:another|second|new|other|further) (?:account|name for the dataset)"
        r"|give --also-in|choose another name|dataset under another name",
        re.IGNORECASE,
    ),
    "unreadable data": re.compile(
        rf"unreadable_at_most: \d|{DO}[^.;]*\bunreadable (?:values|data|fields)", re.IGNORECASE
    ),
}
"""What is advised, and the words that do."""
NAMED = (
    "unit: record", "single-record unit", "of one record", "max_record", "account", "another name",
    "name for the dataset", "also-in", "unreadable",
)  # fmt: skip
"""One of these is in whatever ``WEAKER`` finds; looking for them is quicker."""


def names_any(text: str) -> bool:
    plain = " ".join(text.replace("`", "").lower().split())
    return any(name in plain for name in NAMED)


BETWEEN = re.compile(r"""\{[^{}"'\n]*\}|\bf?["']|["']""")
"""What stands between the pieces of one text in a module."""


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that are not docstrings, with what is put into them left out."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    parts = {
        id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values
    }  # fmt: skip
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            texts = [each.value for each in node.values if isinstance(each, ast.Constant)]
            yield node.lineno, " ".join(map(str, texts))
        elif isinstance(node, ast.Constant) and id(node) not in parts | said:
            yield node.lineno, str(node.value)


def advice(text: str) -> list[str]:
    """What a text advises that nobody should."""
    plain = " ".join(text.replace("`", "").split())
    return [what for what, words in WEAKER.items() if words.search(plain)]


def messages() -> Iterator[tuple[str, str]]:
    for room in ("configs", "flows", "mechanisms", "tasks"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if not names_any(BETWEEN.sub("", path.read_text("utf-8").replace("\\n", " "))):
                continue  # nothing there is advised, and parsing it would take long
            for line, text in texts_of(path):
                yield f"{path.relative_to(ROOT)}:{line}", text
        for path in sorted((ROOT / room).rglob("*.jinja")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_no_message_does() -> None:
    found = list(messages())
    assert len(found) > 3000
    assert [(where, text) for where, text in found if advice(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_does(page: str) -> None:
    paragraphs = re.split(r"\n\s*\n", (ROOT / page).read_text(encoding="utf-8"))
    assert [text for text in paragraphs if advice(text)] == []


def test_no_next_step_of_a_kind_of_error_does() -> None:
    kinds = [getattr(errors, name) for name in errors.StatpressError.exit_codes()]
    assert len(kinds) > 60
    assert [kind for kind in kinds if advice(kind.next_step)] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Write 'unit: record', or a unit with max_records 1.", "a weaker unit"),
        ("Leave out 'bands', or declare a unit of one record.", "a weaker unit"),
        ("Leave the known totals out, or release records of single-record units.", "a weaker unit"),
        ("Use the account, or choose another name.", "a second account"),
        ("Then register the dataset under a new account.", "a second account"),
        ("Use that account; or give --also-in with its name.", "a second account"),
        ("Where that is wrong register the dataset under another name.", "a second account"),
        ("Correct it, or allow it: checks: pay: {unreadable_at_most: 0.5}", "unreadable data"),
        ("Else accept the unreadable values.", "unreadable data"),
    ],
)
def test_such_advice_would_be_found(text: str, what: str) -> None:
    assert advice(text) == [what]
