"""Tables of a few records, neighbours among them, and how far apart their releases are.

Cross-checks by other means: ``neighbours_by_replacing_records`` (test_lattice_cross_checks.py) and
``neighbours_by_filtering`` (test_unit_losses.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

Table = tuple[int, ...]


def tables(n_records: int, n_cells: int) -> list[Table]:
    """All tables of n records over the cells, in lexicographic order."""
    end = n_records + n_cells - 1
    return [
        tuple(b - a - 1 for a, b in itertools.pairwise((-1, *cuts, end)))
        for cuts in itertools.combinations(range(end), n_cells - 1)
    ]


def moved(table: Table, other: Table) -> int:
    """The number of records that lie in another cell."""
    return sum(max(a - b, 0) for a, b in zip(table, other, strict=True))


def neighbours(
    n_records: int, n_cells: int, unit_records: int = 1
) -> Iterator[tuple[Table, Table]]:
    """All ordered pairs of tables that differ in the records of one unit."""
    for a, b in itertools.permutations(tables(n_records, n_cells), 2):
        if moved(a, b) <= unit_records:
            yield a, b


def orders(counts: Table) -> int:
    """The number of sequences of draws with these counts."""
    return math.factorial(sum(counts)) // math.prod(math.factorial(count) for count in counts)


def multinomial(shares: Sequence[Fraction], draws: int) -> dict[Table, Fraction]:
    """The exact law of the counts of independent draws."""
    return {
        z: orders(z) * math.prod((p**k for p, k in zip(shares, z, strict=True)), start=Fraction(1))
        for z in tables(draws, len(shares))
    }


def hockey_stick(p: Mapping[Any, Any], q: Mapping[Any, Any], factor: float | Fraction) -> Any:
    """Divergence of p from q at e^epsilon = factor: exact, if the laws and the factor are."""
    return sum(max(mass - factor * q.get(z, 0), 0) for z, mass in p.items())


def worst(laws: Mapping[Table, Any], unit_records: int, factor: float | Fraction) -> Any:
    """The largest divergence between the laws of neighbours."""
    return max(
        (
            hockey_stick(laws[a], laws[b], factor)
            for a, b in itertools.permutations(laws, 2)
            if moved(a, b) <= unit_records
        ),
        default=0,
    )


def largest_loss(laws: Mapping[Table, Any], unit_records: int) -> float:
    """Epsilon at delta 0: the largest log-ratio between the laws of neighbours."""
    return max(
        (
            abs(math.log(laws[a][z] / laws[b][z]))
            for a, b in itertools.permutations(laws, 2)
            if moved(a, b) <= unit_records
            for z in laws[a]
        ),
        default=0.0,
    )
