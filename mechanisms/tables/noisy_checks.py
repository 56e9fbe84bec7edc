"""The counts that the checks of the input compare, with noise: refusals inside the guarantee.

An exact check is an exact answer to a question about the records. Here each count that a check
compares with what its config allows gets discrete Gaussian noise, which the budget pays for before
the source is opened; a run is refused where a noisy count is above what is allowed by more than a
margin. Everything a check decides is then a post-processing of a mechanism.

**Loss.** A value is missing, outside, unreadable or none of these. A unit of c records that is
replaced moves the counts of one column's fates: some fall, by at most c in all, others rise, by at
most c in all; where one fate of the column is limited, one count moves by at most c. The count of
records in a structural zero moves by at most c. As for noisy tables (mechanisms.tables.perturbed)
one cell that moves by c dominates several whose moves add up to c. So m cells that move by c each
dominate the release, m the sum over the columns of the smaller of 2 and their limited fates, 1 more
for structural zeros and 1 for each count of keys; all of them can move by so much. The records of a
unit that are counted are those that are kept of it, c at most. A unit that is added moves one fate
of every column at most, in place of 2. The number of records is then private, and what is allowed
is a share of the one that the config declares for planning.

Of linked tables, faults of keys are counted by households: keys that several households have,
households without one, with two persons of one key, or missing of persons that name them. All rows
of one key are one unit, so each of these counts moves by at most 1.

Where the noise is so small beside the number of cells that the exact loss takes long, what its
rho = m c^2 / (2 scale^2) proves is charged (Canonne, Kamath and Steinke 2020, arXiv 2004.00010,
Theorem 4).

**Margin.** A source that holds exactly what is allowed is refused at most once in a million runs:
with k counts, each is above its own by more than z(1 - 1e-6/k) standard deviations so rarely; for
what is refused stays charged. One that is off by the margin itself passes half the time.

Adjacency: replace-one, or add-remove. Units: records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import ConcentratedLoss, PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.mechanism import (
    CANONNE_KAMATH_STEINKE,
    PROOF,
    Citation,
    Kind,
    Needs,
    Target,
    check_frame,
)
from statpress.mechanisms.sampling.randomness import Progress, Randomness
from statpress.mechanisms.tables.perturbed import check_scale, scale_for

MOST_REFUSED = 1e-6
"""How often a source that holds exactly what is allowed is refused, at most."""
_QUICK = 8  # cells of which the exact loss is quick whatever their noise
_ALIKE = 16  # times the number of pairs of cells, from which the variance makes it quick


@dataclass(frozen=True, kw_only=True)
class NoisyChecksKnobs:
    """What is compared.

    Attributes:
        counts: Number of counts, k.
        moved: Counts that one record moves, m.
    """

    counts: int
    moved: int

    @classmethod
    def of(cls, fates: Iterable[int], *, zeros: bool, adjacency: Adjacency, keys: int = 0) -> Self:
        """What is compared, by the module's text.

        Args:
            fates: Of each column the number of its fates that are limited.
            zeros: Whether records in a structural zero are counted.
            adjacency: The neighbouring relation.
            keys: Counts of households whose keys are at fault.
        """
        numbers = list(fates)
        moved = sum(min(adjacency.moved, number) for number in numbers) + zeros + keys
        return cls(counts=sum(numbers) + zeros + keys, moved=moved)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What the checks will let pass, from public quantities only.

    Attributes:
        sd: Standard deviation of the noise of a count, in records; at most.
        margin: Records above what is allowed, up to which a count passes.
        counts: Number of counts.
    """

    sd: float
    margin: int
    counts: int

    def deciding(self, criterion: str) -> float:
        del criterion
        return float(self.margin)

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "noise of a count", f"{self.sd:,.3g} records"
        yield "passes above what is allowed", f"up to {self.margin:,} records, with noise"

    def summary(self) -> str:
        """The most important figures in one line."""
        return (
            f"noise of {self.sd:,.3g} records in each of {self.counts:,} counts; a count passes up"
            f" to {self.margin:,} records above what is allowed, and half the time at that"
        )


class ChecksKind(Kind):
    """Checks of the input: nothing is published of them but that they passed."""

    name = "checks"
    left_open: type = NoisyChecksKnobs
    may_omit = False
    criteria: Mapping[str, str] = MappingProxyType({})
    compared: Mapping[str, str] = MappingProxyType({})

    def draws(self, mechanism: Any, n_cells: int) -> int:
        del n_cells
        return int(mechanism.counts)


CHECKS = ChecksKind()


@dataclass(frozen=True)
class NoisyChecks:
    """Discrete Gaussian noise on every count that a check compares.

    Attributes:
        scale: Of the noise, a fraction that is exactly a double.
        counts: As in the knobs.
        moved: As in the knobs.
    """

    name: ClassVar[str] = "noisy_checks"
    citations: ClassVar[tuple[Citation, ...]] = (
        CANONNE_KAMATH_STEINKE.at("Theorem 4"),
        PROOF.at("Theorem 3.4"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = ()
    knobs: ClassVar[type] = NoisyChecksKnobs
    pure: ClassVar[bool] = False
    needs: ClassVar[Needs] = "columns"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = tuple(Adjacency)

    scale: Fraction
    counts: int
    moved: int

    def __post_init__(self) -> None:
        check_scale(self.scale)
        if not 1 <= self.moved <= self.counts:
            raise RecordsError("The counts that a record moves are not among those compared.")

    @classmethod
    def calibrate(cls, knobs: NoisyChecksKnobs, target: Target) -> Self:
        """The smallest scale, within a thousandth, that meets the target.

        Raises:
            InfeasibleBudgetError: None does.
        """
        few = replace(target, n_cells=1)  # the size of the domain decides nothing here

        def loss(scale: Fraction) -> PrivacyLoss:
            return cls(scale, knobs.counts, knobs.moved).loss(**few.frame)

        return cls(scale_for(None, few, loss), knobs.counts, knobs.moved)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        square, moved = self.scale**2, self.moved
        if moved <= _QUICK or square >= _ALIKE * moved * (moved - 1):
            return DiscreteGaussianLoss(square, unit_records, moved)
        attained = DiscreteGaussianLoss(square, unit_records, _QUICK)
        return ConcentratedLoss(moved * unit_records**2 / (2 * square), attained)

    @property
    def margin(self) -> int:
        """Records above what is allowed, up to which a noisy count passes."""
        return math.ceil(NormalDist().inv_cdf(1 - MOST_REFUSED / self.counts) * float(self.scale))

    def release(
        self, table: NDArray[np.int64], rng: Randomness, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """Noisy counts int64[counts], which may be negative, of the exact ones, which are private.

        Raises:
            ValueError: They are not as many as were planned for.
        """
        del progress
        if table.shape != (self.counts,):
            raise ValueError("there are not as many counts as the noise was planned for")
        return table + rng.discrete_gaussian(self.scale, self.counts)

    def expected_error(self, *, n_records: int, n_cells: int) -> Tolerance:
        """From public quantities only."""
        del n_records, n_cells
        return Tolerance(sd=float(self.scale), margin=self.margin, counts=self.counts)

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild the loss."""
        return {
            "mechanism": self.name,
            "scale": str(self.scale),
            "counts": self.counts,
            "moved": self.moved,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        return cls(
            Fraction(str(description["scale"])),
            int(str(description["counts"])),
            int(str(description["moved"])),
        )
