"""Lists the broken twins among the tests: ``python tests/support/twins.py [root of a checkout]``.

A twin is found by the words in its name, docstring or comments, or by the ``AssertionError`` that
it must raise. A test may move to another file: compare the names of two checkouts
(``| sed 's/.*:://' | sort``), not the places.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MARKER = re.compile(
    r"twin|broken|halved|off.by.one|must catch|(?:is|are)_?.caught|raises\(AssertionError", re.I
)


def twins(root: Path) -> Iterator[str]:
    """The place and name of every function and class of the tests that mentions a twin."""
    for path in sorted((root / "tests").rglob("*.py")):
        if "frozen" in path.parts or path.name == Path(__file__).name:
            continue
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
                continue
            assert node.end_lineno is not None
            if MARKER.search("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    name = node.name
                else:
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    name = ast.unparse(target)
                yield f"{path.relative_to(root)}::{name}"


if __name__ == "__main__":
    for twin in twins(Path(*sys.argv[1:2] or ["."])):
        print(twin)
