"""Estimates by the DP bootstrap, of built-in statistics and user-defined ones.

The mechanism is statpress.mechanisms.estimates.replicates: noisy statistics of bootstrap
resamples, whose sampling distribution is recovered by deconvolution. Variances have n - 1.

**inference: calibrated** is a normal interval around the mean of the replicates, whose constants
are in the description. **percentile** and **t** are those of the paper.

**calibration: strict** is the least noise that is proven to meet the budget. **paper** takes a
mu and the noise of Wang, Cheng and Awan (2022, arXiv 2210.06140); the proven loss is charged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Self, get_args

import numpy as np

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates import resampling_noise
from statpress.mechanisms.estimates.declared_statistics import (
    DeclaredStatistic,
    check_all_count,
    columns_of,
    described,
    even_variances,
    statistic_of,
    terms_of,
)
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.estimate import (
    ESTIMATE,
    Estimate,
    ExpectedInterval,
    RawEstimates,
    SamplingDistribution,
    check_loss_frame,
    check_serves,
    estimand_for,
    number,
    proven,
    resampling_goal,
)
from statpress.mechanisms.estimates.replicates import (
    BootstrapReplicates,
    Calibration,
    NoisyReplicates,
    check_replicates,
    default_replicates,
)
from statpress.mechanisms.estimates.resampling_noise import Reach, least_reach, mean_width
from statpress.mechanisms.estimates.statistics import Scale, Terms
from statpress.mechanisms.mechanism import (
    BALLE_BARTHE_GABOARDI,
    PROOF,
    WANG_CHENG_AWAN,
    Citation,
    Kind,
    Target,
    check_frame,
)
from statpress.mechanisms.sampling.randomness import Progress, Randomness, StatisticNoise

Inference = Literal["calibrated", "percentile", "t"]


@dataclass(frozen=True, kw_only=True)
class BootstrapKnobs(EstimandKnobs):
    """What a config may say about this mechanism.

    Attributes:
        replicates: Their number; by default chosen from public quantities.
        inference: A normal interval that keeps its level whatever the variance, percentiles of the
            recovered distribution, or Student's interval.
        calibration: The least noise that meets the budget, or that of the paper.
        mu: For the paper's noise, what the paper says it costs.
    """

    replicates: int | None = None
    inference: Inference = "calibrated"  # type: ignore[assignment]  # it has three of its own
    calibration: Calibration = "strict"
    mu: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mu is not None) != (self.calibration == "paper"):
            raise ConfigError(
                "A 'mu' goes with 'calibration: paper', which needs one.", where="calibration"
            )
        if self.mu is not None and self.mu <= 0:
            raise RecordsError("mu must be positive.", where="mu")
        if self.replicates is not None:
            if self.replicates < 2:
                raise RecordsError("A bootstrap needs two replicates.", where="replicates")
            if self.inference == "percentile":
                check_replicates(self.replicates, self.confidence)


@dataclass(frozen=True)
class BootstrapEstimate:
    """The release at fixed parameters; all of them are public.

    Attributes:
        bootstrap: The replicates and the noise on them.
        inference: How intervals are made of them.
        terms: What is stated of the estimates.
        rules: Of calibrated intervals, from the replicates' variance to the half-width.
        paper_mu: What the paper says that its noise costs, if it was taken.
        estimand: To count by; None where the mechanism was rebuilt from its description.
        variances: Presumed of the statistic, for expected widths; likewise empty.
    """

    name: ClassVar[str] = "dp_bootstrap"
    citations: ClassVar[tuple[Citation, ...]] = (
        WANG_CHENG_AWAN.at("Theorem 3.4"),
        BALLE_BARTHE_GABOARDI.at("Theorem 10"),
        PROOF.at("Theorem 5.3"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    knobs: ClassVar[type] = BootstrapKnobs
    pure: ClassVar[bool] = False

    bootstrap: BootstrapReplicates
    inference: Inference
    terms: Terms
    rules: tuple[Reach, ...] = ()
    paper_mu: Fraction | None = None
    estimand: Estimand | None = dataclasses.field(default=None, compare=False)
    variances: tuple[float, ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def calibrate(cls, knobs: BootstrapKnobs, target: Target) -> Self:
        """The least noise that meets the target, or the paper's if that does.

        Raises:
            ConfigError: The statistic is not one of these, or the budget is one of rho.
            InfeasibleBudgetError: The budget has no delta, or the paper's noise costs more.
        """
        check_serves(knobs, cls.name, lambda each: each.bounded is not None, functions=True)
        goal = resampling_goal(target, cls.name)
        estimand = estimand_for(knobs, target, cls.name)
        statistic = statistic_of(estimand)
        check_all_count(estimand, cls.name)
        n = target.n_records
        variances = even_variances(estimand, statistic, n)
        replicates = knobs.replicates or default_replicates(
            knobs.confidence,
            n_records=n,
            mu=float(knobs.mu or target.largest_mu()),
            sensitivity=float(statistic.constant) / n,
            variance=max(variances),
        )
        sizes = {"n_records": n, "replicates": replicates, "n_cells": target.n_cells}
        if knobs.mu is None:
            bootstrap = proven(
                target,
                goal,
                lambda points: BootstrapReplicates.calibrate(statistic, points, **sizes),
            )
        else:
            bootstrap = BootstrapReplicates.as_in_paper(statistic, knobs.mu, **sizes)
            bootstrap.check_goal(goal)
        terms = terms_of(estimand, n)
        rules: tuple[Reach, ...] = ()
        if knobs.inference == "calibrated":
            known = bootstrap.inference(np.zeros((replicates, 1))).known
            rules = tuple(least_reach(known, each, knobs.confidence) for each in variances)
        return cls(bootstrap, knobs.inference, terms, rules, knobs.mu, estimand, variances)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The proven privacy loss of all replicates; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        check_loss_frame(n_records, unit_records, stated=self.bootstrap.n_records)
        return self.bootstrap.loss()

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Noisy replicates."""
        assert self.estimand is not None
        columns = columns_of(self.estimand, table.domain, table.cells)
        found = self.bootstrap.release(table.counts, columns, rng)
        numbers = {
            f"replicates_{i}": tuple(found[:, i - 1].tolist()) for i in range(1, found.shape[1] + 1)
        }
        return RawEstimates(numbers, table.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates with their intervals."""
        return tuple(
            self._estimate(i, quantity, scale, found)
            for i, (quantity, scale, found) in enumerate(self._replicates(raw))
        )

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """The recovered sampling distributions."""
        found = []
        for quantity, scale, replicates in self._replicates(raw):
            if replicates.spread:
                recovered = replicates.deconvolved()
                points = scale.shift + scale.factor * recovered.points
                found.append(SamplingDistribution(quantity, points, recovered.masses))
        return tuple(found)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The widths for records spread evenly.

        Those of calibrated intervals are means; the others are of replicates that lie as a normal
        law's quantiles do.
        """
        from scipy.special import ndtri

        replicates, noise = self.bootstrap.replicates, self.bootstrap.noise.sigma
        normal = ndtri((np.arange(replicates) + 0.5) / replicates)
        widths = []
        for i, (scale, variance) in enumerate(zip(self.terms.scales, self.variances, strict=True)):
            found = self.bootstrap.inference(normal[:, None] * math.sqrt(variance + noise**2))
            if self.inference == "calibrated":
                level, rule = self.terms.confidence, self.rules[i]
                width = float(mean_width(rule, found.known, np.array(variance), level))
            else:
                low, high = self._interval(i, found)[:2]
                width = high - low
            widths.append(scale.factor * width)
        sds = (scale.factor * noise / math.sqrt(replicates) for scale in self.terms.scales)
        return ExpectedInterval(
            quantities=self.terms.quantities, width=tuple(widths), noise_sd=tuple(sds)
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the estimates count by."""
        return {
            "mechanism": self.name,
            "n_records": self.bootstrap.n_records,
            "replicates": self.bootstrap.replicates,
            "scale": str(self.bootstrap.noise.scale),
            "calibration": self.bootstrap.calibration,
            "inference": self.inference,
            **({} if self.paper_mu is None else {"paper_mu": str(self.paper_mu)}),
            **described(self.bootstrap.statistic),
            **self.terms.describe(),
            **resampling_noise.described(self.rules),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        statistic = DeclaredStatistic.from_description(description)
        n, replicates = (int(str(description[key])) for key in ("n_records", "replicates"))
        noise = StatisticNoise(
            statistic.constant / n, statistic.dimension, number(description, "scale")
        )
        strict = description["calibration"] == "strict"
        bootstrap = BootstrapReplicates(
            statistic, n, replicates, noise, "strict" if strict else "paper"
        )
        named: dict[object, Inference] = {each: each for each in get_args(Inference)}
        inference = named[description["inference"]]
        count = statistic.dimension if inference == "calibrated" else 0
        return cls(
            bootstrap,
            inference,
            Terms.from_description(description),
            resampling_noise.from_description(description, count),
            None if strict else number(description, "paper_mu"),
        )

    def _replicates(self, raw: RawEstimates) -> Iterator[tuple[str, Scale, NoisyReplicates]]:
        """Each number's replicates, with what it is and its scale."""
        for i, (quantity, scale) in enumerate(
            zip(self.terms.quantities, self.terms.scales, strict=True), 1
        ):
            values = np.array(raw.numbers[f"replicates_{i}"], np.float64)
            yield quantity, scale, self.bootstrap.inference(values[:, None])

    def _interval(self, i: int, found: NoisyReplicates) -> tuple[float, float, bool]:
        """Of the i-th number, counted from 0."""
        level = self.terms.confidence
        if self.inference == "calibrated":
            interval = found.calibrated_interval(level, self.rules[i])
        elif self.inference == "percentile":
            interval = found.percentile_interval(level)
        else:
            interval = found.t_interval(level)
        return interval.lower, interval.upper, interval.valid

    def _estimate(self, i: int, quantity: str, scale: Scale, found: NoisyReplicates) -> Estimate:
        low, high = self.bootstrap.statistic.bounds
        lower, upper, valid = self._interval(i, found)
        point = found.estimate
        return Estimate(
            quantity=quantity,
            value=scale.value(point.value),
            lower=scale.value(min(max(lower, low), high)),
            upper=scale.value(min(max(upper, low), high)),
            confidence=self.terms.confidence,
            inference="approximate",
            standard_error=scale.factor * point.standard_error or None,
            valid=valid,
        )
