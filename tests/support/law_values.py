"""Laws of releases: their divergence from one another, and draws against them."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from neighbouring import Table, hockey_stick, orders, tables
from scipy import stats

from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.residuals import GRID
from statpress.mechanisms.tables.exponential_ks import dense_counts

Outcome = tuple[Any, ...]
Floats = np.ndarray[Any, np.dtype[np.float64]]
_RARE, _TAIL = 10, 1e-13


def table_of(domain: Domain, counts: Table) -> ContingencyTable:
    """The private table of counts of all cells."""
    dense = np.array(counts, np.int64)
    cells = np.flatnonzero(dense)
    return ContingencyTable(domain, cells, dense[cells])


def counts_of(raw: Any) -> Table:
    """All counts of a raw table, of cells first."""
    if isinstance(raw, ContingencyTable):
        return tuple(dense_counts(raw).tolist())
    blocks = getattr(raw, "blocks", np.array([], np.int64))
    return (*raw.counts.tolist(), *blocks.tolist())


def goodness(observed: Sequence[float], expected: Sequence[float]) -> float:
    """P-value of chi-square, with the classes expected less than ten times taken together."""
    seen, law = np.array(observed, np.float64), np.array(expected, np.float64)
    rare = law < _RARE
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        law = np.append(law[~rare], law[rare].sum())
    if len(law) < 2:
        return 1.0
    law = np.maximum(law * (seen.sum() / law.sum()), 1e-9)
    return float(stats.chisquare(seen, law).pvalue)


class Law(ABC):
    """The law of a release of one table."""

    @abstractmethod
    def divergence(self, other: Any, epsilon: float) -> float:
        """The hockey-stick divergence from another table's law, sum of (P - e^epsilon Q)+."""

    @abstractmethod
    def p_value(self, drawn: Sequence[Outcome]) -> float:
        """Of releases against this law."""

    def outcome(self, raw: Any) -> Outcome:
        """What the law is of, out of a release."""
        return counts_of(raw)


@dataclass(frozen=True)
class FiniteLaw(Law):
    """Probabilities of all outcomes."""

    masses: Mapping[Outcome, float]

    def divergence(self, other: FiniteLaw, epsilon: float) -> float:
        return float(hockey_stick(self.masses, other.masses, math.exp(epsilon)))

    def p_value(self, drawn: Sequence[Outcome]) -> float:
        seen = Counter(drawn)
        if set(seen) - {z for z, p in self.masses.items() if p > 0}:
            return 0.0
        return goodness(
            [seen[z] for z in self.masses], [len(drawn) * p for p in self.masses.values()]
        )

    @classmethod
    def of_weights(cls, weights: Mapping[Outcome, float]) -> FiniteLaw:
        """Of masses in proportion to the weights."""
        total = math.fsum(weights.values())
        return cls({z: weight / total for z, weight in weights.items()})


class EstimateLaw(FiniteLaw):
    """The same of the numbers of an estimate."""

    def outcome(self, raw: Any) -> Outcome:
        return tuple(number for numbers in raw.numbers.values() for number in numbers)


@dataclass(frozen=True)
class NoiseLaw(Law):
    """Integers with independent noise of one law.

    Attributes:
        centre: Without the noise.
        noise: Probabilities of -r..r; what is beyond is negligible.
    """

    centre: Table
    noise: tuple[float, ...]

    def divergence(self, other: NoiseLaw, epsilon: float) -> float:
        # Coordinates that do not move have the same factor in both laws, and cancel.
        shifts = [abs(b - a) for a, b in zip(self.centre, other.centre, strict=True) if a != b]
        return _of_shifts(self.noise, other.noise, tuple(sorted(shifts)), epsilon)

    def p_value(self, drawn: Sequence[Outcome]) -> float:
        """Of the noise of all numbers, and of the signs of each release's together."""
        noise = np.array(drawn) - np.array(self.centre)
        reach, mass = len(self.noise) // 2, np.array(self.noise)
        if np.abs(noise).max() > reach:
            return 0.0
        size = np.bincount(noise.ravel() + reach, minlength=2 * reach + 1)
        alone = goodness(size, noise.size * mass)
        signs = np.array([mass[:reach].sum(), mass[reach], mass[reach + 1 :].sum()])
        joint = functools.reduce(np.multiply.outer, [signs] * len(self.centre)).ravel()
        place = np.zeros(len(noise), np.int64)
        for column in noise.T:
            place = 3 * place + np.sign(column) + 1
        together = goodness(np.bincount(place, minlength=len(joint)), len(noise) * joint)
        return min(1.0, 2 * min(alone, together))


@functools.cache
def _of_shifts(
    noise: tuple[float, ...], others: tuple[float, ...], shifts: Table, epsilon: float
) -> float:
    first, second = np.ones(1), np.ones(1)
    p, q = np.array(noise), np.array(others)
    for shift in shifts:
        moved = np.zeros_like(q)
        moved[shift:] = q[:-shift]
        first, second = _merged(np.multiply.outer(first, p), np.multiply.outer(second, moved))
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def _merged(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Masses of outcomes of the same likelihood ratio taken together, which tell no less.

    Ratios are rounded; taking outcomes together can only lower a divergence.
    """
    p, q = first.ravel(), second.ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.round(np.log(p) - np.log(q), 9)
    _, place = np.unique(ratio, return_inverse=True)
    return np.bincount(place, weights=p), np.bincount(place, weights=q)


def laplace_noise(scale: Fraction) -> tuple[float, ...]:
    """Probabilities in proportion to exp(-|z|/scale), by the definition."""
    reach = math.ceil(-float(scale) * math.log(_TAIL))
    return _normalised(np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(scale)))


def gaussian_noise(scale: Fraction) -> tuple[float, ...]:
    """Probabilities in proportion to exp(-z^2 / (2 scale^2)), by the definition."""
    reach = math.ceil(float(scale) * math.sqrt(-2 * math.log(_TAIL)))
    return _normalised(np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(scale) ** 2)))


def _normalised(weights: Floats) -> tuple[float, ...]:
    return tuple((weights / weights.sum()).tolist())


def draws_law(shares: Sequence[Fraction], records: int) -> FiniteLaw:
    """Counts of records drawn independently from the shares."""
    return FiniteLaw(
        {
            z: orders(z) * math.prod(float(p) ** x for p, x in zip(shares, z, strict=True))
            for z in tables(records, len(shares))
        }
    )


@dataclass(frozen=True)
class Noise:
    """Noise on numbers, in fixed data.

    Attributes:
        sd: Standard deviation of each group of numbers.
        laplace: Whether it is Laplace noise, else Gaussian.
        reason: Why the law of a release is not enumerated.
    """

    sd: Mapping[str, float]
    reason: str
    laplace: bool = False

    def numbers(self, raw: Any) -> dict[str, Floats]:
        """The released numbers float64[k] by group."""
        if hasattr(raw, "numbers"):
            found: Mapping[str, Any] = raw.numbers
        elif hasattr(raw, "one_way"):
            found = {f"column_{i}": table.counts for i, table in enumerate(raw.one_way)}
        elif hasattr(raw, "geography"):
            found = {f"table_{i}": each / GRID for i, each in enumerate(raw.values)}
        else:
            found = {"counts": raw.counts}
        return {name: np.ravel(np.array(each, np.float64)) for name, each in found.items()}

    def scaled(self, drawn: Sequence[Any]) -> dict[str, Floats]:
        """The noise float64[releases, k] of each group in standard deviations.

        It is taken about the mean of the releases, which hardly moves the law of many.
        """
        groups: dict[str, list[Floats]] = {}
        for raw in drawn:
            for name, numbers in self.numbers(raw).items():
                groups.setdefault(name, []).append(numbers)
        rows = {name: np.array(each) for name, each in groups.items()}
        return {name: (each - each.mean(axis=0)) / self.sd[name] for name, each in rows.items()}

    def p_value(self, drawn: Sequence[Any]) -> float:
        """Of releases of a table that resampling leaves as it is."""
        found = self.scaled(drawn)
        assert set(found) == set(self.sd)
        law = stats.laplace(scale=math.sqrt(0.5)) if self.laplace else stats.norm()
        values = [float(stats.kstest(each.ravel(), law.cdf).pvalue) for each in found.values()]
        values.append(independence(np.hstack(list(found.values()))))
        return min(1.0, len(values) * min(values))


def independence(noise: Floats) -> float:
    """P-value of "neighbouring numbers of a release are not correlated", in deviations."""
    products = noise[:, 1:] * noise[:, :-1]
    if not products.size:
        return 1.0
    return float(2 * stats.norm.sf(abs(products.sum()) / math.sqrt(products.size)))
