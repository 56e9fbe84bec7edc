"""Small coded columns for tests of marginals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from mechanisms.domain.coded_columns import CodesInMemory
from mechanisms.domain.columns import Integer
from mechanisms.domain.domain import Domain
from mechanisms.domain.structural_zeros import ZeroPattern
from tasks.release.entropy import SeededRandomness


def domain_of(
    sizes: Sequence[int], zeros: tuple[ZeroPattern, ...] = (), *, absent: bool = False
) -> Domain:
    """Columns c0, c1, ... of these sizes."""
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=k - 1) for i, k in enumerate(sizes))
    return Domain(columns, zeros, absent)


def in_memory(domain: Domain, codes: np.ndarray, n_records: int | None = None) -> CodesInMemory:
    """The records unsigned[n, d] of a domain."""
    columns = tuple(np.ascontiguousarray(codes[:, j]) for j in range(codes.shape[1]))
    return CodesInMemory(domain, len(codes) if n_records is None else n_records, columns)


class WithoutNoise(SeededRandomness):
    """Noise that is nought, and a note of what was asked for."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(1))
        self.asked: list[tuple[Fraction, int]] = []

    def discrete_gaussian(self, sigma: Fraction, size: int) -> np.ndarray:
        self.asked.append((sigma, size))
        return np.zeros(size, np.int64)


def dependent_codes(n: int, sizes: Sequence[int], seed: int, strength: float = 0.5) -> np.ndarray:
    """uint8[n, d]: each column follows the one before with some probability."""
    rng = np.random.default_rng(seed)
    codes = np.empty((n, len(sizes)), np.uint8)
    for j, k in enumerate(sizes):
        p = rng.dirichlet(np.ones(k))
        codes[:, j] = rng.choice(k, n, p=p)
        if j:
            follows = rng.random(n) < strength
            codes[follows, j] = codes[follows, j - 1] % k
    return codes
