"""Changes of single lines inside functions: an operator, a number, a condition, a call, a result.

Texts are left as they are, and so are annotations, what is raised (messages), and assertions,
which only narrow types.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

SWAPS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"not\s+in\b", "in"), ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"is\s+not\b", "is"), ast.And: (r"\band\b", "or"), ast.Or: (r"\bor\b", "and"),
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
}  # fmt: skip
"""Operators, as they are looked for between two operands, with what takes their place."""

EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}

Edit = tuple[int, int, str]
"""Start and end in bytes of the file, and the text that takes the place."""


class Change(NamedTuple):
    """One line of a file in two forms.

    Attributes:
        function: Qualified name of the function that the line is in.
        before: The line, stripped.
        number: How many equal lines of the function come before it.
        after: The changed line, stripped.
        line: Its number in the file, from 1.
        edit: How the file is changed.
        statement: First and last line of the statement, without its body.
        body: First and last line of the outermost function.
        compiled: Whether numba compiles the function, so that no tracer sees its lines.
    """

    function: str
    before: str
    number: int
    after: str
    line: int
    edit: Edit
    statement: tuple[int, int]
    body: tuple[int, int]
    compiled: bool

    def applied(self, source: bytes) -> bytes:
        """The file's text with the change."""
        start, end, new = self.edit
        return source[:start] + new.encode() + source[end:]


def changes(source: bytes) -> list[Change]:
    """Return all changes of single lines inside the functions of a file."""
    file = _File(source)
    for node in ast.parse(source).body:
        file.visit(node, (), None, (0, 0))
    return list(file.found.values())


class _File:
    def __init__(self, source: bytes) -> None:
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.kernels = set(re.findall(r"compiled_kernel\((\w+)", source.decode()))
        self.found: dict[tuple[int, str], Change] = {}

    def visit(self, node: Any, names: tuple[str, ...], outer: Any, statement: Any) -> None:
        """Add the changes of a node and of those below it."""
        test = getattr(node, "test", None)
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or (
            isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
        ):
            return
        below = [value for name, value in ast.iter_fields(node) if name != "annotation"]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names, below = (*names, node.name), [node.body]
            outer = outer or (None if isinstance(node, ast.ClassDef) else node)
        elif isinstance(node, ast.Lambda):
            below = [node.body]
        elif isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            statement = node.lineno, last
        for edit in self.edits(node) if outer else ():
            self.add(edit, names, outer, statement)
        for value in below:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child, names, outer, statement)

    def add(self, edit: Edit, names: tuple[str, ...], outer: Any, statement: Any) -> None:
        """Add a change, unless it is of several lines."""
        start, end, new = edit
        index = bisect.bisect_right(self.starts, start) - 1
        if b"\n" in self.source[start:end]:
            return
        line, begin = self.lines[index], self.starts[index]
        before = line.decode().strip()
        after = (line[: start - begin] + new.encode() + line[end - begin :]).decode().strip()
        number = sum(
            each.decode().strip() == before for each in self.lines[outer.lineno - 1 : index]
        )
        self.found.setdefault((index, after), Change(
            ".".join(names), before, number, after, index + 1, edit, statement,
            (outer.lineno, outer.end_lineno), outer.name in self.kernels,
        ))  # fmt: skip

    def span(self, node: Any) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def edits(self, node: Any) -> Iterator[Edit]:
        """Yield the edits of a node, without those of the nodes below it."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=sides):
                for one, operator, other in zip([left, *sides[:-1]], ops, sides, strict=True):
                    yield from self.swapped(one, operator, other)
            case ast.BoolOp(op=operator, values=values):
                for one, other in itertools.pairwise(values):
                    yield from self.swapped(one, operator, other)
            case (
                ast.BinOp(left=left, op=operator, right=right)
                | ast.AugAssign(target=left, op=operator, value=right)
            ) if not (_is_text(left) or _is_text(right)):
                yield from self.swapped(left, operator, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                start = self.span(node)[0]
                blank = self.source[start + 3 : self.span(operand)[0]]
                yield start, start + 3 + len(blank) - len(blank.lstrip()), ""
            case ast.Constant(value=bool(value)):
                yield *self.span(node), str(not value)
            case ast.Constant(value=int(value)):
                yield *self.span(node), str(value + 1)
                yield *self.span(node), str(value - 1)
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
                yield *self.span(value), "None"
            case ast.Expr(value=ast.Call()):
                yield *self.span(node), "pass"
            case ast.Break() | ast.Continue():
                yield *self.span(node), "continue" if isinstance(node, ast.Break) else "break"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in EXTREMES:
                end = self.span(node.func)[1]
                yield end - len(name), end, EXTREMES[name]
        tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
        for test in filter(None, tests):
            start, end = self.span(test)
            yield start, end, f"not ({self.source[start:end].decode()})"

    def swapped(self, left: Any, operator: ast.AST, right: Any) -> Iterator[Edit]:
        """Yield another operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        between = self.source[start:end].decode()
        path = isinstance(operator, ast.Div) and b"pathlib" in self.source
        if type(operator) in SWAPS and "#" not in between and not path:
            pattern, new = SWAPS[type(operator)]
            place = re.search(pattern, between)
            if place:
                yield start + place.start(), start + place.end(), new


def _is_text(node: ast.AST) -> bool:
    """Whether a side of an operator is a text or a list as it is written."""
    return isinstance(node, ast.JoinedStr | ast.List) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
