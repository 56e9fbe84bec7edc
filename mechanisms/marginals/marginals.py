"""Microdata of any width from noisy low-order marginals.

All steps are discrete Gaussian noise on a fine grid inside one filter of mu^2
(mechanisms.marginals.gdp_filter), so the whole is charged as one mu-GDP mechanism although its
steps depend on each other's results. Adjacency: replace-one; a unit holds c records.

1. Tables of every column (mechanisms.marginals.measurement).
2. Scores of all pairs: how far each is from independence (optional, the same module).
3. Tables of the pairs, or of the groups of the workload, each with its part of what is left by
   its expected error (mechanisms.marginals.allocation).

The rest is free: all tables are combined with exact variances (mechanisms.marginals.residuals),
the pairs denoised together (mechanisms.marginals.denoising), and records made that have the
one-way tables exactly and the others nearly (mechanisms.marginals.synthesis). It draws from a
generator that depends on the release only, so that the same release gives the same records.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import DONG_ROTH_SU, PROOF, SMITH_THAKURTA, Citation
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Needs, Target, check_frame
from mechanisms.domain.coded_columns import CodedColumns
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from mechanisms.marginals.allocation import Shares, default_shares, least_part
from mechanisms.marginals.expected_error import ExpectedMarginals, expected_marginals
from mechanisms.marginals.knobs import (
    ALL_PAIRS,
    MarginalsKnobs,
    all_pairs,
    check_sizes,
    groups_of,
    is_screened,
)
from mechanisms.marginals.measurement import scale_of
from mechanisms.marginals.model import Model, model_of
from mechanisms.marginals.private_steps import Workload, release_marginals
from mechanisms.marginals.released import KnownTotals, NoisyMarginals
from mechanisms.marginals.residuals import Residuals
from mechanisms.marginals.synthesis import synthesise
from mechanisms.records.impossible import boxes_of
from mechanisms.records.known_totals import check_known, totals_of
from mechanisms.records.target_table import Group
from mechanisms.sampling.randomness import Progress, Randomness
from mechanisms.tables.kind import MICRODATA

Relation = Literal["known", "measured", "shrunk away", "assumed independent"]
_SHRUNK = 0.5  # of the variance of the noise


@dataclass(frozen=True, eq=False)
class Microdata:
    """Synthetic records and what they were made from; all of it public.

    Attributes:
        domain: The declared columns.
        codes: For every column the codes of all records, in the smallest unsigned dtype.
        residuals: The unbiased combination of all tables, for estimates with errors.
        relations: For every pair of columns what is known of it.
    """

    domain: Domain
    codes: tuple[NDArray[Any], ...]
    residuals: Residuals
    relations: Mapping[Group, Relation]


@dataclass(frozen=True)
class Marginals:
    """The mechanism at fixed parameters; all of them are public.

    Attributes:
        mu: Of the whole release.
        unit_records: Most records of a unit, c.
        sizes: Number of codes of every column.
        groups: The workload; empty for a single column.
        shares: Of mu^2 for the first two steps.
        records: Number of records to publish; 0 for as many as there are.
        uniform: Whether values are drawn within their cells, and not in the middle.
        known: Public exact tables, which are not measured.
    """

    name: ClassVar[str] = "marginals"
    citations: ClassVar[tuple[Citation, ...]] = (
        SMITH_THAKURTA.at("Theorem 1"),
        DONG_ROTH_SU,
        PROOF.at("Theorem 11.1, Lemma 11.2"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (MICRODATA,)
    knobs: ClassVar[type] = MarginalsKnobs
    pure: ClassVar[bool] = False
    unbiased: ClassVar[bool] = True
    needs: ClassVar[Needs] = "columns"

    mu: Fraction
    unit_records: int
    sizes: tuple[int, ...]
    groups: tuple[tuple[Group, float], ...]
    shares: Shares
    records: int = 0
    uniform: bool = False
    known: KnownTotals = dataclasses.field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.mu <= 0 or self.unit_records < 1 or self.records < 0 or not self.sizes:
            raise RecordsError("mu, unit_records and the sizes of columns must be positive.")

    @classmethod
    def calibrate(cls, knobs: MarginalsKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: Columns, groups or records that the mechanism cannot serve.
            InfeasibleBudgetError: The budget has no delta, or does not suit the noise's grid.
        """
        if target.domain is None:
            raise ConfigError(f"The mechanism '{cls.name}' needs the product's columns.")
        sizes = tuple(column.size for column in target.domain.columns)
        groups = groups_of(knobs, target.domain)
        check_sizes(target.domain, groups, target.n_records)
        mu = target.largest_mu()
        screened = is_screened(knobs, groups)
        shares = default_shares(
            n=target.n_records,
            mu=float(mu) / target.unit_records,
            sizes=sizes,
            screened=screened,
            tables=bool(groups),
        )
        if groups and knobs.one_way_share is not None:
            shares = dataclasses.replace(shares, one_way=knobs.one_way_share)
        if screened and knobs.screen_share is not None:
            shares = dataclasses.replace(shares, screen=knobs.screen_share)
        if groups and shares.one_way + shares.screen >= 1:
            raise ConfigError(
                "The shares leave nothing for tables of several columns.", where="one_way_share"
            )
        least = Fraction(least_part(sizes, groups, shares))
        if not least:
            raise InfeasibleBudgetError("The shares and weights leave a table without a budget.")
        try:
            for part in (least, Fraction(1)):
                scale_of(2 * target.unit_records**2, mu**2 * part)
        except RecordsError:
            raise InfeasibleBudgetError("The budget does not suit the noise's grid.") from None
        records = 0 if knobs.records == "n" else knobs.records
        uniform = knobs.within_cells == "uniform"
        made = cls(mu, target.unit_records, sizes, groups, shares, records, uniform)
        if not knobs.known:
            return made
        totals = totals_of(knobs.known, target.domain)
        return made.knowing(totals, target.domain, target.n_records)

    def knowing(self, known: KnownTotals, domain: Domain, n_records: int) -> Self:
        """The mechanism with public exact totals of some columns and pairs.

        Raises:
            ConfigError: The totals contradict each other, the number of records or the zeros.
        """
        if known and self.records not in (0, n_records):
            raise ConfigError(
                "Known totals can be met only by as many records as there are.", where="records"
            )
        return dataclasses.replace(self, known=check_known(known, domain, n_records))

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """mu-GDP for units of up to ``unit_records``, and in proportion for others."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        return GaussianLoss(self.mu * Fraction(unit_records, self.unit_records))

    def release(
        self, coded: CodedColumns, rng: Randomness, progress: Progress | None = None
    ) -> NoisyMarginals:
        """The private steps; what they give back is public."""
        return release_marginals(
            coded,
            Workload(self.groups),
            self.shares,
            self.mu**2,
            unit_records=self.unit_records,
            rng=rng,
            known=self.known,
            progress=progress,
        )

    def postprocess(self, release: NoisyMarginals) -> Microdata:
        """Records and estimates; a function of the release only.

        Raises:
            ConfigError: Known totals and structural zeros leave no possible records.
        """
        model = model_of(release)
        published = self.records or max(1, round(model.n))
        codes = synthesise(
            model,
            published,
            release.public_generator(),
            boxes=boxes_of(release.domain),
            known=release.known,
        )
        columns = tuple(codes[:, j] for j in range(codes.shape[1]))  # no copies of all records
        return Microdata(release.domain, columns, model.residuals, relations(model))

    def rows(self, *, n_cells: int) -> int:
        """Noisy cells at most: those of all columns, and of all groups of the workload."""
        grouped = (math.prod(self.sizes[column] for column in group) for group, _ in self.groups)
        return sum(self.sizes) + sum(grouped)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedMarginals:
        return expected_marginals(
            self.sizes,
            self.groups,
            self.shares,
            mu=float(self.mu) / self.unit_records,
            n_records=n_records,
            published=self.records or n_records,
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but the known totals."""
        groups = ("+".join(map(str, group)) + f":{weight!r}" for group, weight in self.groups)
        listed = ALL_PAIRS if self.groups == all_pairs(len(self.sizes)) else " ".join(groups)
        return {
            "mechanism": self.name,
            "mu": str(self.mu),
            "most_unit_records": self.unit_records,
            "sizes": " ".join(map(str, self.sizes)),
            "groups": listed,
            "one_way_share": repr(self.shares.one_way),
            "screen_share": repr(self.shares.screen),
            "published_records": self.records,
            "within_cells": "uniform" if self.uniform else "middle",
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        text = {key: str(value) for key, value in description.items()}
        sizes = tuple(map(int, text["sizes"].split()))
        groups = []
        for each in text["groups"].split() if text["groups"] != ALL_PAIRS else ():
            columns, weight = each.split(":")
            groups.append((tuple(map(int, columns.split("+"))), float(weight)))
        return cls(
            Fraction(text["mu"]),
            int(text["most_unit_records"]),
            sizes,
            all_pairs(len(sizes)) if text["groups"] == ALL_PAIRS else tuple(groups),
            Shares(float(text["one_way_share"]), float(text["screen_share"])),
            int(text["published_records"]),
            text["within_cells"] == "uniform",
        )


def relations(model: Model) -> dict[Group, Relation]:
    """For every pair of columns what is known of it."""
    found: dict[Group, Relation] = {}
    for pair in model.pairs:
        if pair not in model.residuals.values:
            found[pair] = "assumed independent"
        elif not model.residuals.variances[pair]:
            found[pair] = "known"
        else:
            found[pair] = "shrunk away" if model.signal[pair] < _SHRUNK else "measured"
    return found
