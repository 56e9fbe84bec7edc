"""Bootstrapping mechanism: records drawn from the smoothed empirical distribution.

Source: "Delving into Bootstrapping for Differential Privacy", section 5.1, with an integer
pseudocount; for any positive one it is the smoothed histogram of Wasserman and Zhou (2010, doi
10.1198/jasa.2009.tm08651), Theorem 8. Released are m iid draws from p_j = (h_j + pseudocount)/N, N
= n + pseudocount |domain|. Structural zeros are no part of the domain: the accountant takes it as
public that all n records lie in possible cells, in a table and in its neighbours, and no
pseudocount goes to the others.

Adjacency: replace-one. If a unit holds c records, a neighbour differs in c
records, and one draw has the dominating pair

    P = ((c + k)/N, k/N, rest),  Q = (k/N, (c + k)/N, rest),  k = pseudocount

(mechanisms/README.md, Theorem 2.1: the draw is a post-processing of this pair, and for three or
more cells and c = 1 the pair is attained). The loss of m draws therefore lies on
a lattice, and ``mechanisms.accounting.draws`` computes it exactly.

**Sampling.** No floating point decides an output's probability: every draw is an integer, uniform
by rejection, and nothing of the size of the domain is stored (mechanisms/README.md, section 2).

**The paper's own calibration** (Theorem 2, Corollary 3), for comparison. Theorem 2 asks, for some
gamma in (0, 1), that L <= m <= U with

    L = 2/gamma^2 log(2/delta),  U = epsilon / ((1/N + 2 gamma) log((k + 1)/k)).

It is a sufficient condition only: the true cost of its parameters, by the exact
accountant, is far lower, and that is what is charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable, sum_by_cell
from statpress.mechanisms.domain.domain import LISTED, Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.mechanism import (
    DELVING,
    PROOF,
    WASSERMAN_ZHOU,
    Citation,
    Target,
    check_frame,
)
from statpress.mechanisms.postprocessing.covariance import (
    Covariance,
    DebiasedTable,
    MultinomialErrors,
)
from statpress.mechanisms.sampling.randomness import Evidence
from statpress.mechanisms.sampling.record_sampler import below
from statpress.mechanisms.tables.bands import BandLaw
from statpress.mechanisms.tables.count_tables import DrawnRecords
from statpress.mechanisms.tables.expected import ExpectedCounts

if TYPE_CHECKING:
    from statpress.mechanisms.sampling.randomness import Progress


_GAMMAS = tuple(10.0**-i for i in range(1, 13))


def corollary_3(
    gamma: float, epsilon: float, delta: float, *, n_records: int, n_cells: int
) -> tuple[int, int]:
    """Pseudocount and records of the recipe below Corollary 3 at a given gamma.

    The pseudocount is the positive root k0 of the corollary's quadratic, rounded
    up (at least 2, as the theorem asks), and the records are floor(U).
    """
    least = 2 / gamma**2 * (math.log(2) - math.log(delta))
    a2 = epsilon * n_cells
    a1 = epsilon * n_records - 2 * n_cells * gamma * least
    a0 = -(2 * n_records * gamma + 1) * least
    root = math.sqrt(a1 * a1 - 4 * a2 * a0)
    k0 = (root - a1) / (2 * a2) if a1 <= 0 else 2 * -a0 / (root + a1)
    k = max(2, math.ceil(k0))
    return k, _most(k, gamma, epsilon, n_records=n_records, n_cells=n_cells)


def theorem_2_records(
    pseudocount: float, epsilon: float, delta: float, *, n_records: int, n_cells: int
) -> int:
    """Most records that Theorem 2 allows at a given pseudocount >= 2; 0 if none.

    U falls in gamma, so the best gamma is the least at which L <= U, the positive
    root of epsilon gamma^2 - 2 a gamma - a/N with a = 2 log(2/delta) log((k+1)/k).
    """
    if pseudocount < 2:
        return 0
    total = n_records + pseudocount * n_cells
    a = 2 * (math.log(2) - math.log(delta)) * math.log1p(1 / pseudocount)
    gamma = (a + math.sqrt(a * a + epsilon * a / total)) / epsilon
    if gamma >= 1:
        return 0
    return _most(pseudocount, gamma, epsilon, n_records=n_records, n_cells=n_cells)


def paper_parameters(
    epsilon: float,
    delta: float,
    pseudocount: Fraction | None = None,
    *,
    n_records: int,
    n_cells: int,
    unit_records: int = 1,
) -> tuple[Fraction, int]:
    """Pseudocount and records by the paper.

    Without a pseudocount, Corollary 3 at the largest power of ten for gamma whose
    sampling variance (N/n)^2/m is within 1 % of its limit. (The variance falls as
    gamma falls and has no minimum: it tends to a limit while k and m grow.)
    """
    if unit_records != 1:
        raise InfeasibleBudgetError("The paper's calibration covers one record per unit.")
    if delta <= 0:
        raise InfeasibleBudgetError("The paper's calibration needs delta > 0.")
    if pseudocount is not None:
        m = theorem_2_records(
            float(pseudocount), epsilon, delta, n_records=n_records, n_cells=n_cells
        )
        if m < 1:
            raise InfeasibleBudgetError(
                "Theorem 2 of the paper allows no record at this pseudocount.",
                next_step="Raise the pseudocount or use 'calibration: exact'.",
            )
        return pseudocount, m
    candidates = [
        corollary_3(gamma, epsilon, delta, n_records=n_records, n_cells=n_cells)
        for gamma in _GAMMAS
    ]
    variances = [(1 + k * n_cells / n_records) ** 2 / max(m, 1) for k, m in candidates]
    k, m = next(
        pair
        for pair, variance in zip(candidates, variances, strict=True)
        if variance <= 1.01 * variances[-1]
    )
    return Fraction(k), m


def _most(k: float, gamma: float, epsilon: float, *, n_records: int, n_cells: int) -> int:
    """floor(U) of Theorem 2."""
    share = 1 / (n_records + k * n_cells) + 2 * gamma
    return math.floor(epsilon / (share * math.log1p(1 / k)))


Amount = int | str | Fraction | Decimal | float
_MOST_RECORDS = 10**15
_LARGEST_PSEUDOCOUNT = 10**15  # also the finest, 1/10**15: the accountant is tight between


@dataclass(frozen=True, kw_only=True)
class BootstrapKnobs:
    """What a config may say about this mechanism.

    Attributes:
        pseudocount: Fictitious records added to every cell, a positive number or
            a fraction such as 1/3; by default the smallest that meets the budget.
        records: Number of records drawn: a number, ``n`` for as many as the
            source has, or ``max`` for the most that the budget allows at the
            given pseudocount.
        calibration: ``exact``, or ``paper`` for the sufficient condition of the
            paper's Theorem 2, kept for comparison.
    """

    pseudocount: Fraction | None = None
    records: int | Literal["n", "max"] = "n"
    calibration: Literal["exact", "paper"] = "exact"

    def __post_init__(self) -> None:
        if self.pseudocount is not None:
            _check_pseudocount(self.pseudocount, "pseudocount")
        if isinstance(self.records, int):
            _check_records(self.records, "records")
        if self.calibration == "paper" and isinstance(self.records, int):
            raise ConfigError(
                "'calibration: paper' chooses the number of records itself.",
                where="records",
                next_step="Leave out records, or use 'calibration: exact'.",
            )
        if self.records == "max" and self.pseudocount is None:
            raise ConfigError("'records: max' needs a pseudocount.", where="records")


def debias(release: ContingencyTable, pseudocount: Fraction, *, n_records: int) -> DebiasedTable:
    """Remove the pseudocount from a bootstrap release.

    The estimate of a count is N c/m - pseudocount, N = n + pseudocount |domain|, of which the
    structural zeros are not part
    (bootstrapping paper, section 5.3, times n). The standard error takes the
    cell's probability at its released frequency, kept within what is known of it:
    pseudocount/N to (n + pseudocount)/N.

    Args:
        release: Counts per drawn cell; their sum is m.
        pseudocount: As used for the draw.
        n_records: Public number of records n of the source.
    """
    draws = release.n_records
    total = float(n_records + pseudocount * release.domain.n_possible)
    floor = float(pseudocount) / total
    ceiling = (n_records + float(pseudocount)) / total
    frequency = np.clip(release.counts / draws, floor, ceiling)
    errors = total * np.sqrt(frequency * (1 - frequency) / draws)
    return DebiasedTable(
        domain=release.domain,
        cells=release.cells,
        estimates=total * (release.counts / draws) - float(pseudocount),
        standard_errors=errors,
        undrawn_estimate=-float(pseudocount),
        undrawn_standard_error=total * float(np.sqrt(floor * (1 - floor) / draws)),
    )


class SmoothedDraws(DrawnRecords):
    """Independent draws from shares to which a pseudocount of every cell was added."""

    def pseudocount_of(self, n_records: int, n_cells: int) -> Fraction:
        """What is added to each cell."""
        raise NotImplementedError

    def postprocess(self, release: Any, *, n_records: int) -> DebiasedTable:
        """Debiased estimates of the true counts, without the uniform part; costs nothing."""
        added = self.pseudocount_of(n_records, release.domain.n_possible)
        return debias(release, added, n_records=n_records)

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """The covariance of independent draws."""
        added = self.pseudocount_of(n_records, n_cells)
        return MultinomialErrors(added, self.records, n_records, n_cells)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error from public quantities only."""
        return ExpectedCounts.of_bootstrap(
            self.pseudocount_of(n_records, n_cells),
            self.records,
            n_records=n_records,
            n_cells=n_cells,
        )


@dataclass(frozen=True)
class Bootstrap(SmoothedDraws):
    """The mechanism at fixed parameters.

    Args:
        pseudocount: k > 0; converted to an exact fraction.
        records: m >= 1.
    """

    name: ClassVar[str] = "bootstrap"
    citations: ClassVar[tuple[Citation, ...]] = (
        DELVING.at("section 5.1"),
        WASSERMAN_ZHOU.at("Theorem 8"),
        PROOF.at("Theorems 2.1 to 2.4"),
    )
    knobs: ClassVar[type] = BootstrapKnobs
    unbiased: ClassVar[bool] = True

    pseudocount: Fraction
    records: int

    def __init__(self, pseudocount: Amount, records: int) -> None:
        try:
            exact = Fraction(pseudocount)
        except (ValueError, OverflowError, ZeroDivisionError):
            exact = Fraction(0)
        _check_pseudocount(exact)
        _check_records(records)
        object.__setattr__(self, "pseudocount", exact)
        object.__setattr__(self, "records", int(records))

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> DrawsLoss:
        """The privacy loss of the whole release, draws from the pair of the module's text."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        k, unit = self.pseudocount.as_integer_ratio()
        total = n_records * unit + k * n_cells
        if n_cells == 1:  # every dataset of this size is the same table
            return DrawsLoss(up=Fraction(1, 2), down=Fraction(1, 2), draws=0)
        up, down = Fraction(unit_records * unit + k, total), Fraction(k, total)
        return DrawsLoss(up=up, down=down, draws=self.records)

    def release(
        self,
        table: ContingencyTable,
        rng: np.random.Generator,
        progress: Progress | None = None,
    ) -> ContingencyTable:
        """Draw the records, held as counts per drawn cell."""
        return draw_counts(table, self.pseudocount, self.records, rng, progress)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by how often the cells were drawn whose shares differ."""
        cells = np.union1d(one.cells, other.cells)
        shares = [table.at(cells) + float(self.pseudocount) for table in (one, other)]
        ratios = np.log(shares[0] / shares[1])
        return lambda release: float(release.at(cells) @ ratios)

    def pseudocount_of(self, n_records: int, n_cells: int) -> Fraction:
        """The pseudocount, whatever the table."""
        return self.pseudocount

    def band_law(self, *, n_records: int, n_cells: int) -> BandLaw:
        """Draws from smoothed shares, for confidence bands."""
        pseudocount = float(self.pseudocount)
        return BandLaw.of_draws(self.records, pseudocount, n_records=n_records, n_cells=n_cells)

    @classmethod
    def calibrate(cls, knobs: BootstrapKnobs, target: Target) -> Self:
        """Parameters that meet a target, from public quantities only.

        Raises:
            InfeasibleBudgetError: No parameters, or not the given ones, meet it.
        """
        if knobs.calibration == "paper":
            pseudocount, records = paper_parameters(
                target.epsilon, target.delta, knobs.pseudocount, **target.frame
            )
            if records > _MOST_RECORDS or pseudocount > _LARGEST_PSEUDOCOUNT:
                raise InfeasibleBudgetError(
                    f"The paper's calibration asks for {records:.1e} records.",
                    next_step="Use 'calibration: exact'.",
                )
            return cls(pseudocount, records)
        if knobs.records == "max":
            assert knobs.pseudocount is not None
            return cls(knobs.pseudocount, _most_records(knobs.pseudocount, target))
        records = target.n_records if knobs.records == "n" else knobs.records
        if knobs.pseudocount is None:
            return cls(_fine_pseudocount(records, target), records)
        mechanism = cls(knobs.pseudocount, records)
        if not target.allows(mechanism.loss(**target.frame)):
            most = _most_records(knobs.pseudocount, target)
            least = _fine_pseudocount(records, target)  # a decimal number
            fine = Decimal(least.numerator) / Decimal(least.denominator)
            raise InfeasibleBudgetError(
                f"{records} records at pseudocount {knobs.pseudocount} pass the budget; it "
                f"allows {most} records at that pseudocount, or needs pseudocount {fine:f}."
            )
        return mechanism


def _most_records(pseudocount: Amount, target: Target) -> int:
    """Largest number of records that a target allows.

    Exact: the loss grows with the number of draws, since dropping a draw is post-processing.
    """

    def fits(m: int) -> bool:
        return target.allows(Bootstrap(pseudocount, m).loss(**target.frame))

    if target.n_cells == 1 or fits(_MOST_RECORDS):
        raise InfeasibleBudgetError(
            "The budget allows 1e15 records or more.", next_step="Give the number you want."
        )
    if not fits(1):
        raise InfeasibleBudgetError("The budget does not allow one record at this pseudocount.")
    return _last(fits, 1, _MOST_RECORDS)


def _least_pseudocount(
    records: int, target: Target, denominator: int = 1, coarser: int | None = None
) -> Fraction:
    """Smallest multiple of 1/denominator that a target allows.

    Exact: the loss falls as the pseudocount grows, since a larger one mixes each draw with a
    uniform cell.
    """

    def fails(numerator: int) -> bool:
        mechanism = Bootstrap(Fraction(numerator, denominator), records)
        return not target.allows(mechanism.loss(**target.frame))

    if coarser is not None:
        return Fraction(_last(fails, 10 * (coarser - 1), 10 * coarser) + 1, denominator)
    if not fails(1):
        return Fraction(1, denominator)
    most = _LARGEST_PSEUDOCOUNT * denominator
    high = 2
    while high < most and fails(high):
        high = min(2 * high, most)
    if high == most and fails(most):
        raise InfeasibleBudgetError("No pseudocount up to 1e15 meets this budget.")
    return Fraction(_last(fails, high // 2, high) + 1, denominator)


def _check_pseudocount(pseudocount: Fraction, where: str = "") -> None:
    if not Fraction(1, _LARGEST_PSEUDOCOUNT) <= pseudocount <= _LARGEST_PSEUDOCOUNT:
        raise RecordsError("The pseudocount must be between 1e-15 and 1e15.", where=where)
    if pseudocount.denominator > _LARGEST_PSEUDOCOUNT**2:
        raise RecordsError("The pseudocount has more than 30 digits.", where=where)


def _check_records(records: int, where: str = "") -> None:
    if not 1 <= records <= _MOST_RECORDS:
        raise RecordsError("The number of records must be between 1 and 1e15.", where=where)


def _fine_pseudocount(records: int, target: Target) -> Fraction:
    """Smallest pseudocount to three significant digits, the coarsest such grid."""
    finest = _least_pseudocount(records, target)
    for digits in range(1, 13):
        coarser = int(finest * 10 ** (digits - 1))
        if coarser >= 100:
            break
        finest = _least_pseudocount(records, target, 10**digits, coarser)
    return finest


def _last(condition: Callable[[int], bool], low: int, high: int) -> int:
    """Last integer at which a condition, true at low and false at high, is true.

    While high is several times low, their exponents are halved: from 1 to 1e15 in five looks.
    """
    while high - low > 1:
        least = max(low, 1)
        middle = math.isqrt(least * high) if high >= 4 * least else (low + high) // 2
        if condition(middle):
            low = middle
        else:
            high = middle
    return low


_CHUNK = 1 << 21
_WORD = 1 << 63


def draw_counts(
    table: ContingencyTable,
    pseudocount: Fraction,
    records: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    chunk: int = _CHUNK,
) -> ContingencyTable:
    """Counts per cell of iid draws, possible cell j having weight h_j + pseudocount.

    The multiset of drawn records is all of the release: records are exchangeable,
    so it is held as counts per drawn cell. Memory grows with the occupied cells,
    a chunk of draws, and the distinct cells drawn.

    Args:
        table: Private counts h.
        pseudocount: A positive fraction.
        records: Number of draws m >= 0.
        rng: Source of bits; cryptographic in production.
        progress: Called with the number of records drawn after each chunk.
        chunk: Records drawn at a time.

    Returns:
        A table of the same domain whose counts add up to ``records``.
    """
    cells, bounds = table.cells, np.cumsum(table.counts)
    from_data = np.zeros(len(cells), dtype=np.int64)
    from_domain = _Tally(table.domain.n_cells, chunk)
    draw = _uniform_ranks(table, pseudocount, rng)
    remaining = records
    while remaining:
        size = min(remaining, chunk)
        ranks, uniform_cells = draw(size)
        ranks.sort()
        if len(bounds) <= len(ranks):
            # Ranks below bounds[i] belong to cells 0..i.
            from_data += np.diff(np.searchsorted(ranks, bounds), prepend=0)
        else:
            drawn, times = _run_lengths(np.searchsorted(bounds, ranks, side="right"))
            from_data[drawn] += times
        from_domain.add(uniform_cells)
        remaining -= size
        if progress is not None:
            progress(size)
    kept = from_data > 0
    other, times = from_domain.result()
    if not len(other):
        return ContingencyTable(table.domain, cells[kept], from_data[kept])
    return ContingencyTable.from_cells(
        table.domain,
        np.concatenate([cells[kept], other]),
        np.concatenate([from_data[kept], times]),
    )


def _uniform_ranks(
    table: ContingencyTable, pseudocount: Fraction, rng: np.random.Generator
) -> Callable[[int], tuple[Codes, Codes]]:
    """A function of k: ranks of the draws that fall on the data, cells of the others.

    With pseudocount a/b, an integer uniform on 0..bn + a|domain| - 1 falls on the
    data if it is below bn, and then its quotient by b is the rank of a record;
    otherwise its excess over bn, divided by a, is the place of a possible cell.
    """
    n, n_cells = table.n_records, table.domain.n_possible
    cells_at = _possible_cells(table.domain, rng)
    a, b = pseudocount.numerator, pseudocount.denominator
    data_weight, total = b * n, b * n + a * n_cells

    def in_one_word(size: int) -> tuple[Codes, Codes]:
        u = rng.integers(0, total, size=size, dtype=np.int64)
        on_data = u < data_weight
        ranks, excess = u[on_data], u[~on_data] - data_weight
        return (ranks // b if b > 1 else ranks), cells_at(excess // a if a > 1 else excess)

    def in_words(size: int) -> tuple[Codes, Codes]:
        # The same event and, given it, the same uniform rank or cell.
        k = int(np.count_nonzero(below(data_weight, total, size, rng)))
        ranks = rng.integers(0, n, size=k, dtype=np.int64)
        return ranks, cells_at(rng.integers(0, n_cells, size=size - k, dtype=np.int64))

    return in_one_word if total < _WORD else in_words


def _possible_cells(domain: Domain, rng: np.random.Generator) -> Callable[[Codes], Codes]:
    """A function from uniform places among the possible cells to uniform possible cells.

    Without structural zeros the places are the codes. A small domain is listed. In a
    larger one as many codes are drawn afresh, and those that are impossible again: given
    that it is possible, a uniform code is uniform on the possible ones.
    """
    if not domain.zeros:
        return lambda places: places
    if domain.n_cells <= LISTED:
        listed = domain.possible_cells()
        return lambda places: np.asarray(listed[places])

    def by_rejection(places: Codes) -> Codes:
        cells = np.empty(len(places), dtype=np.int64)
        missing = np.arange(len(places))
        while len(missing):
            cells[missing] = rng.integers(0, domain.n_cells, size=len(missing), dtype=np.int64)
            missing = missing[~domain.is_possible(cells[missing])]
        return cells

    return by_rejection


def _run_lengths(ordered: Codes) -> tuple[Codes, Codes]:
    """Distinct values of a sorted int64[k], and how often each occurs."""
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-1)))
    return ordered[starts], np.diff(starts, append=len(ordered))


@dataclass
class _Tally:
    """Counts per cell of arrays of cells, in memory of the distinct cells seen."""

    n_cells: int
    chunk: int
    dense: Codes | None = None
    parts: list[tuple[Codes, Codes]] = field(default_factory=list)
    pending: int = 0

    def add(self, cells: Codes) -> None:
        if not len(cells):
            return
        if self.n_cells <= self.chunk:  # fits where a chunk of draws fits
            counts = np.bincount(cells, minlength=self.n_cells)
            self.dense = counts if self.dense is None else self.dense + counts
            return
        cells.sort()
        self.parts.append(_run_lengths(cells))
        self.pending += len(self.parts[-1][0])
        if self.pending > 2 * len(self.parts[0][0]) + self.chunk:
            self._merge()

    def _merge(self) -> None:
        cells, counts = zip(*self.parts, strict=True)
        self.parts = [sum_by_cell(np.concatenate(cells), np.concatenate(counts))]
        self.pending = 0

    def result(self) -> tuple[Codes, Codes]:
        """Distinct cells int64[k], ascending, and their counts int64[k]."""
        if self.dense is not None:
            cells = np.flatnonzero(self.dense)
            return cells, self.dense[cells]
        if not self.parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if len(self.parts) > 1:
            self._merge()
        return self.parts[0]
