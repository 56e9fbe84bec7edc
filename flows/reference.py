"""The generated part of ``flows/README.md``: every command and every exit code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App

from statpress.flows.cli import app
from statpress.mechanisms import errors

PAGE = Path(__file__).with_name("README.md")
MARKER = "<!-- Generated from here on by 'python -m statpress.flows.reference'; do not edit. -->\n"


def commands(parent: App = app, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every command with the first line of its help, by name, groups last."""
    names = [name for name in parent if not name.startswith("-")]
    for name in sorted(names, key=lambda name: (parent[name].default_command is None, name)):
        command = parent[name]
        if command.default_command is None:
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), inspect.cleandoc(command.help or "").split("\n")[0]


def exit_code_rows() -> Iterator[tuple[int, str, str]]:
    """Code, kind and meaning of every error, ascending by code."""
    for name, code in errors.StatpressError.exit_codes().items():
        meaning = inspect.getdoc(getattr(errors, name)) or ""
        yield code, name.removesuffix("Error"), meaning.split("\n")[0].removesuffix(".")


def reference() -> str:
    """The generated part of the page, from the command line and the errors themselves."""
    lines = ["## Commands", "", "| command | does |", "|---|---|"]
    for words, does in commands():
        anchor = f"statpress-{words.replace(' ', '-')}"
        lines.append(f"| [`statpress {words}`](#{anchor}) | {does} |")
    lines += ["", "## Exit codes", "", "| code | kind | meaning |", "|---|---|---|"]
    lines += [f"| {code} | `{kind}` | {meaning} |" for code, kind, meaning in exit_code_rows()]
    lines += ["", "## Every option", ""]
    _, *parts = re.split(r"(?m)^#+ (statpress .+)$", app.generate_docs())
    options = dict(zip(parts[::2], parts[1::2], strict=True))
    for words, _ in commands():
        # The usage line is left out: it depends on how this process was started.
        shown = re.sub(r"```console\n.*?```\n", "", options[f"statpress {words}"], flags=re.DOTALL)
        lines += [f"### statpress {words}", "", shown.strip(), ""]
    return "\n".join(lines).rstrip() + "\n"


def page(text: str) -> str:
    """The page with its generated part made anew.

    Raises:
        ValueError: The page lacks the marker below which it is generated.
    """
    written, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError(f"{PAGE.name} lacks the line {MARKER!r}")
    return f"{written}{marker}\n{reference()}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
