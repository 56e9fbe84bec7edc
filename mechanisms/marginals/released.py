"""What the private steps released, and what every reader needs of it; all of it public."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain
from mechanisms.marginals.measurement import NoisyScores, NoisyTable
from mechanisms.marginals.residuals import Residuals, combine
from mechanisms.records.target_table import Group

KnownTotals = Mapping[Group, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class NoisyMarginals:
    """Noisy tables and scores as they were drawn.

    Attributes:
        domain: The declared columns.
        n_records: Public number of records, absent ones included.
        one_way: Tables of single columns.
        scores: Distances of pairs from independence, if pairs were scored.
        tables: Tables of several columns.
        known: Public exact tables of one or two columns.
    """

    domain: Domain
    n_records: int
    one_way: tuple[NoisyTable, ...]
    scores: NoisyScores | None
    tables: tuple[NoisyTable, ...]
    known: KnownTotals = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of every column."""
        return tuple(column.size for column in self.domain.columns)

    def residuals(self) -> Residuals:
        """All tables combined."""
        return combine(
            self.sizes,
            [*self.one_way, *self.tables],
            n_present=self.n_present,
            known=self.known,
        )

    @property
    def n_present(self) -> int | None:
        """The number of present records where it is public; with absent ones it is private."""
        return None if self.domain.absent else self.n_records

    def public_generator(self) -> np.random.Generator:
        """A generator that depends on the release only, for its post-processing."""
        digest = hashlib.sha256(repr((self.sizes, self.n_records)).encode())
        for table in (*self.one_way, *self.tables):
            digest.update(repr((table.group, table.scale)).encode())
            digest.update(table.values.astype("<i8").tobytes())
        if self.scores is not None:
            digest.update(repr((self.scores.pairs, self.scores.scale)).encode())
            digest.update(self.scores.values.astype("<i8").tobytes())
        for group, exact in sorted(self.known.items()):
            digest.update(repr(group).encode())
            digest.update(exact.astype("<i8").tobytes())
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest(), "little")))


def present(residuals: Residuals, n_records: int) -> float:
    """The number of present records, within its range."""
    return min(max(float(residuals.values[()]), 1.0), float(n_records))
