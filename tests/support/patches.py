"""Patches in tests: few, and none of a name that the code under test no longer reads.

Plugin of pytest: a patch of a name of the package that nothing reads fails its test, since it would
do nothing, silently. ``python tests/support/patches.py`` lists the patches in the tests: calls of
``monkeypatch`` and ``unittest.mock`` that replace something, and assignments to what a module has.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
ROOMS = ("mechanisms", "configs", "tasks", "flows")
_CALLS = frozenset({"setattr", "setitem", "delattr", "delitem", "patch", "object", "multiple"})


_MAY_PATCH = re.compile(
    r"(setattr|setitem|delattr|delitem|patch|object|multiple)\(|^\s+(?!self\.)[a-z_.]+\.\w+ = ",
    re.MULTILINE,
)
"""In the text of every file that has a patch: most have none, and take long to parse."""


_LOOKED_AT = ast.Import | ast.ImportFrom | ast.Call | ast.Assign


class UnusedPatchError(AssertionError):
    """A test patches a name that the code under test does not read there."""


def pytest_configure() -> None:
    honest = pytest.MonkeyPatch.setattr

    @functools.wraps(honest)
    def setattr(self: Any, target: Any, name: Any, *value: Any, **options: Any) -> None:
        honest(self, target, name, *value, **options)
        owner, attribute = target, name
        if isinstance(target, str):
            path, _, attribute = target.rpartition(".")
            owner = pkgutil.resolve_name(path)
        check_read(owner, attribute)

    pytest.MonkeyPatch.setattr = setattr  # type: ignore[method-assign]


def check_read(owner: Any, name: str) -> None:
    """See that something in the package reads a name where a test patches it.

    Raises:
        UnusedPatchError: Nothing does.
    """
    where = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", "")
    if not str(where).startswith("statpress."):
        return
    if isinstance(owner, ModuleType) and name in _read_in(owner):
        return
    taken = rf"^[ ]+from {re.escape(where)} import (\([^)]*|[^\n(]*)\b{re.escape(name)}\b"
    attribute = rf"\.{re.escape(name)}\b"
    if name.startswith("__") or re.search(f"{attribute}|{taken}", _package(), re.MULTILINE):
        return
    raise UnusedPatchError(
        f"Nothing reads '{name}' of {where}: the patch does nothing. Patch it where it is read."
    )


@functools.cache
def _read_in(module: ModuleType) -> frozenset[str]:
    """The names that a module's functions read when they are called, defaults not among them."""
    functions = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    bodies = [each.body if isinstance(each.body, list) else [each.body] for each in functions]
    return frozenset(
        node.id
        for body in bodies
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


@functools.cache
def _package() -> str:
    root = TESTS.parent
    return "\n".join(path.read_text() for room in ROOMS for path in root.glob(f"{room}/**/*.py"))


def patches() -> Iterator[str]:
    """Each patch in the tests, as path and line."""
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if path == Path(__file__) or not _MAY_PATCH.search(text):
            continue
        nodes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, _LOOKED_AT)]
        modules = _modules(nodes)
        for node in nodes:
            if _is_patch(node, modules):
                yield f"{path.relative_to(TESTS.parent)}:{node.lineno}"


def _modules(nodes: list[ast.AST]) -> frozenset[str]:
    """The names by which a file knows modules, as far as its imports show."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(each.asname or each.name) for each in node.names if each.name.islower()}
    return frozenset(names)


def _is_patch(node: ast.AST, modules: frozenset[str]) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name):
            return function.id in {"setattr", "delattr", "patch"}
        return (
            isinstance(function, ast.Attribute)
            and function.attr in _CALLS
            and (
                function.attr not in {"object", "multiple", "patch"}
                or "patch" in ast.unparse(function)
            )
            and not ast.unparse(function).startswith("object.")
        )
    if isinstance(node, ast.Assign):
        return any(
            isinstance(target, ast.Attribute) and ast.unparse(target.value) in modules
            for target in node.targets
        )
    return False


if __name__ == "__main__":
    found = list(patches())
    print("\n".join(found))
    print(len(found))
