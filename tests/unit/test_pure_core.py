"""What no module of the pure core does, read from the source; imports are import-linter's."""

import ast
from pathlib import Path

import pytest

from statpress import mechanisms

ROOT = Path(mechanisms.__file__).parent
BUILTINS = {"open", "print", "input", "eval", "exec", "compile", "__import__", "breakpoint"}
METHODS = {
    "now": "the clock",
    "today": "the clock",
    "utcnow": "the clock",
    "seed": "a global generator",
    "tofile": "a file",
    "savez": "a file",
    "memmap": "a file",
    "loadtxt": "a file",
    "savetxt": "a file",
    "fromfile": "a file",
}
SEEDED = {"default_rng", "PCG64"}
RANDOM = {"Generator", "BitGenerator", *SEEDED}  # of numpy.random; the rest is global state


def last_name(node: ast.AST) -> str:
    """Of ``np.random`` and ``random`` it is ``random``."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def impurities(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BUILTINS:
            found.append(node.id)
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.append(f"{node.attr}: {METHODS[node.attr]}")
        if isinstance(node, ast.Attribute) and last_name(node.value) == "random":
            found += [] if node.attr in RANDOM else [f"{node.attr}: a global generator"]
        if isinstance(node, ast.Call) and last_name(node.func) in SEEDED:
            found += [] if node.args else ["a generator without a seed"]
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_opens_prints_and_draws_nothing_by_itself(path: Path) -> None:
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "open('counts.csv')",
        "print(table)",
        "datetime.date.today()",
        "np.random.normal(size=3)",
        "np.random.seed(1)",
        "np.random.default_rng()",
        "counts.tofile(target)",
        "__import__(name)",
    ],
)
def test_impurities_are_seen(line: str) -> None:
    assert impurities(line)
