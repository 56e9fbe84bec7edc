"""How much of the house a reader must open: modules, lines, imports, and what one release runs.

    python -m tests.benchmarks.structure            # everything that is counted from the text
    python -m tests.benchmarks.structure --run      # and what a ten-cell release executes
    python -m tests.benchmarks.structure --root DIR # another checkout, in the same way

Lines are those of ``.py`` files, blank ones and comments included. A *function with one caller,
elsewhere* is a public function at the top level of a module whose name is mentioned in the code of
exactly one other module, once or more, and nowhere else in its own. An *import circle* is a
strongly connected set of modules by their imports at the top level and inside functions. Those
under ``TYPE_CHECKING`` are left out, as they do not run.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

PACKAGES = ("mechanisms", "configs", "tasks", "flows")
MECHANISMS = ("gaussian", "marginals", "dp_bootstrap")

_CLOSURE = """
import json, sys
sys.path[:0] = {paths!r}
from {namespace}{registry} import REGISTRY
before = set(sys.modules)
REGISTRY[{name!r}]
ours = [m for m in sys.modules if m.removeprefix('statpress.').partition('.')[0] in {packages!r}]
print(len([m for m in ours if not hasattr(sys.modules[m], '__path__')]))
"""

_RELEASE = """
import json, os, sys, threading
sys.path[:0] = {paths!r}
root = os.path.realpath({root!r}) + os.sep
seen = set()
def profile(frame, event, argument):
    if event == 'call':
        seen.add(frame.f_code)
sys.setprofile(profile)
threading.setprofile(profile)
from importlib import import_module
program = import_module('{namespace}flows.cli')
sys.argv = ['statpress', *{arguments!r}]
try:
    program.main()
except SystemExit as end:
    assert not end.code, end.code
sys.setprofile(None)
ours = set()
for code in seen:
    path = os.path.realpath(code.co_filename)
    rest = path.removeprefix(root)
    if rest != path and rest.partition(os.sep)[0] in {packages!r} and code.co_flags & 1:
        ours.add((rest, code.co_firstlineno, code.co_qualname))
print(json.dumps([len({{path for path, *_ in ours}}), len(ours)]))
"""

_CONFIG = """\
title: Ten cells
dataset: ten
source: {path: ten.csv}
privacy: {adjacency: replace_one, unit: record, n_records: 1000}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  cell: {type: categorical, categories: [a, b, c, d, e, f, g, h, i, j]}
products:
  cells: {kind: table, mechanism: gaussian, columns: [cell]}
publish: {directory: releases}
"""


def modules(root: Path) -> dict[str, Path]:
    """The modules of the product by name, without the namespace."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }


def imported(tree: ast.Module, name: str, known: dict[str, Path]) -> set[str]:
    """The modules of the product that a module imports when it, or a function of it, runs."""
    targets: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            targets.update(alias.name.removeprefix("statpress.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            base = node.module.removeprefix("statpress.").removeprefix("statpress")
            for alias in node.names:
                full = f"{base}.{alias.name}".strip(".")
                targets.add(full if full in known else base)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return {target for target in targets if target in known and target != name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected sets of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                result.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return result


def import_lines(tree: ast.Module) -> int:
    """Lines that import statements take, wherever they stand."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)


def called_once(trees: dict[str, ast.Module]) -> list[str]:
    """Public functions whose only user is one other module."""
    users: dict[str, set[str]] = defaultdict(set)
    defined: dict[str, list[str]] = defaultdict(list)
    own: Counter[tuple[str, str]] = Counter()
    for name, tree in trees.items():
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef) and not statement.name.startswith("_"):
                defined[statement.name].append(name)
        for node in ast.walk(tree):
            word = (
                node.id
                if isinstance(node, ast.Name)
                else node.attr
                if isinstance(node, ast.Attribute)
                else None
            )
            if word:
                users[word].add(name)
                own[word, name] += 1
    return sorted(
        f"{places[0]}:{word}"
        for word, places in defined.items()
        if len(places) == 1 and not own[word, places[0]] and len(users[word]) == 1
    )


def hooks(root: Path) -> int:
    """Methods that a kind of product may implement."""
    for path in (root / "tasks" / "products").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == "ProductKind":
                return sum(
                    isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
                    for item in node.body
                )
    return 0


def from_the_text(root: Path) -> dict[str, Any]:
    """Every figure that needs nothing run."""
    known = modules(root)
    texts = {name: path.read_text(encoding="utf-8") for name, path in known.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines = sum(text.count("\n") for text in texts.values())
    imports = sum(map(import_lines, trees.values()))
    tests = sorted((root / "tests").rglob("*.py"))
    words = [path.read_text(encoding="utf-8") for path in tests]
    patches = sum(len(re.findall(r"\b\w+\.setattr\(", text)) for text in words)
    graph = {name: imported(tree, name, known) for name, tree in trees.items()}
    return {
        "modules": len(known),
        "product lines": lines,
        "import lines, percent": round(100 * imports / lines, 1),
        "functions with one caller, elsewhere": len(called_once(trees)),
        "hooks of a product kind": hooks(root),
        "import circles": circles(graph),
        "test lines": sum(text.count("\n") for text in words),
        "patches in tests": patches,
    }


def _python(script: str, root: Path, folder: Path | None = None, **values: Any) -> str:
    namespace = "statpress." if (root / ".src").is_dir() else ""
    paths = [str(root / ".src") if namespace else str(root)]
    text = script.format(
        paths=paths, namespace=namespace, packages=PACKAGES, root=str(root), **values
    )
    ended = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    return ended.stdout.strip().splitlines()[-1]


def closures(root: Path) -> dict[str, int]:
    """Modules of the product that each of three mechanisms brings with it, packages left out."""
    registry = (
        "registry" if (root / "mechanisms" / "registry.py").is_file() else "planning.registry"
    )
    return {
        name: int(_python(_CLOSURE, root, registry=f"mechanisms.{registry}", name=name))
        for name in MECHANISMS
    }


def release(root: Path, folder: Path) -> tuple[int, int]:
    """Files and functions that ``run --no-orchestrator`` of a table of ten cells executes."""
    rows = "".join(f"{'abcdefghij'[i % 10]}\n" for i in range(1000))
    (folder / "ten.csv").write_text("cell\n" + rows)
    (folder / "ten.yaml").write_text(_CONFIG)
    home = ["--home", "home"]
    register = ["ledger", "register", "ten", "--epsilon", "10", "--delta", "1e-5"]
    for arguments in ([*register, "--n-records", "1000", *home],):
        _python(_RELEASE, root, folder, arguments=arguments)
    run = ["run", "ten.yaml", "--no-orchestrator", *home]
    files, functions = json.loads(_python(_RELEASE, root, folder, arguments=run))
    return files, functions


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args()
    root = given.root.resolve()
    figures = from_the_text(root)
    figures["import closure"] = closures(root)
    if given.run:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            figures["files and functions of a release"] = release(root, Path(folder))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
