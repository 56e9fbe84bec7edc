"""Weighted samples of a population of integers, and the noisy tables of a release of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from coded import in_memory
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Column, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.marginals import ColumnGroup, Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, Residuals, combine
from statpress.mechanisms.marginals.survey_weights import SurveyWeight, class_values
from statpress.mechanisms.marginals.target_tables import Group, counts_of
from statpress.mechanisms.marginals.weighted_sums import Weights
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

WEIGHT, STRATUM, CLUSTER = "wgt", "stratum", "cluster"
EDGES = (5.0, 15.0, 25.0, 55.0, 105.0)
"""Of classes whose middles are 10, 20, 40 and 80."""
RATES = np.array([10, 20, 40, 80])


@dataclass(frozen=True, eq=False)
class Population:
    """Households with their values, and where they can be drawn.

    Attributes:
        values: By column int64[N], from 0.
        stratum: int64[N] below 4: of which one in 10, 20, 40 or 80 is drawn.
        cluster: int64[N]: the place of a household in its stratum; None if single ones are drawn.
    """

    values: Mapping[str, NDArray[np.int64]]
    stratum: NDArray[np.int64]
    cluster: NDArray[np.int64] | None = None

    def drawn(self, rng: np.random.Generator) -> tuple[dict[str, NDArray[Any]], int]:
        """The columns of a sample, and the number of drawn clusters, 0 without.

        Single ones are drawn without replacement. Of clusters that are equally large as many are
        drawn as the rates say, each household of them, and they are numbered anew.
        """
        places, numbers, n_clusters = [], [], 0
        for h, rate in enumerate(RATES):
            own = np.flatnonzero(self.stratum == h)
            if self.cluster is None:
                places.append(rng.choice(own, len(own) // rate, replace=False))
                continue
            listed = np.unique(self.cluster[own])
            for each in rng.choice(listed, len(listed) // rate, replace=False):
                inside = own[self.cluster[own] == each]
                places.append(inside)
                numbers.append(np.full(len(inside), n_clusters))
                n_clusters += 1
        taken = np.concatenate(places)
        columns: dict[str, NDArray[Any]] = {k: v[taken] for k, v in self.values.items()}
        columns[STRATUM] = self.stratum[taken]
        if numbers:
            columns[CLUSTER] = np.concatenate(numbers)
        columns[WEIGHT] = self.stratum[taken]  # its class
        return columns, n_clusters


def domain_of(columns: Mapping[str, NDArray[Any]], declared: Sequence[Column] = ()) -> Domain:
    """Integers from 0 unless a column of the name is declared, and the weight."""
    others = {column.name: column for column in declared}
    found: list[Column] = [
        others.get(name, Integer(name=name, lower=0, upper=int(values.max())))
        for name, values in columns.items()
        if name != WEIGHT
    ]
    return Domain((*found, Numeric(name=WEIGHT, edges=EDGES)))


@dataclass(frozen=True, eq=False)
class Measured:
    """What a release measures of every sample of a design, with scales that no data decide.

    Attributes:
        domain: The columns.
        tables: Groups of columns with the scale of their noise.
    """

    domain: Domain
    tables: tuple[tuple[Group, Fraction], ...]

    @classmethod
    def of(
        cls,
        columns: Mapping[str, NDArray[Any]],
        epsilon: float,
        *,
        declared: Sequence[Column] = (),
        groups: Sequence[Sequence[str]] = (),
    ) -> Measured:
        """By a release of one sample in which all pairs are measured, and some groups."""
        domain = domain_of(columns, declared)
        codes = np.stack([columns[name] for name in domain.names], axis=1).astype(np.uint16)
        target = Target(epsilon=epsilon, delta=1e-6, n_records=len(codes), n_cells=2, domain=domain)
        design = {"strata": STRATUM} | ({"cluster": CLUSTER} if CLUSTER in columns else {})
        knobs = MarginalsKnobs(
            screen="no",
            weight=SurveyWeight(column=WEIGHT, **design),
            groups=tuple(ColumnGroup(columns=tuple(group)) for group in groups),
        )
        made = Marginals.calibrate(knobs, target)
        release = made.release(in_memory(domain, codes), SeededRandomness(np.random.PCG64(1)))
        found = [(table.group, table.scale) for table in (*release.one_way, *release.tables)]
        return cls(domain, tuple(found))

    def residuals(self, columns: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Residuals:
        """The noisy tables of a sample, combined."""
        sizes = [column.size for column in self.domain.columns]
        codes = np.stack([columns[name] for name in self.domain.names], axis=1).astype(np.uint16)
        groups = [group for group, _ in self.tables]
        shapes = [tuple(sizes[c] for c in group) for group in groups]
        noisy = []
        counted = counts_of(codes, groups, shapes)
        for (group, scale), shape, flat in zip(self.tables, shapes, counted, strict=True):
            noise = np.rint(rng.normal(0, float(scale), shape)).astype(np.int64)
            noisy.append(NoisyTable(group, scale, flat.reshape(shape) * GRID + noise))
        return combine(sizes, noisy, n_present=len(codes))

    def analyses(
        self, residuals: Residuals, n: int, *, strata: bool, clusters: bool, sample: bool = True
    ) -> Analyses:
        """Weighted figures of the population, with as much of the design as is declared."""
        names = self.domain.names
        weights = Weights(
            residuals=residuals,
            column=names.index(WEIGHT),
            values=class_values(self.domain, WEIGHT),
            strata=names.index(STRATUM) if strata else None,
            cluster=names.index(CLUSTER) if clusters else None,
        )
        return Analyses(
            domain=self.domain,
            residuals=residuals,
            sample=Sample(n_units=n) if sample else None,
            weights=weights,
        )


def covers(interval: Interval, truth: float) -> bool:
    """Whether an interval holds the truth."""
    return interval.lower <= truth <= interval.upper
