"""Mutants: chosen by the seed alone, each a change of one line that keeps the syntax valid."""

from __future__ import annotations

import ast
from pathlib import Path

import line_changes
import pytest
from line_changes import changes
from mutants import GROUPS, NAME, choose, located

SOURCE = '''\
"""Text 1."""
LEFT = 1 < 2

def weigh(a: "int | 3", b=4):
    """Text 2."""
    assert a < b
    if a is None or not b:
        raise ValueError(f"{a + 1}", a + 1)
    for x in (a,
              b * 2):
        print(x)
        break
    both = max(a, b) if a in b else "é" + "ü" * (a != 1)
    both: "Literal[7]" = a // b
    return (a +
            b)

def compile_kernel():
    return compiled_kernel(weigh, None)
'''
EXPECTED = [
    "if a is not None or not b:", "if a is None and not b:", "if a is None or b:",
    "if not (a is None or not b):",
    "b // 2):", "b * 3):", "b * 1):",
    "pass", "continue",
    'both = min(a, b) if a in b else "é" + "ü" * (a != 1)',
    'both = max(a, b) if a not in b else "é" + "ü" * (a != 1)',
    'both = max(a, b) if not (a in b) else "é" + "ü" * (a != 1)',
    'both = max(a, b) if a in b else "é" + "ü" * (a == 1)',
    'both = max(a, b) if a in b else "é" + "ü" * (a != 2)',
    'both = max(a, b) if a in b else "é" + "ü" * (a != 0)',
    'both: "Literal[7]" = a * b',
    "return (a -",
    "return None",
]  # fmt: skip


def test_texts_annotations_messages_and_assertions_stay_as_they_are():
    assert {change.after for change in changes(SOURCE.encode())} == set(EXPECTED)


def test_a_change_is_of_one_line_and_keeps_the_syntax_valid():
    sources = [SOURCE.encode(), Path(line_changes.__file__).read_bytes()]
    for source in sources:
        for change in changes(source):
            changed = change.applied(source)
            ast.parse(changed)
            lines = zip(source.splitlines(), changed.splitlines(), strict=True)
            differing = [number for number, (a, b) in enumerate(lines, 1) if a != b]
            assert differing == [change.line]


def test_compiled_functions_and_whole_statements_are_known():
    found = {change.after: change for change in changes(SOURCE.encode())}
    assert found["b // 2):"].statement == (9, 10)
    assert found["b // 2):"].compiled
    assert not found["return None"].compiled


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for folder in GROUPS:
        for name in ("first.py", "second.py"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / name).write_text(SOURCE)
    return root


def test_the_choice_follows_from_the_seed_and_has_as_many_of_each_group(tree):
    chosen = choose(tree, 1, 12)
    assert [m["group"] for m in chosen] == [group for group in GROUPS.values() for _ in range(2)]
    assert choose(tree, 1, 12) == chosen
    assert choose(tree, 2, 12) != chosen
    more = choose(tree, 1, 40)
    assert len(more) == 40 and all(mutant in more for mutant in chosen)
    assert len({tuple(mutant[part] for part in NAME) for mutant in more}) == 40


def test_a_mutant_is_found_by_its_text_when_lines_come_before_it(tree):
    for mutant in choose(tree, 1, 12):
        (tree / mutant["file"]).write_text(f"X = 1\n{SOURCE}")
        change = located(tree, mutant)
        assert change is not None and change.line == mutant["line"] + 1
        assert located(tree, mutant | {"before": "nothing"}) is None
        (tree / mutant["file"]).write_text(SOURCE)
