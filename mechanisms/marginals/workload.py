"""The tables of a workload by the names of their columns, for readers of a plan.

A description has positions of columns, from which a loss is recomputed. Here they are names, and of
households and persons a table that every place has alike is named once.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from statpress.mechanisms.domain.columns import Column, Slot

Group = tuple[int, ...]
"""Positions of columns, ascending."""

Part = dict[str, Any]
"""``of`` whom the columns are, where there are households; the ``weight`` of each of its tables;
and either the ``columns`` of one table, or ``pairs_of`` some columns, all pairs that they form,
perhaps only those ``with`` some others."""
_Kind = tuple[bool, int]
"""Whether a table has columns of the household, and of how many persons."""


def workload_parts(
    columns: Sequence[Column], groups: Sequence[tuple[Group, float]]
) -> Iterator[Part]:
    """What a workload asks for, by names.

    Args:
        columns: Of the records.
        groups: Positions of columns with the weight of their table, as of ``Marginals``.
    """
    by_kind: dict[_Kind, dict[Group, float]] = defaultdict(dict)
    possible: Counter[_Kind] = Counter()
    for pair in itertools.combinations(range(len(columns)), 2):
        possible[_kind(columns, pair)] += 1
    for group, weight in groups:
        by_kind[_kind(columns, group)][group] = weight
    of_persons = {column.of.name for column in columns if isinstance(column, Slot)}
    for kind, weights in sorted(by_kind.items(), key=lambda each: (each[0][1], not each[0][0])):
        of = {"of": _whose(*kind)} if of_persons else {}
        pairs = Counter(weight for group, weight in weights.items() if len(group) == 2)
        whole = pairs and pairs.total() == possible[kind]
        usual = pairs.most_common(1)[0][0] if whole else None
        others = {
            group: weight for group, weight in weights.items() if len(group) > 2 or weight != usual
        }
        for names, weight in _once(columns, others, kind):
            yield {**of, "columns": list(names), "weight": weight}
        if usual is not None:
            listed = (_names(columns, group) for group in weights if len(group) == 2)
            columns_of_pairs = [*dict.fromkeys(itertools.chain.from_iterable(listed))]
            sides = {"pairs_of": columns_of_pairs}
            if all(kind):
                sides = {"pairs_of": [each for each in columns_of_pairs if each not in of_persons]}
                sides |= {"with": [each for each in columns_of_pairs if each in of_persons]}
            yield {**of, **sides, "weight": usual}


def workload_words(parts: Sequence[Mapping[str, Any]]) -> str:
    r"""The parts as text, a line for each part.

    >>> exception = {"columns": ["age", "sex"], "weight": 2.0}
    >>> workload_words([exception, {"pairs_of": ["age", "sex", "pay"], "weight": 1.0}]).split(";")
    ['age + sex, weight 2', '\nall other pairs']
    """
    lines, listed = [], set()
    for part in parts:
        of = part.get("of", "")
        if "columns" in part:
            text = " + ".join(part["columns"])
            if len(part["columns"]) == 2:
                listed.add(of)
        else:
            text = "all other pairs" if of in listed else "all pairs"
            text += f" of {', '.join(part['pairs_of'])}" if of else ""
            text += f" with {', '.join(part['with'])}" if "with" in part else ""
        weight = "" if part["weight"] == 1 else f", weight {part['weight']:g}"
        lines.append(f"of {of}: {text}{weight}" if of else text + weight)
    return ";\n".join(lines)


def _kind(columns: Sequence[Column], group: Group) -> _Kind:
    slots = [column for each in group if isinstance(column := columns[each], Slot)]
    return len(slots) < len(group), len({slot.place for slot in slots})


def _whose(own: bool, persons: int) -> str:
    """Whose columns those of a table are."""
    of_persons = {0: "", 1: "a person", 2: "two persons"}.get(persons, f"{persons} persons")
    return " and ".join(filter(None, ["the household" if own else "", of_persons]))


def _names(columns: Sequence[Column], group: Group) -> tuple[str, ...]:
    """Names of columns, those of a person without the place."""
    own = (columns[each] for each in group)
    return tuple(column.of.name if isinstance(column, Slot) else column.name for column in own)


def _once(
    columns: Sequence[Column], weights: Mapping[Group, float], kind: _Kind
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Names of tables with their weight, without a place if every place has the table alike."""
    places = len({column.place for column in columns if isinstance(column, Slot)})
    alike = Counter((_names(columns, group), weight) for group, weight in weights.items())
    named = set()
    for group, weight in weights.items():
        key = _names(columns, group), weight
        if kind[1] == 1 and alike[key] == places:
            if key not in named:
                yield key
            named.add(key)
        else:
            yield tuple(columns[each].name for each in group), weight
