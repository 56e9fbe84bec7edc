"""Exponential mechanism of the Kolmogorov-Smirnov distance: records near in distribution.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), sections 5 and 6; McSherry and
Talwar (2007); see mechanisms/README.md, section 4.

**Exponential records** (``ExponentialRecords``). Released are the counts z of k records, with
probability proportional to base(z) exp(-e u(h, z)/2), where u moves by at most c if c records of
the data do and the base knows no data.

*Privacy.* Adjacency replace-one: with e = ``epsilon_per_record`` the log-ratio of the laws at z
is e (u(h', z) - u(h, z))/2 plus a constant, and a unit of c records moves u by c at most, up or
down. So its range is at most c e, the epsilon at delta 0, and it is charged as the worst of all
such (``BoundedRangeLoss``). Whatever else is fixed (k, distance, candidates) changes only the
utility; candidates that are drawn without the data mix releases of that range.

*Estimates* of the true counts are n z/k. They are biased towards the base, by an amount
that depends on the data. No closed form of their error is known: as a standard error is
given the multinomial one of k iid draws at Laplace's rule (z + 1)/(k + 2), which has
neither the bias nor what the choice between datasets adds or saves.

**The Kolmogorov-Smirnov distance** on s ordered cells (section 5.1). From counts h of n records,
with cumulative counts H, released are the counts z of k records, with cumulative counts Z, with
probability proportional to

    base(z) exp(-rate u(z)),  base(z) = k!/(z_1! ... z_s!),
    u(z) = ceil(n max_j |H_j/n - Z_j/k|),  rate = epsilon/(2c),

the exponential mechanism whose base measure is k iid uniform cells. A neighbour differs in the c
records of a unit, so every H_j moves by at most c, and so does n times the distance, by the
triangle inequality. If x <= y + c with c an integer, then ceil(x) <= ceil(y) + c: u has
sensitivity c, and the release is epsilon-DP for every k (McSherry and Talwar; Theorem 5). Cells
count in their declared order, ``other`` and ``missing`` last; of categories without an order the
distance is as private and says little.

**Sampling.** Let W(r) be the sum of base(z) over {z : u(z) <= r}, which is the *band*
|n Z_j - k H_j| <= r k for all j. Draw a radius r = 0, 1, ... with probability
proportional to W(r) exp(-rate r), then z from the base measure within band r. A given z
then has a probability proportional to

    sum over r >= u(z) of W(r) e^(-rate r) base(z)/W(r) = base(z) e^(-rate u(z))/(1 - e^-rate),

which is the law above: the differences W(r) - W(r-1) are never formed.

* *Band.* With F_j(Z) the sum of 1/(z_1! ... z_j!) over the paths that stay in the band
  up to cell j and end at Z, the polynomial F_j is F_(j-1) times the sum of x^z/z!, cut
  to the band; W(r) = k! F_s(k). A path is drawn backwards: given Z_j, the cumulative
  count before it has weight F_(j-1)(Z_(j-1))/z_j!.
* *Radius.* W is monotone, so its values at a few radii bound all others. A radius is
  proposed from the upper bounds and accepted with probability W(r)/bound; a rejected
  radius joins the few. Given acceptance, the law is that of W(r) exp(-rate r) whatever
  the bounds were: they need to be valid, not good.

**Arithmetic.** All sums are of non-negative terms in balls, and every choice is by
``choose_real`` (mechanisms.sampling.randomness), so each outcome is that of arithmetic without
error. Epsilon needs no addition for rounding; floats choose only which
radii to look at. The time taken depends on the data, and grows with the square of the
width r k/n of the bands that matter: k is meant to be well below n.

**Records.** By default n^(2/3) (Theorem 15), at most 10^5 over the number of cells s. The
time depends on the data and on epsilon: some milliseconds, and up to half a minute at
s k = 10^5 where epsilon n is so small that the release knows next to nothing. A given k
may go up to 10^5 and s k = 10^6, where such a case takes many minutes.

**Error.** Within a band of radius x of the data's distribution function lie k uniform
draws with log probability about -pi^2/(8 k x^2), if the data are near uniform (the small
ball of a Brownian bridge; the paper's section 5). The release's radius is about the x
that makes pi^2/(8 k x^2) + e n x/2 least, x = (pi^2/(2 k e n))^(1/3), and not above the
sampling error of k records. Data far from uniform add a bias that no public quantity tells;
it is small where k is well below e n.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from flint import arb, arb_poly, ctx

from statpress.mechanisms.accounting.losses import BoundedRangeLoss, PrivacyLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import BudgetValueError, ConfigError, RecordsError
from statpress.mechanisms.mechanism import (
    CESAR_ROGERS,
    MCSHERRY_TALWAR,
    PROOF,
    WASSERMAN_ZHOU,
    Citation,
    Target,
    check_frame,
)
from statpress.mechanisms.postprocessing.covariance import Covariance, DebiasedTable, OtherErrors
from statpress.mechanisms.sampling.randomness import (
    WORD,
    Progress,
    Randomness,
    choose_real,
    decay,
    rate_of,
)
from statpress.mechanisms.tables.count_tables import DrawnRecords
from statpress.mechanisms.tables.expected import BRIDGE, ExpectedCounts


def sample_ks(
    counts: Codes,
    records: int,
    epsilon: Fraction | float,
    rng: np.random.Generator,
) -> Codes:
    """One release of the exponential mechanism of the KS distance."""
    rate = rate_of(epsilon, 1)
    if records < 1 or np.any(counts < 0) or not counts.any():
        raise ValueError("needs counts >= 0, one of them above 0, and records >= 1")
    cumulative = [int(height) for height in np.cumsum(counts)]
    radius = Radii(cumulative, records, rate).draw(rng)
    return Band(cumulative, records, radius).draw(rng)


class Band:
    """Datasets z of k records with u(z) <= radius.

    Args:
        cumulative: Cumulative counts H_1..H_s of the private data, the last being n >= 1.
        records: Number of records k >= 1.
        radius: The integer r >= 0.
    """

    def __init__(self, cumulative: Sequence[int], records: int, radius: int) -> None:
        n, k = cumulative[-1], records
        # Lowest and highest Z_j, for j = 0..s; Z never falls, and ends at k.
        self.low, self.high = [0], [0]
        for height in cumulative[:-1]:
            self.low.append(max(0, -(k * (radius - height) // n)))
            self.high.append(min(k, k * (height + radius) // n))
        self.low.append(k)
        self.high.append(k)
        self._rows: dict[int, list[arb_poly]] = {}

    def rows(self) -> list[arb_poly]:
        """F_0..F_s from the lowest Z_j on, at the precision of the moment."""
        if ctx.prec not in self._rows:
            rows = [arb_poly([1])]
            for j in range(1, len(self.low)):
                if self.low[j] > self.high[j]:
                    rows += [arb_poly([])] * (len(self.low) - j)
                    break
                weights = _inverse_factorials(self.high[j] - self.low[j - 1] + 1)
                product = (rows[-1] * weights).right_shift(self.low[j] - self.low[j - 1])
                rows.append(product.truncate(self.high[j] - self.low[j] + 1))
            self._rows[ctx.prec] = rows
        return self._rows[ctx.prec]

    def size(self) -> arb:
        """Enclosure of W(r)/k!."""
        return arb(self.rows()[-1][0])

    def backward(self, j: int, height: int) -> list[arb]:
        """Weights of the values of Z_(j-1) from the lowest on, given Z_j = height."""
        row, span = self.rows()[j - 1].coeffs(), height - self.low[j - 1]
        inverse = _inverse_factorials(span + 1)
        return [row[i] * inverse[span - i] for i in range(min(len(row), span + 1))]

    def draw(self, rng: np.random.Generator) -> Codes:
        """int64[s], counts drawn from the base measure within a non-empty band."""
        height = self.high[-1]
        counts = np.zeros(len(self.low) - 1, dtype=np.int64)
        for j in range(len(counts), 0, -1):

            def weights(j: int = j, height: int = height) -> list[arb]:
                return self.backward(j, height)

            before = self.low[j - 1] + choose_real(weights, rng)
            counts[j - 1], height = height - before, before
        return counts


class Radii:
    """The law of the radius, with bounds on W from its values at some radii, the knots.

    Piece i holds the radii above knot i up to knot i + 1, where W is bounded by its value
    at knot i + 1; the last piece holds all above, where W/k! is at most s^k/k!.
    """

    def __init__(self, cumulative: Sequence[int], records: int, rate: Fraction) -> None:
        self.cumulative, self.records, self.rate = cumulative, records, rate
        self.knots = [-1]
        self._sizes: dict[tuple[int, int], arb] = {}  # by radius and precision

    def size(self, radius: int | None) -> arb:
        """Enclosure of W(radius)/k!; None is infinity."""
        if radius is None or radius >= self.cumulative[-1]:
            return arb(len(self.cumulative)) ** self.records / arb.fac_ui(self.records)
        if radius < 0:
            return arb(0)
        if (radius, ctx.prec) not in self._sizes:
            band = Band(self.cumulative, self.records, radius)
            self._sizes[radius, ctx.prec] = band.size()
        return self._sizes[radius, ctx.prec]

    def pieces(self) -> list[tuple[int, int | None]]:
        """Knots below and at the end of each piece; None is infinity."""
        return list(zip(self.knots, (*self.knots[1:], None), strict=True))

    def masses(self) -> list[arb]:
        """Bound times the sum of exp(-rate r), per piece, all scaled alike."""
        return [
            self.size(b) * (decay(self.rate, a) - decay(self.rate, b)) for a, b in self.pieces()
        ]

    def add(self, radius: int) -> None:
        self.knots.insert(bisect_left(self.knots, radius), radius)

    def sharpen(self) -> None:
        """Add knots until half of the proposals, by the lower bounds, are accepted."""
        n, rate = self.cumulative[-1], float(self.rate)
        while True:
            pieces = self.pieces()
            with ctx.workprec(2 * WORD):  # of choose_real, which will need the same rows
                sizes = [_log(self.size(a)) for a in (*self.knots, None)]
            lengths = [-rate * a + _log_below_1(rate, a, b) for a, b in pieces]
            high = [length + size for length, size in zip(lengths, sizes[1:], strict=True)]
            scale = max(high)
            gaps = [0.0] * len(pieces)
            for i, (a, b) in enumerate(pieces):
                if a < n and a + 1 != b:
                    low = lengths[i] + sizes[i]
                    gaps[i] = math.exp(high[i] - scale) - math.exp(low - scale)
            worst = max(range(len(pieces)), key=gaps.__getitem__)
            mass = math.fsum(math.exp(height - scale) for height in high)
            if 2 * math.fsum(gaps) <= mass or gaps[worst] <= 0:
                return
            a, b = pieces[worst]
            self.add(max(-(-n // (2 * self.records)), 2 * a) if b is None else (a + b) // 2)

    def draw(self, rng: np.random.Generator) -> int:
        """A radius with probability proportional to W(r) exp(-rate r), n for any r >= n."""
        self.sharpen()
        while True:
            radius, end = self._propose(rng)
            if radius == end or self._accept(radius, end, rng):
                return radius
            self.add(radius)

    def _accept(self, radius: int, end: int | None, rng: np.random.Generator) -> bool:
        """True with probability W(radius)/W(end)."""

        def ways() -> list[arb]:
            return [self.size(radius), self.size(end) - self.size(radius)]

        return choose_real(ways, rng) == 0

    def _propose(self, rng: np.random.Generator) -> tuple[int, int | None]:
        """A radius with probability proportional to bound times exp(-rate r), and its bound.

        The bound is W at the second integer, infinity if that is None.
        """
        a, end = self.pieces()[choose_real(self.masses, rng)]
        b, n = end, self.cumulative[-1]
        while (b is None or b - a > 1) and a < n:
            m = max(2 * a, 1) if b is None else (a + b) // 2

            def halves(a: int = a, m: int = m, b: int | None = b) -> list[arb]:
                at_m = decay(self.rate, m - a)
                return [1 - at_m, at_m - decay(self.rate, None if b is None else b - a)]

            a, b = (m, b) if choose_real(halves, rng) else (a, m)
        return (n, n) if a >= n or b is None else (b, end)


def _inverse_factorials(length: int) -> arb_poly:
    """The sum of x^z/z! over z < length, at the precision of the moment."""
    return _exponential_series(length.bit_length(), ctx.prec).truncate(length)


@lru_cache(maxsize=64)
def _exponential_series(magnitude: int, bits: int) -> arb_poly:
    """The first 2**magnitude terms of exp(x), in balls of so many bits."""
    with ctx.workprec(bits):
        terms = [arb(1)]
        for z in range(1, 1 << magnitude):
            terms.append(terms[-1] / z)
        return arb_poly(terms)


def _log(value: arb) -> float:
    """About the logarithm, where nothing depends on it but the time taken."""
    return float(value.log().mid()) if value > 0 else -math.inf


def _log_below_1(rate: float, a: int, b: int | None) -> float:
    """About log(1 - exp(-rate (b - a)))."""
    return 0.0 if b is None else math.log(max(-math.expm1(-rate * (b - a)), 5e-324))


MOST_RECORDS = 10**9
_LEAST_EPSILON, _MOST_EPSILON, _MOST_DIGITS = Decimal("1e-9"), Decimal(10**6), 30


@dataclass(frozen=True, kw_only=True)
class ExponentialRecords(DrawnRecords):
    """Records chosen with probability by a utility, at fixed parameters.

    Attributes:
        epsilon_per_record: What a unit costs per record, from 1e-9 to 1e6.
        records: k, the records of a release.
    """

    pure: ClassVar[bool] = True
    unbiased: ClassVar[bool] = False

    epsilon_per_record: Decimal
    records: int

    def __post_init__(self) -> None:
        epsilon = self.epsilon_per_record
        if not (epsilon.is_finite() and _LEAST_EPSILON <= epsilon <= _MOST_EPSILON):
            raise BudgetValueError("The epsilon of a record must be between 1e-9 and 1e6.")
        if len(epsilon.as_tuple().digits) > _MOST_DIGITS:
            raise BudgetValueError("The epsilon of a record has more than 30 digits.")
        check_records(self.records)

    @property
    def epsilon(self) -> Fraction:
        """``epsilon_per_record`` as an exact fraction."""
        return Fraction(self.epsilon_per_record)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the release; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        if n_cells == 1:  # every dataset of this size is the same table
            return BoundedRangeLoss(Fraction(0))
        return BoundedRangeLoss(self.epsilon * unit_records)

    def postprocess(self, release: ContingencyTable, *, n_records: int) -> DebiasedTable:
        """Biased estimates of the true counts, see the module's text."""
        k = self.records
        shares = (release.counts + 1) / (k + 2)
        return DebiasedTable(
            domain=release.domain,
            cells=release.cells,
            estimates=n_records * (release.counts / k),
            standard_errors=n_records * np.sqrt(shares * (1 - shares) / k),
            undrawn_estimate=0.0,
            undrawn_standard_error=n_records * math.sqrt((k + 1) / k) / (k + 2),
        )

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """Not known: the records are chosen together."""
        return OtherErrors(
            "The records are chosen together, and the bias of their counts is not known."
        )

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error of k records, from public quantities only: a guide, not a bound."""
        return ExpectedCounts.of_records(self.records, n_records=n_records, n_cells=n_cells)


def check_records(records: int, where: str = "") -> None:
    """Refuse a number of records that is not from 1 to a thousand million."""
    if not 1 <= records <= MOST_RECORDS:
        raise RecordsError("The number of records must be between 1 and 1e9.", where=where)


def grid_shape(domain: Domain) -> tuple[int, ...]:
    """Number of codes of each column."""
    return tuple(column.size for column in domain.columns)


def dense_counts(table: ContingencyTable) -> Codes:
    """int64[s], the counts of all combinations of codes, occupied or not."""
    counts = np.zeros(math.prod(grid_shape(table.domain)), dtype=np.int64)
    counts[table.cells] = table.counts
    return counts


def sparse_table(domain: Domain, counts: Codes | Sequence[int]) -> ContingencyTable:
    """The table of counts int64[s] of all combinations of codes."""
    counts = np.asarray(counts, dtype=np.int64)
    cells = np.flatnonzero(counts)
    return ContingencyTable(domain, cells, counts[cells])


MOST_CELLS = 100_000
_MOST_STEPS, _MOST_GIVEN_STEPS = 10**5, 10**6
_INSTEAD = (
    "Give one column and fewer cells, or use 'sample_resample', 'smoothed_histogram' or"
    " 'bootstrap', which serve several columns."
)


@dataclass(frozen=True, kw_only=True)
class ExponentialKSKnobs:
    """What a config may say about this mechanism.

    Attributes:
        records: Records to release, k; by default n^(2/3), bounded as the module says.
    """

    records: int | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            check_records(self.records, "records")


@dataclass(frozen=True, kw_only=True)
class ExponentialKS(ExponentialRecords):
    """The mechanism at fixed parameters."""

    name: ClassVar[str] = "exponential_ks"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorem 5, section 5.1"),
        MCSHERRY_TALWAR,
        CESAR_ROGERS,
        PROOF.at("Theorems 4.1 and 4.2"),
    )
    knobs: ClassVar[type] = ExponentialKSKnobs

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> ContingencyTable:
        """Draw the records, held as counts per drawn cell."""
        drawn = sample_ks(dense_counts(table), self.records, self.epsilon, rng)
        if progress is not None:
            progress(self.records)
        return sparse_table(table.domain, drawn)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error, with the distance of the module's text; a guide, not a bound."""
        error = super().expected_error(n_records=n_records, n_cells=n_cells)
        energy = self.records * float(self.epsilon) * n_records
        radius = (math.pi**2 / (2 * energy)) ** (1 / 3)
        distance = min(radius, BRIDGE / math.sqrt(self.records), 1.0)
        return replace(error, kolmogorov_smirnov=distance)

    @classmethod
    def calibrate(cls, knobs: ExponentialKSKnobs, target: Target) -> Self:
        """The largest epsilon that the target allows.

        Raises:
            ConfigError: The product has several columns or too many cells, or there are
                too many records for it.
            InfeasibleBudgetError: The budget is next to nothing.
        """
        (cells,) = target.grid(cls.name, columns=1, instead=_INSTEAD)
        if cells > MOST_CELLS:
            raise ConfigError(
                f"The mechanism '{cls.name}' serves at most {MOST_CELLS:,} cells; "
                f"{cells:,} are too many.",
                next_step=_INSTEAD,
            )
        rate = max(1, round(target.n_records ** (2 / 3)))
        records = knobs.records or min(rate, max(1, _MOST_STEPS // cells))
        most = min(_MOST_GIVEN_STEPS // cells, _MOST_STEPS)
        if records > most:
            raise RecordsError(
                f"'{cls.name}' can draw at most {most:,} records over {cells:,} cells.",
                next_step=f"Give at most {most:,} records, or leave them out.",
            )
        return cls(epsilon_per_record=target.pure_epsilon(BoundedRangeLoss), records=records)
