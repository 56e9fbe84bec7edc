"""Every change of a stored ledger is found, and named where it is.

One ledger holds every kind of entry. Each test plays an attacker who owns the file:
triggers, indexes and constraints are gone while they work, and the triggers are put
back. They change, drop, copy, forge and swap entries, recompute no hash, one hash or
the whole chain, and ``verify`` has to say where, alone or with a head kept elsewhere.

The thousands of attacks are verified in memory, from rows as a database gives them; samples
of every sort are also put into a file, where the verdict has to be the same.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ledger_attack import (
    COLUMNS,
    LAST_CHECKPOINT,
    LENGTH,
    Attack,
    Row,
    changed_rows,
    other_columns,
    shifted,
    text_of,
    with_new_chain,
    with_own_hash,
    write_review,
)

from statpress.mechanisms.errors import LedgerIntegrityError
from statpress.tasks.ledger import chain as journal
from statpress.tasks.ledger.rules import RULES


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    made = Attack(tmp_path_factory.mktemp("attack") / "ledger.db")
    yield made
    made.close()


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    made = Attack(tmp_path_factory.mktemp("reviewed") / "ledger.db", write_review)
    yield made
    made.close()


# --- what is there to be attacked -------------------------------------------------


def test_the_histories_hold_every_kind_and_verify(attack: Attack, reviewed: Attack) -> None:
    assert attack.verdict(attack.rows, head=attack.head) is None
    assert len(attack.rows) == LENGTH
    assert {row[1] for row in (*attack.rows, *reviewed.rows)} == set(RULES)
    assert reviewed.verdict(reviewed.rows, head=reviewed.head) is None
    assert attack.ledger.verify().checkpoints == (8, LAST_CHECKPOINT)
    assert with_new_chain(attack.rows) == attack.rows  # the attacker's tools are true


def test_every_leaf_of_every_body_is_changed(attack: Attack) -> None:
    """The changes reach every place that holds a value."""
    reached = {(sequence, place) for sequence, place, _ in changed_rows(attack)}
    for row in attack.rows:
        for place in leaves(json.loads(row[2])):
            assert (row[0], place) in reached
    assert len(reached) > 200


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = []
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield path
    for key, child in items:
        yield from leaves(child, (*path, key))


# --- an attacker who recomputes nothing -------------------------------------------


def test_any_change_of_a_body_is_named(attack: Attack) -> None:
    tried = 0
    for sequence, place, row in changed_rows(attack):
        for other in (row, (*row[:5], *attack.rows[sequence - 1][5:])):
            tried += 1
            assert attack.verdict(attack.with_row(sequence, other)) == sequence, place
    assert tried > 4000


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text.replace(",", ", ", 1),
        lambda text: " " + text,
        lambda text: text + "\n",
        lambda text: text[:-1] + ',"created":"2026-01-01"}',
        lambda text: text[:1] + '"created":"2026-01-01",' + text[1:],
        lambda text: text.replace("e", "\\u0065", 1),
        lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
        lambda text: text[:-1] + ',"zero":0.0}',
        lambda text: text[:-1],
        lambda text: f"[{text}]",
        lambda text: text.encode(),
        lambda text: text.replace("a", "\x00", 1),
        lambda text: "",
        lambda text: "null",
        lambda text: None,
        lambda text: 7,
    ],
)
def test_any_other_text_of_a_body_is_named(attack: Attack, form: Callable[[str], Any]) -> None:
    for row in attack.rows:
        rows = attack.with_row(row[0], (*row[:2], form(row[2]), *row[3:]))
        assert attack.verdict(rows) == attack.verdict_on_file(rows) == row[0]


def test_any_change_of_a_column_is_named(attack: Attack) -> None:
    tried: Counter[str] = Counter()
    for row in attack.rows:
        for other in other_columns(attack, row):
            name = next(n for n, a, b in zip(COLUMNS, row, other, strict=True) if a is not b)
            tried[name] += 1
            assert attack.verdict(attack.with_row(row[0], other)) == row[0], other
    assert set(tried) == set(COLUMNS) - {"body"}
    assert tried.total() > 900


def test_a_sequence_that_is_no_integer_is_found(attack: Attack) -> None:
    """No SQLite table of ours can hold one; another table in its place can."""
    for row in attack.rows:
        for number in (float(row[0]), row[0] + 0.5, str(row[0]), str(row[0]).encode()):
            attack.write(attack.with_row(row[0], (number, *row[1:])))
            with pytest.raises(LedgerIntegrityError):
                attack.ledger.verify()


def test_any_missing_entry_is_named(attack: Attack) -> None:
    for index in range(LENGTH):
        before, after = attack.rows[:index], attack.rows[index + 1 :]
        for rest in (after, shifted(after, -1)):
            assert attack.verdict(before + rest, head=attack.head) == index + 1
            if after:
                assert attack.verdict(before + rest) == index + 1


def test_any_truncation_is_named_by_the_head(attack: Attack) -> None:
    trusted = frozenset({json.loads(attack.rows[7][2])["public_key"]})
    for length in range(LENGTH):
        assert attack.verdict(attack.rows[:length], head=attack.head) == length + 1
        assert attack.verdict(attack.rows[:length]) is None  # whole, as far as it goes
        found = attack.verdict(attack.rows[:length], trusted=trusted)
        assert found == attack.verdict_on_file(attack.rows[:length], trusted=trusted)
        assert found == (length + 1 if length < 8 else None)


def test_any_copy_of_an_entry_is_named(attack: Attack) -> None:
    for index, row in enumerate(attack.rows):
        for place in range(index + 1, LENGTH + 1):
            before, after = attack.rows[:place], attack.rows[place:]
            copy = (place + 1, *row[1:])
            chained = with_own_hash((place + 1, *row[1:3], before[-1][4], *row[4:]))
            assert attack.verdict([*before, copy, *shifted(after, 1)]) == place + 1
            found = attack.verdict([*before, chained, *shifted(after, 1)])
            if (found, after) == (None, []):
                # What may be said again at the end: a limit that is not in force.
                assert row[1] == "amend-policy"
                continue
            assert found in {place + 1, place + 2}
        assert attack.verdict([*attack.rows[: index + 1], row, *attack.rows[index + 1 :]]) == (
            index + 2
        )


def test_any_forged_entry_is_named(attack: Attack) -> None:
    body = {**json.loads(attack.rows[0][2]), "dataset": "forged"}
    for place in range(LENGTH + 1):
        before, after = attack.rows[:place], shifted(attack.rows[place:], 1)
        previous = before[-1][4] if before else "0" * 64
        bad = (place + 1, "register", text_of(body), previous, "f" * 64, "forged", None)
        assert attack.verdict([*before, bad, *after]) == place + 1
        assert attack.verdict([*before, bad, *attack.rows[place:]]) == place + 1
        good = with_own_hash(bad)
        found = attack.verdict([*before, good, *after])
        # At the end it is what any user of the ledger may write; before, it breaks the chain.
        assert found == (place + 2 if after else None)
        if after:
            chained = with_new_chain([*before, good, *after])
            assert attack.verdict(chained, head=attack.head) is not None


def test_any_swap_of_neighbours_is_named(attack: Attack) -> None:
    for index in range(LENGTH - 1):
        first, second = attack.rows[index : index + 2]
        before, after = attack.rows[:index], attack.rows[index + 2 :]
        numbered = [(first[0], *second[1:]), (second[0], *first[1:])]
        assert attack.verdict([*before, *numbered, *after]) == index + 1
        chained = with_new_chain([*before, second, first, *after])
        assert attack.verdict(chained, head=attack.head) is not None
        if index < LAST_CHECKPOINT - 1:
            assert attack.verdict(chained) is not None


# --- the file ---------------------------------------------------------------------


def samples(attack: Attack) -> Iterator[tuple[str, list[Row]]]:
    """Some attacks of every sort, with its name."""
    for row in attack.rows:
        for other in itertools.islice(other_columns(attack, row), row[0] % 7, None, 7):
            yield "a column", attack.with_row(row[0], other)
    for sequence, _, row in itertools.islice(changed_rows(attack), 0, None, 41):
        yield "a body", attack.with_row(sequence, row)
        yield "a body and its hash", attack.with_row(sequence, with_own_hash(row))
        yield "a chain made to fit", with_new_chain(attack.with_row(sequence, row))
    for index in range(len(attack.rows)):
        before, after = attack.rows[:index], attack.rows[index + 1 :]
        yield "a missing entry", before + after
        yield "a missing entry, the others moved up", before + shifted(after, -1)
        yield "a missing entry in a chain made to fit", with_new_chain(before + after)
        yield "a truncation", before


@pytest.mark.parametrize("fixture", ["attack", "reviewed"])
def test_verify_finds_in_a_file_what_it_finds_in_memory(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    attack: Attack = request.getfixturevalue(fixture)
    found: Counter[str] = Counter()
    passed = 0
    for sort, rows in samples(attack):
        for known in ({}, {"head": attack.head}):
            verdict = attack.verdict_on_file(rows, **known)
            assert verdict == attack.verdict(rows, **known), sort
            passed += verdict is None
        found[sort] += 1
    assert set(found) == {sort for sort, _ in samples(attack)} and found.total() > 150
    assert passed


# --- the broken twin --------------------------------------------------------------


def test_a_verify_without_the_columns_would_let_a_charge_hide(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = attack.with_row(14, (*attack.rows[13][:5], "other", "run-4"))
    assert attack.verdict(rows) == attack.verdict_on_file(rows) == 14
    real = attack.rows
    monkeypatch.setattr("statpress.tasks.ledger.tables._entry", entry_of)
    assert attack.verdict(rows, head=attack.head) is None
    assert attack.verdict_on_file(rows, head=attack.head) is None
    assert attack.rows == real


def entry_of(found: Any) -> Any:
    """An entry without a look at the search columns."""
    return journal.Entry(found[0], found[1], json.loads(found[2]), found[3], found[4])
