"""Variances, correlations, ratios, regressions and differences from joint moments.

For records (x, y) in [0, 1]^2 let u = x - 1/2, v = y - 1/2. Released are the sums over all n
records of functions of u and v with independent Gaussian noise of one scale. Which functions, and
how far a replaced record can move them, is a design (mechanisms.estimates.moment_designs). The
means of all monomials of u and v that a statistic needs follow from them linearly. Replace-one
neighbours. Each statistic is a function of the means of two columns in [0, 1] and of their squares
and product (its ``MomentFormula``), which also says which moments are released. Variances and
covariances are those with n - 1. A mean of only some of the records is a ratio too: of the sum of
their values to their number, kept within the bounds.

**Confidence sets.** A quotient N/D of two polynomials in the means of x, y, x^2, xy, y^2 has the
set of statpress.mechanisms.estimates.fieller: {t : |N - t D| <= z sd(N - t D)}. N - t D is a
polynomial, and its error is that of the linear function with its gradient g - t h: variance
(g - t h)'(S/n + Q)(g - t h), with the covariance matrices Q of the noise and S of the five
monomials, which the moments up to degree 4 give. Nothing is divided by, so this approximation does
not depend on how far D is from 0. The entries of S have noise themselves; one standard deviation of
it is added, in proportion as at the estimate, so that the variance is seldom too small. The square
of a noisy mean is too large by the variance of its noise, which is taken off.

What noise does to products, such as the square of a noisy mean, is counted by
statpress.mechanisms.estimates.moment_designs. Denominators are positive, and sets that are
intervals only since noise made D large are widened (``Quotient.cautious_sets``).

**Correlation.** The set for C/sqrt(V W), C a covariance and V and W variances, is made of sets for
quotients too. For every s > 0, sqrt(V W) <= (s V + W/s)/2, with equality at s^2 = W/V. For that s
the correlation is 2C/(s V + W/s), a quotient of polynomials, and a small error in s does not change
it to first order. Fieller's set for W/V gives an interval for s, at a tenth of what the level
leaves to 1; the set is all that lies between the ends of the sets for the s in it, at the rest.

No law of the records is assumed, and n is taken as large: where a few records with rare values
decide, coverage falls short by what statpress.mechanisms.estimates.moments computes.

**Sets that are intervals by luck of sampling.** The widening for noise does not help where a few
records make up D, about Poisson(L) of them, and their number decides. The level holds over all
releases then, but not over those with an interval: simulated with the noise of mu from .3 to 1, L
from 1 to 9 and 2 to 9 % of the releases with an interval, .63-.85 of these hold the ratio at the
level .90, and with mu from .3 to .5 .89 at .95. With the noise of mu up to .15 it holds among
intervals at .90, .95 and .99, and at .2 no longer at .99 (.956). So sets for quotients are called
asymptotic where the noise is ``HIDING_FEW`` jumps of a record or more, mu at most .125: a fact of
the noise, and not of any data.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates.estimand import Estimand
from statpress.mechanisms.estimates.estimate import (
    Estimate,
    ExpectedInterval,
    Inference,
    RawEstimates,
    finite,
    number,
)
from statpress.mechanisms.estimates.fieller import (
    INTERVAL,
    ConfidenceSet,
    Floats,
    Quotient,
    Sets,
    normal_quantile,
)
from statpress.mechanisms.estimates.guaranteed import variance_limits
from statpress.mechanisms.estimates.moment_designs import (
    DESIGNS,
    FIRST_ONE,
    FIRST_PAIR,
    PAIR,
    POWERS,
    Derived,
    Errors,
    Means,
    MomentDesign,
    MomentPolynomial,
    Slopes,
    quotient_of,
)
from statpress.mechanisms.estimates.moments import (
    MANY,
    RATES,
    MomentsEstimate,
    other_noise,
    rare_values,
)
from statpress.mechanisms.estimates.statistics import MomentFormula, NamedStatistic, Terms, named
from statpress.mechanisms.mechanism import BALLE_WANG, DONG_ROTH_SU, PROOF, Citation, Target
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    StatisticNoise,
    of_noise,
)

FIRST = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
"""Exponents of u and v in the monomials of which functions are taken."""

_AMONG_ALL = tuple(POWERS.index(power) for power in FIRST)
_STEP, _STRIDE = 1e-4, 1e-2  # of first and of second differences
_FAR = 1e6  # the ratio of two standard deviations, at most
_RATIOS = 33  # at which a correlation is looked at
_FOR_RATIO = 0.1  # of what the level leaves to 1


@dataclass(frozen=True, eq=False)
class MomentSets:
    """Noisy moments and the sets that follow from them."""

    means: Floats  # float64[14, ..] of the monomials (``POWERS``); 0 for those that are not known
    noise: Floats  # float64[14, m], of each its noise in independent standard normal terms
    n_records: int  # number of records n, or of the units that they are of

    def estimate(self, wanted: Derived) -> float:
        """The function of the noisy means, not clipped; NaN where it has no value."""
        return wanted.value(self._at)

    def sets(self, wanted: Derived, level: float) -> Sets:
        """The confidence sets for the function of the population's means."""
        if len(wanted.denominators) < 2:
            quotient, by_noise = self._quotient(wanted)
            return self._cautious(quotient, level, wanted.bounds, by_noise)
        return self._correlation(wanted, level)

    def _cautious(
        self,
        quotient: Quotient,
        level: float,
        bounds: tuple[float, float],
        by_noise: NDArray[np.bool_],
    ) -> Sets:
        return quotient.cautious_sets(level, bounds, by_noise)

    def error(self, wanted: Derived, *, sampling: bool, cautious: bool) -> float:
        """The error of a quotient about its estimate by the delta method; NaN: there is none.

        It is that of N - t D at the estimate t, divided by D: of the noise only, or with
        ``sampling``; ``cautious`` adds a standard deviation of the noise in the variance.
        """
        t, functions = self.estimate(wanted), [wanted.numerator, *wanted.denominators]
        with np.errstate(all="ignore"):
            values = [float(function(self._at)) for function in functions]
            slopes = [1.0]  # of the estimate, in each, times D
            if len(values) == 3:
                slopes += [-t * math.sqrt(abs(b / a)) / 2 if a else math.nan
                           for a, b in (values[1:], values[:0:-1])]  # fmt: skip
                below = math.sqrt(max(values[1] * values[2], 0.0))
            else:
                slopes += [-t] * len(values[1:])
                below = values[1] if values[1:] else 1.0
            parts = [
                self._slopes(function).times(c)
                for c, function in zip(slopes, functions, strict=True)
            ]
            both = functools.reduce(Slopes.plus, parts)
            errors = self._errors(both, both)
            variance = float(errors.of_noise if cautious else errors.own + errors.bend / 2)
            if sampling:
                variance += float(np.maximum(errors.spread, 0.0) + cautious * errors.doubt)
            error = math.sqrt(variance) / below if below > 0 else math.nan
        return error if math.isfinite(error) else math.nan

    def _correlation(self, wanted: Derived, level: float) -> Sets:
        """The sets for a covariance over the geometric mean of two variances."""
        spare = (1 - level) * _FOR_RATIO
        functions = (wanted.numerator, *wanted.denominators)
        top, one, two = (self._unbiased(function) for function in functions)
        c, v, w = (self._slopes(function) for function in functions)
        cc, cv, cw = (self._errors(c, function) for function in (c, v, w))
        vv, vw, ww = self._errors(v, v), self._errors(v, w), self._errors(w, w)
        ratio, by_noise = quotient_of(two, one, ww, vw, vv)
        known = self._cautious(ratio, 1 - spare, (_FAR**-2, _FAR**2), by_noise)
        low = np.full(np.shape(known.lower), np.inf)
        high = -low
        for place in np.linspace(0, 1, _RATIOS):
            s = np.sqrt(known.lower ** (1 - place) * known.upper**place)
            a, b = s / 2, 1 / (2 * s)  # what both variances count in the denominator
            quotient, by_noise = quotient_of(
                top,
                a * one + b * two,
                cc,
                cv.times(a).plus(cw.times(b)),
                vv.times(a**2).plus(vw.times(2 * a * b)).plus(ww.times(b**2)),
            )
            sets = self._cautious(quotient, level + spare, wanted.bounds, by_noise)
            low, high = np.minimum(low, sets.lower), np.maximum(high, sets.upper)
        none = np.full(np.shape(low), np.nan)
        return Sets(low, high, none, none)

    def _quotient(self, wanted: Derived) -> tuple[Quotient, NDArray[np.bool_]]:
        """A quotient with its errors, and whether most of the denominator's is noise."""
        one = self._slopes(wanted.numerator)
        top, first = self._unbiased(wanted.numerator), self._errors(one, one)
        if not wanted.denominators:
            zero = np.zeros_like(top)
            variance = np.maximum(first.spread, 0.0) + first.of_noise + first.doubt
            return Quotient(top, zero + 1, variance, zero, zero), zero > 0
        (divisor,) = wanted.denominators
        two = self._slopes(divisor)
        both, last = self._errors(one, two), self._errors(two, two)
        return quotient_of(top, self._unbiased(divisor), first, both, last)

    @functools.cached_property
    def _first(self) -> Floats:
        return np.asarray(self.means[list(_AMONG_ALL)])

    @functools.cached_property
    def _at(self) -> Means:
        return _plain(self._first)

    def _unbiased(self, function: MomentPolynomial) -> Floats:
        """The function of the noisy means, without the bias that noise gives to squares."""
        plain = np.asarray(function(self._at), np.float64)
        bias = np.zeros_like(plain)
        for move in self.noise[list(_AMONG_ALL)].T:
            up, down = (function(self._moved(sign * move)) for sign in (1, -1))
            bias = bias + (up + down) / 2 - plain
        return plain - bias

    def _moved(self, moves: Floats) -> Means:
        """The plain means, [5, .., r], where those of the monomials are moved, float64[5, ..]."""
        first, r = self._first, self._first.shape[1:]
        among = (len(FIRST), *[1] * (moves.ndim - 1), *r)
        return _plain(first.reshape(among) + moves.reshape(moves.shape + (1,) * len(r)))

    def _slopes(self, function: MomentPolynomial) -> Slopes:
        """First and second derivatives in the means of the monomials of u and v.

        Differences of both sides are exact for a polynomial of degree 3, but for rounding.
        """
        unit = np.eye(len(FIRST))
        one, two = _STRIDE * unit[:, :, None], _STRIDE * unit[:, None]
        up, down = (function(self._moved(sign * _STEP * unit)) for sign in (1, -1))
        first = (up - down) / (2 * _STEP)
        second = sum(
            p * q * np.asarray(function(self._moved(p * one + q * two)))
            for p, q in itertools.product((1, -1), repeat=2)
        )
        return Slopes(first, np.asarray(second / (4 * _STRIDE**2)))

    def _errors(self, one_of: Slopes, two_of: Slopes) -> Errors:
        """What the errors of two functions with these derivatives share."""
        (g, bent), (h, other_bent), at = one_of, two_of, self._first
        one, two = (np.sum(derivatives * at, axis=0) for derivatives in (g, h))
        slope = np.zeros((len(POWERS), *g.shape[1:]))  # in each mean
        for (k, p), (m, q) in itertools.product(enumerate(FIRST), repeat=2):
            slope[POWERS.index((p[0] + q[0], p[1] + q[1]))] += g[k] * h[m]
        spread = np.sum(slope * self.means, axis=0) - one * two
        slope[list(_AMONG_ALL)] -= one * h + two * g
        noise = self.noise[list(_AMONG_ALL)].T
        own = np.sum(np.tensordot(noise, g, 1) * np.tensordot(noise, h, 1), axis=0)
        terms = np.tensordot(self.noise.T, slope, 1)
        turned = (
            np.tensordot(noise.T @ noise, derivatives, 1) for derivatives in (bent, other_bent)
        )
        bend = np.einsum("ij...,ji...->...", *turned)
        return Errors(spread / self.n_records, terms / self.n_records, np.asarray(own), bend)


def _plain(first: Floats) -> Means:
    """Means of x, y, x^2, xy, y^2 from those of the five monomials of u and v."""
    u, v, uu, uv, vv = first
    return np.array([u + 0.5, v + 0.5, uu + u + 0.25, uv + (u + v) / 2 + 0.25, vv + v + 0.25])


_BITS = 40


@dataclass(frozen=True)
class PairMoments:
    """The release at fixed parameters; all of them are public."""

    design: MomentDesign  # which sums
    noise: StatisticNoise  # on all of them

    @classmethod
    def calibrate(
        cls,
        mu: Fraction,
        *,
        n_records: int,
        n_cells: int | None = None,
        design: MomentDesign = PAIR,
        shared: bool = False,
    ) -> PairMoments:
        """The least noise that makes all sums together mu-GDP.

        ``n_cells`` is that of the declared domain of both columns; as many as records if not given.
        Where ``shared``, a unit's records share one, so that more cells than units are occupied.
        """
        cells = n_cells or n_records
        larger = max(n_records, cells) if shared else n_records
        StatisticNoise.check_accuracy(n_records=larger, n_cells=min(n_records, cells))
        sensitivity, dimension = _moves(design)
        noise = StatisticNoise.calibrate(mu**2, sensitivity=sensitivity, dimension=dimension)
        return cls(design, noise)

    @classmethod
    def at(cls, scale: Fraction, design: MomentDesign) -> PairMoments:
        """The release with noise of a given scale, in grid steps."""
        return cls(design, StatisticNoise(*_moves(design), scale))

    @property
    def noise_in_jumps(self) -> float:
        """Least noise on a linear figure of the sums, in moves of it by one record: 1/mu.

        A figure a'f has noise |a| sigma; a record moves it by at most |a| times the sensitivity.
        """
        return 1 / math.sqrt(self.noise.mu_squared)

    def loss(self) -> GaussianLoss:
        """The privacy loss; takes no data."""
        return GaussianLoss(Fraction(0), self.noise.mu_squared)

    def release(self, counts: Codes, columns: Floats, rng: Randomness, parts: int = 1) -> NoisyPair:
        """Noisy sums.

        Args:
            counts: int64[k], private counts of the occupied cells, in parts of a record.
            columns: float64[k, 2] or [k, 1], values of the columns in [0, 1].
            rng: Source of noise; charge the ledger before building it.
            parts: How many parts a record has.
        """
        sums = counts @ self.design.values(columns) / parts
        return NoisyPair(self, int(counts.sum()) // parts, self.noise.release(sums, rng))


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """What was released, and what follows from it."""

    mechanism: PairMoments  # its parameters
    n_records: int  # number of records n, public
    sums: Floats  # float64[.., m], noisy; of many releases for simulations
    of_unit: int = 1  # how many records of a unit count one each

    @property
    def known(self) -> MomentSets:
        """The means of the monomials; 0 for those that were not released."""
        slopes, constant = self.mechanism.design.monomials
        means = np.moveaxis(self.sums @ slopes.T / self.n_records + constant, -1, 0)
        sigma = self.mechanism.noise.sigma / self.n_records
        return MomentSets(means, sigma * slopes, self.n_records // self.of_unit)

    def interval(self, wanted: Derived, level: float) -> ConfidenceSet:
        """The confidence set for the function of the population's means."""
        return self.known.sets(wanted, level).one(wanted.bounds)

    def variance_limits(self, level: float) -> tuple[float, float]:
        """Limits of the variance of one column that hold for every population."""
        slopes, constant = self.mechanism.design.monomials
        chosen = [POWERS.index((degree, 0)) for degree in range(1, 5)]
        slopes, constant = slopes[chosen], constant[chosen]
        # Rounding moves a sum by at most a step of its grid, and the noise has the same grid.
        return variance_limits(
            slopes @ self.sums + self.n_records * constant,
            self.mechanism.noise.sigma * slopes,
            2 * float(self.mechanism.noise.step) * np.abs(slopes).sum(axis=1),
            n_records=self.n_records,
            level=level,
        )


def _moves(design: MomentDesign) -> tuple[Fraction, int]:
    """The sensitivity of all sums, rounded up, and their number."""
    root = math.isqrt(math.ceil(design.squared_sensitivity * 2 ** (2 * _BITS))) + 1
    return Fraction(root, 2**_BITS), len(design.functions)


@dataclass(frozen=True, kw_only=True)
class PairEstimate(MomentsEstimate):
    """The release at fixed parameters; all of them are public.

    Attributes:
        moments: The noise on the sums, of columns in [0, 1].
        statistic: Its name.
        origin: For a regression: the predictor 0 is at x = -origin.
    """

    counts_those_there: ClassVar[bool] = True
    name: ClassVar[str] = "pair_moments"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_WANG.at("Theorem 8"),
        DONG_ROTH_SU,
        PROOF.at("section 5, Lemma 5.1, Theorem 8.1"),
    )

    moments: PairMoments
    statistic: str
    origin: float

    @staticmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Functions of the moments of two columns."""
        return statistic.moments is not None

    @staticmethod
    def guarantees(statistic: NamedStatistic) -> bool:
        """A variance."""
        return statistic.moments is not None and statistic.moments.is_variance

    @classmethod
    def calibrated(cls, estimand: Estimand, target: Target) -> dict[str, Any]:
        """The least noise that meets the target."""
        formula = _formula(estimand.statistic)
        if formula.of_some and not estimand.of_some:
            raise ConfigError(
                f"The mechanism '{cls.name}' takes means of only some records, and here all count.",
                where="statistic",
                next_step="Write 'mechanism: auto', or leave the key out.",
            )
        one = len(estimand.arguments) == 2 and estimand.arguments[1].chosen is None
        if estimand.statistic.several and (estimand.of_some or not one):
            raise ConfigError(
                f"The mechanism '{cls.name}' takes one predictor of numbers, and columns that "
                "cannot lack a value.",
                where="columns",
                next_step="Write 'mechanism: auto', or leave the key out.",
            )
        if target.n_records < 2:
            raise RecordsError("These statistics need two records.")
        if formula.amounts:
            _check_amounts(estimand)
        return {
            "terms": estimand.terms(target.n_records, estimand.arguments),
            "moments": PairMoments.calibrate(
                target.largest_mu() / target.unit_records,
                n_records=target.n_records,
                n_cells=target.n_cells,
                design=formula.design,
                shared=estimand.knobs.per == "unit",
            ),
            "statistic": estimand.statistic.name,
            "origin": formula.origin(estimand.arguments),
        }

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Add the noise to the sums."""
        assert self.estimand is not None
        columns = moment_columns(self.estimand, table.domain, table.cells)
        pair = self.moments.release(table.counts, columns, rng, table.domain.parts)
        return RawEstimates({"sums": tuple(pair.sums.tolist())}, pair.n_records)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by all sums."""
        exact = [self.release(table, NoNoise()).numbers["sums"] for table in (one, other)]
        ratio = of_noise(exact, self.moments.noise.sigma)
        return lambda release: ratio(release.numbers["sums"])

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates with their intervals."""
        sums = np.array(raw.numbers["sums"])
        pair = NoisyPair(self.moments, raw.n_records, sums, self.of_unit)
        estimates = []
        for quantity, scale, wanted in zip(
            self.terms.quantities, self.terms.scales, self._derived(raw.n_records), strict=True
        ):
            sets = pair.interval(wanted, self.terms.confidence)
            lower, upper = self._ends(pair, sets, guaranteed=self.guaranteed)
            gap, error = sets.gap, None
            if sets.shape == INTERVAL:
                error = scale.factor * pair.known.error(wanted, sampling=True, cautious=True)
            estimates.append(
                Estimate(
                    quantity=quantity,
                    value=scale.value(pair.known.estimate(wanted)),
                    lower=scale.value(lower),
                    upper=scale.value(upper),
                    confidence=self.terms.confidence,
                    standard_error=error,
                    shape=sets.shape,
                    gap=None if gap is None else (scale.value(gap[0]), scale.value(gap[1])),
                    inference=self.inference,
                )
            )
        return tuple(estimates)

    def _ends(
        self, pair: NoisyPair, sets: ConfidenceSet, *, guaranteed: bool
    ) -> tuple[float, float]:
        if guaranteed:
            return pair.variance_limits(self.terms.confidence)
        return sets.lower, sets.upper

    def expected_error(
        self, *, n_records: int, n_cells: int, there: int | None = None
    ) -> ExpectedInterval:
        """The widths at the expected moments of records spread evenly, independent columns."""
        n_records = there or n_records
        scales, derived = self.terms.scales, self._derived(n_records)
        widths = self._widths(n_records, guaranteed=self.guaranteed)
        known = self._even(n_records).known
        noise = [known.error(wanted, sampling=False, cautious=False) for wanted in derived]
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=tuple(
                finite(scale.factor * width) for scale, width in zip(scales, widths, strict=True)
            ),
            noise_sd=tuple(
                finite(scale.factor * sd) for scale, sd in zip(scales, noise, strict=True)
            ),
        )

    def _widths(self, n_records: int, *, guaranteed: bool) -> Iterator[float]:
        """The width of each interval for records spread evenly, of columns in [0, 1]."""
        pair = self._even(n_records)
        for wanted in self._derived(n_records):
            sets = pair.interval(wanted, self.terms.confidence)
            lower, upper = self._ends(pair, sets, guaranteed=guaranteed)
            yield upper - lower

    def expected_width(self, n_records: int, *, guaranteed: bool) -> float:
        """The width of the only interval for records spread evenly."""
        (width,) = self._widths(n_records, guaranteed=guaranteed)
        return width

    @property
    def has_guarantee(self) -> bool:
        """Whether there is a guaranteed interval: for a variance only."""
        return _formula(named(self.statistic)).is_variance

    def _even(self, n_records: int) -> NoisyPair:
        """The expected moments of records spread evenly."""
        records, masses = _reference(named(self.statistic))
        design = self.moments.design
        sums = n_records * masses @ design.values(records[:, : design.columns])
        return NoisyPair(self.moments, n_records, sums, self.of_unit)

    @property
    def worst_coverage(self) -> float:
        """Coverage of the sets for populations whose rare values decide."""
        return worst_of_quotient(self._noise_in_jumps, self.terms.confidence)

    @property
    def _noise_in_jumps(self) -> float:
        """As of the moments, in jumps of a unit all of whose records move."""
        return self.moments.noise_in_jumps / self.of_unit

    @property
    def inference(self) -> Inference:
        """How the coverage of the interval is known.

        A quotient's is asymptotic only where the level holds among releases with an interval.
        """
        called = super().inference
        return "approximate" if called == "asymptotic" and self._by_luck else called

    def remarks(self) -> Iterator[tuple[str, str]]:
        """As of all moments, and that a denominator of few records can make intervals by luck."""
        if self._by_luck and not self.guaranteed:
            level = self.terms.confidence
            yield (
                "the interval is",
                f"approximate: it covers with {level:g} over all releases, but less often over "
                "those with an interval if few records make up the denominator",
            )
        yield from super().remarks()

    @property
    def _by_luck(self) -> bool:
        """Whether a quotient of few records may have intervals by luck of sampling."""
        quotients = any(wanted.denominators for wanted in self._derived(2))
        return quotients and self._noise_in_jumps < HIDING_FEW

    def parameters(self) -> dict[str, str | int]:
        """The noise, what it is on, and what is made of that."""
        design = self.moments.design
        return {
            "scale": str(self.moments.noise.scale),
            "n_columns": design.columns,
            **({"design": design.name} if design.name else {}),
            "statistic": self.statistic,
            "origin": repr(self.origin),
            **self.described(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        return cls(
            terms=Terms.from_description(description),
            moments=PairMoments.at(number(description, "scale"), _design(description)),
            statistic=str(description["statistic"]),
            origin=float(str(description["origin"])),
            **cls.read(description),
        )

    def _derived(self, n_records: int) -> tuple[Derived, ...]:
        """The functions of the means, one an estimate."""
        return _formula(named(self.statistic)).functions(n_records, self.origin)


def _design(description: Mapping[str, object]) -> MomentDesign:
    """The design that is named; before there were names, the first one."""
    if "design" in description:
        return DESIGNS[str(description["design"])]
    return FIRST_ONE if int(str(description["n_columns"])) == 1 else FIRST_PAIR


def _formula(statistic: NamedStatistic) -> MomentFormula:
    assert statistic.moments is not None
    return statistic.moments


def _check_amounts(estimand: Estimand) -> None:
    """Refuse columns that can be below 0."""
    for argument in estimand.arguments:
        if argument.lower < 0:
            raise ConfigError(
                f"Column '{argument.name}' can be below 0, and a {estimand.statistic.name} is one "
                "of amounts.",
                where="columns",
            )


def moment_columns(estimand: Estimand, domain: Domain, cells: Codes) -> Floats:
    """The columns x and y, float64[k, 2] in [0, 1]; one column for a variance."""
    arguments, formula = estimand.arguments, _formula(estimand.statistic)
    if formula.amounts:
        arguments = tuple(dataclasses.replace(each, lower=0.0) for each in arguments)
    columns = [argument.scaled(domain, cells) for argument in arguments]
    if formula.of_some:
        kept = estimand.keeps(domain, cells)
        return np.column_stack([kept, columns[0] * kept])
    return np.column_stack(columns[::-1])  # a denominator, predictor or group first


def _reference(statistic: NamedStatistic) -> tuple[Floats, Floats]:
    """Records float64[k, 2] and masses float64[k] with the moments of evenly spread ones.

    Of three nodes Gauss's rule has the first five moments of the uniform law.
    """
    nodes, weights = np.polynomial.legendre.leggauss(3)
    even = [(float(x + 1) / 2, float(w) / 2) for x, w in zip(nodes, weights, strict=True)]
    half = [(0.0, 0.5), (1.0, 0.5)]
    of_some = _formula(statistic).of_some
    x = half if of_some or "group" in statistic.needs else even
    y = half if statistic.is_share else even
    pairs = [((a, a * b if of_some else b), p * q) for (a, p), (b, q) in itertools.product(x, y)]
    return np.array([pair for pair, _ in pairs]), np.array([mass for _, mass in pairs])


HIDING_FEW = 8.0
"""Noise in jumps from which on the level holds among releases that have an interval, found by
simulation (tests/benchmarks/test_few_records_below.py)."""

SPREAD_NOISE = 1.0
"""The c of a quotient: noise in the estimated variance, over that in the figure, in jumps."""


@functools.lru_cache(maxsize=256)
def worst_of_quotient(noise: float, level: float) -> float:
    """Least coverage of ``MomentSets`` for rare values (mechanisms.estimates.moments).

    The noise in the variance may go along with that in the figure, or against it. ``noise`` is the
    standard deviation of that on N - t D, in jumps of a record.
    """
    if noise >= MANY:
        return level
    z, c, worst = normal_quantile(level), SPREAD_NOISE * noise, 1.0
    for rate in np.geomspace(0.1, 100, RATES):
        counts, masses, first, first_masses = rare_values(float(rate))
        off = (counts - rate)[:, None] + noise * first
        for along in (-0.95, 0.95):
            covered = 0.0
            for other, mass in other_noise():
                joint = along * first + math.sqrt(1 - along**2) * other
                spread = np.maximum(counts[:, None] + c * joint, 0.0) + c + noise**2
                covered += mass * float(masses @ ((off**2 <= z**2 * spread) @ first_masses))
            worst = min(worst, covered)
    return min(worst, level)
