"""Every change of a stored ledger is found, and named where it is.

One ledger holds every kind of entry. Each test plays an attacker who owns the file:
triggers, indexes and constraints are gone while they work, and the triggers are put
back. They change, drop, copy, forge and swap entries, recompute no hash, one hash or
the whole chain, and ``verify`` has to say where, alone or with a head kept elsewhere.

The attacks are verified in memory, from rows as a database gives them: thousands in the full form,
of which the quick one takes every seventh to sixty-first. Samples of every sort are also put into
a file, where the verdict has to be the same. What neither a rule nor a signature tells is
found by who kept the head: the places where that is so are listed.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from census_ledger import KEY
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledger_attack import (
    COLUMNS,
    KINDS,
    LAST_CHECKPOINT,
    LENGTH,
    THIEF,
    Attack,
    Row,
    changed_rows,
    charge,
    other_columns,
    rewritten,
    shifted,
    text_of,
    with_new_chain,
    with_own_hash,
    write_history,
    write_noisy,
    write_review,
)

from statpress.mechanisms.errors import InsufficientBudgetError, LedgerIntegrityError
from statpress.tasks.ledger import chain as journal
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import RULES

EVERY = pytest.mark.parametrize("every", [61, pytest.param(1, marks=pytest.mark.nightly)])
"""Of so many attacks one is tried."""


def one_in(every: int, attacks: Iterator[Any]) -> Iterator[Any]:
    return itertools.islice(attacks, 0, None, every)


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


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    made = Attack(tmp_path_factory.mktemp("noisy") / "ledger.db", write_noisy)
    yield made
    made.close()


# --- what is there to be attacked -------------------------------------------------


def test_the_histories_hold_every_kind_and_verify(
    attack: Attack, reviewed: Attack, noisy: Attack
) -> None:
    assert attack.verdict(attack.rows, head=attack.head) is None
    assert len(attack.rows) == LENGTH
    assert {row[1] for row in (*attack.rows, *reviewed.rows, *noisy.rows)} == set(RULES)
    assert noisy.verdict(noisy.rows, head=noisy.head) is None
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


@EVERY
def test_any_change_of_a_body_is_named(attack: Attack, every: int) -> None:
    tried = 0
    for sequence, place, row in one_in(every, changed_rows(attack)):
        for other in (row, (*row[:5], *attack.rows[sequence - 1][5:])):
            tried += 1
            assert attack.verdict(attack.with_row(sequence, other)) == sequence, place
    assert tried > 4000 // every


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
        assert attack.verdict(rows) == row[0]
        if row[0] % 5 == 1:
            assert attack.verdict_on_file(rows) == row[0]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.nightly)])
def test_any_change_of_a_column_is_named(attack: Attack, every: int) -> None:
    tried: Counter[str] = Counter()
    for row in attack.rows:
        for other in one_in(every, other_columns(attack, row)):
            name = next(n for n, a, b in zip(COLUMNS, row, other, strict=True) if a is not b)
            tried[name] += 1
            assert attack.verdict(attack.with_row(row[0], other)) == row[0], other
    assert set(tried) == set(COLUMNS) - {"body"}
    assert tried.total() > 900 // every


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


def samples(attack: Attack, every: int) -> Iterator[tuple[str, list[Row]]]:
    """Some attacks of every sort, with its name."""
    step = 7 * every
    for row in attack.rows:
        for other in itertools.islice(other_columns(attack, row), row[0] % step, None, step):
            yield "a column", attack.with_row(row[0], other)
    for sequence, _, row in one_in(41 * every, changed_rows(attack)):
        yield "a body", attack.with_row(sequence, row)
        yield "a body and its hash", attack.with_row(sequence, with_own_hash(row))
        yield "a chain made to fit", with_new_chain(attack.with_row(sequence, row))
    for index in range(len(attack.rows)):
        before, after = attack.rows[:index], attack.rows[index + 1 :]
        yield "a missing entry", before + after
        yield "a missing entry, the others moved up", before + shifted(after, -1)
        yield "a missing entry in a chain made to fit", with_new_chain(before + after)
        yield "a truncation", before


@EVERY
@pytest.mark.parametrize("fixture", ["attack", "reviewed"])
def test_verify_finds_in_a_file_what_it_finds_in_memory(
    fixture: str, every: int, request: pytest.FixtureRequest
) -> None:
    attack: Attack = request.getfixturevalue(fixture)
    found: Counter[str] = Counter()
    passed = 0
    for sort, rows in samples(attack, every):
        for known in ({}, {"head": attack.head}):
            verdict = attack.verdict_on_file(rows, **known)
            assert verdict == attack.verdict(rows, **known), sort
            passed += verdict is None
        found[sort] += 1
    assert set(found) == {sort for sort, _ in samples(attack, 1)}
    assert found.total() > 150 // every
    assert passed


# --- the broken twin --------------------------------------------------------------


def test_a_verify_without_the_columns_would_let_a_charge_hide(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = attack.with_row(14, (*attack.rows[13][:5], "other", "run-4"))
    assert attack.verdict(rows) == attack.verdict_on_file(rows) == 14
    real = attack.rows
    monkeypatch.setattr("statpress.tasks.ledger.ledger_table._entry", entry_of)
    assert attack.verdict(rows, head=attack.head) is None
    assert attack.verdict_on_file(rows, head=attack.head) is None
    assert attack.rows == real


def entry_of(found: Any) -> Any:
    """An entry without a look at the search columns."""
    return journal.Entry(found[0], found[1], json.loads(found[2]), found[3], found[4])


# --- an attacker who makes the chain fit, breaks a rule or a signature --------------


@EVERY
def test_one_hash_made_to_fit_breaks_the_chain(attack: Attack, every: int) -> None:
    tried = 0
    for sequence, place, row in one_in(every, changed_rows(attack)):
        rows = attack.with_row(sequence, with_own_hash(row))
        tried += 1
        known = {"head": attack.head} if sequence == LENGTH else {}  # what follows tells otherwise
        assert attack.verdict(rows, **known) in {sequence, sequence + 1}, place
    assert tried > 2000 // every


# Where neither a rule nor a signature tells: only someone who kept the head knows.
ONLY_BY_HEAD = {
    (LAST_CHECKPOINT, "created"),
    (13, "created"),
    (14, "created"),
    (14, "config_sha256"),
    (14, "insecure_seed"),
    (14, "mechanisms"),
    (14, "run_id"),
    (14, "version"),
    (15, "created"),
    (15, "dataset"),
    (15, "reason"),
    (15, "rho"),
    (15, "rho_delta"),
    (16, "bundle"),
    (16, "created"),
    (16, "manifest_sha256"),
}


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_whole_chain_made_to_fit_is_found_by_the_head_at_least(
    attack: Attack, every: int
) -> None:
    found: Counter[str] = Counter()
    only_by_head = set()
    for number, (sequence, place, row) in enumerate(changed_rows(attack)):
        if number % every and sequence < LAST_CHECKPOINT + 2:
            continue
        rows = with_new_chain(attack.with_row(sequence, row))
        named = attack.verdict(rows)
        if named is None:
            assert attack.verdict(rows, head=attack.head) == LENGTH + 1, (sequence, place)
            only_by_head.add((sequence, place[0]))
        found["head" if named is None else "own" if named == sequence else "later"] += 1
        assert named is None or named >= sequence
    assert only_by_head == ONLY_BY_HEAD
    assert found.total() > 2000 // every
    assert found["own"] > found["head"] > 0
    assert found["later"] > 0


def test_another_kind_in_a_chain_made_to_fit_breaks_a_rule(attack: Attack) -> None:
    for row in attack.rows:
        for kind in {*KINDS, "refund"} - {row[1]}:
            rows = with_new_chain(attack.with_row(row[0], (row[0], kind, *row[2:])))
            assert attack.verdict(rows) == row[0]


def test_a_missing_entry_in_a_chain_made_to_fit_is_found(attack: Attack) -> None:
    for index in range(LENGTH):
        rows = with_new_chain(attack.rows[:index] + attack.rows[index + 1 :])
        assert attack.verdict(rows, head=attack.head) is not None
        if index < LAST_CHECKPOINT - 1:
            assert attack.verdict(rows) is not None


def resigned(rows: list[Row], key: Ed25519PrivateKey) -> list[Row]:
    """The chain made to fit with checkpoints by another key."""
    done: list[Row] = []
    for row in rows:
        if row[1] == "checkpoint":
            previous = with_new_chain([*done, row])[-1][3]
            signed = text_of(["statpress ledger checkpoint", len(done) + 1, previous])
            signature = key.sign(signed.encode()).hex()
            public = key.public_key().public_bytes_raw().hex()
            body = {**json.loads(row[2]), "public_key": public, "signature": signature}
            done = with_new_chain([*done, rewritten(row, body)])
        else:
            done = with_new_chain([*done, row])
    return done


def test_a_chain_signed_by_a_thief_is_found_by_trust_and_by_head(attack: Attack) -> None:
    own = frozenset({json.loads(attack.rows[7][2])["public_key"]})
    assert resigned(attack.rows, KEY) == attack.rows
    body = {**json.loads(attack.rows[0][2]), "epsilon": "100"}
    rows = resigned(attack.with_row(1, rewritten(attack.rows[0], body)), THIEF)
    assert attack.verdict(rows) is None
    assert attack.verdict(rows, trusted=own) == 8
    assert attack.verdict(rows, head=attack.head) == LENGTH + 1


def test_a_charge_made_smaller_with_its_balance_is_found_by_the_head(attack: Attack) -> None:
    body = json.loads(attack.rows[13][2])
    spent = {**body["spent"], "rho": "0.04500001"}
    smaller = {**body, "rho": "1e-8", "spent": spent}
    rows = with_new_chain(attack.with_row(14, rewritten(attack.rows[13], smaller)))
    assert attack.verdict(rows) is None
    assert attack.verdict(rows, head=attack.head) == LENGTH + 1
    early = {**json.loads(attack.rows[2][2]), "epsilon": "0.1"}
    early["spent"] = {**early["spent"], "epsilon": "0.1"}
    rows = with_new_chain(attack.with_row(3, rewritten(attack.rows[2], early)))
    assert attack.verdict(rows) == 6  # the next balance does not follow from it


# --- a review ---------------------------------------------------------------------

# A decision signs its charge, a change of approvers the one before, and the reopening at the end
# the last look and the last refusal: with each the chain up to there, so that no head is needed.


@EVERY
def test_any_change_of_a_review_is_found_by_its_signatures(reviewed: Attack, every: int) -> None:
    only_by_head, tried = set(), 0
    for sequence, place, row in one_in(every, changed_rows(reviewed)):
        tried += 1
        assert reviewed.verdict(reviewed.with_row(sequence, row)) == sequence, place
        fitting = reviewed.with_row(sequence, with_own_hash(row))
        assert reviewed.verdict(fitting, head=reviewed.head) in {sequence, sequence + 1}
        if reviewed.verdict(with_new_chain(reviewed.with_row(sequence, row))) is None:
            only_by_head.add((sequence, place[0]))
    assert only_by_head == set()
    assert tried > 400 // every


@EVERY
def test_a_look_with_noise_cannot_be_made_to_count_less(noisy: Attack, every: int) -> None:
    """Every entry stands where it has to; a settlement cannot be had twice, or without a look."""
    kinds = [row[1] for row in noisy.rows]
    assert kinds[:10] == ["register", *["charge", "look", "draw", "settle"] * 2, "publish"]
    assert kinds[10:] == ["bind", "set-approvers", "bind", "amend-policy"]
    for sequence, place, row in one_in(every, changed_rows(noisy)):
        assert noisy.verdict(noisy.with_row(sequence, row)) == sequence, place
    for index in range(10):
        rows = with_new_chain(noisy.rows[:index] + noisy.rows[index + 1 : 10])
        # A settlement whose look counts in any case may go, as may the last one and a publication.
        assert (noisy.verdict(rows) is None) == (index in (4, 8, 9))
        twice = with_new_chain([*noisy.rows[: index + 1], *noisy.rows[index:]])
        assert noisy.verdict(twice) is not None
    stopped = json.loads(noisy.rows[4][2])
    assert stopped["passed"] is False and stopped["open_looks"] == 1
    for index in (10, 11):  # signatures hold after the entry that was in force
        rows = with_new_chain(noisy.rows[:index] + noisy.rows[index + 1 :])
        assert noisy.verdict(rows) is not None
    less = {**json.loads(noisy.rows[6][2]), "open_looks": 0}
    assert noisy.verdict(with_new_chain(noisy.with_row(7, rewritten(noisy.rows[6], less)))) == 7
    exact = {**json.loads(noisy.rows[6][2]), "gates": "exact"}
    assert noisy.verdict(with_new_chain(noisy.with_row(7, rewritten(noisy.rows[6], exact)))) == 7


def test_another_order_of_a_review_is_found(reviewed: Attack) -> None:
    for index in range(len(reviewed.rows)):
        rows = with_new_chain(reviewed.rows[:index] + reviewed.rows[index + 1 :])
        assert reviewed.verdict(rows, head=reviewed.head) is not None
        if index < len(reviewed.rows) - 1:
            # What nothing follows from may go without breaking a rule: a publication, whose
            # bundle then still waits, the last change of approvers, a look or its refusal.
            assert reviewed.verdict(rows) is not None or index in (6, 7, 8, 9)
    assert [row[1] for row in reviewed.rows[6:8]] == ["publish", "set-approvers"]
    assert [row[1] for row in reviewed.rows[8:]] == ["look", "refuse", "reopen"]


# --- broken twins -----------------------------------------------------------------


def test_a_verify_without_the_hashes_would_miss_changes(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {**json.loads(attack.rows[13][2]), "version": "9.9.9"}
    rows = attack.with_row(14, rewritten(attack.rows[13], body))
    assert attack.verdict(rows, head=attack.head) == 14
    monkeypatch.setattr(journal, "_whole", lambda entry: True)
    assert attack.verdict(rows, head=attack.head) is None
    assert attack.verdict_on_file(rows, head=attack.head) is None


def test_a_verify_without_the_balances_would_miss_an_overspending(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged balance at the end lets the next charge spend what is not there."""
    body = json.loads(attack.rows[13][2])
    nothing = dict.fromkeys(body["spent"], "0")
    forged = rewritten(attack.rows[13], {**body, "spent": nothing})
    rows = with_new_chain(attack.with_row(14, forged))
    assert attack.verdict(rows) == 14

    def without_balance(state: Any, entry: Any) -> str:
        given = {name: value for name, value in entry.body.items() if name != "spent"}
        RULES[entry.kind].check(state, given)
        return ""

    monkeypatch.setattr(journal, "_broken_rule", without_balance)
    assert attack.verdict(rows) is None
    twin = tmp_path / "twin.db"
    source = [journal.Entry(*row[:2], json.loads(row[2]), *row[3:5]) for row in rows]
    with Ledger.open(twin) as ledger:
        ledger.restore(iter(source))
        charge(ledger, "census", "run-5", "0", "0.46")  # 0.05 of 0.5 is spent
    monkeypatch.undo()
    with Ledger.open(twin) as ledger:
        with pytest.raises(LedgerIntegrityError) as caught:
            ledger.verify()
        assert caught.value.sequence == 14
    with Ledger.open(tmp_path / "true.db") as ledger:
        write_history(ledger)
        with pytest.raises(InsufficientBudgetError):
            charge(ledger, "census", "run-5", "0", "0.46")
