"""Sample and resample: one of N public candidate datasets, chosen by its distance to the data.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 6, with the distances of
section 5; scores, sensitivities and the exact choice are mechanisms.tables.drawn.candidate_scores.
The candidates are k records each, from a proposal that sees no data (uniform, or Dirichlet
probabilities with a given ``concentration``); they may be published, and their number costs
nothing.

**Distances**, and the default of k: ``ks`` and ``cramer_von_mises``, n^(2/3) (Theorems 15
and 16); ``mean``, the Euclidean distance of the mean positions, 1 (section 5.2: one record
carries a mean); ``series``, the L2 distance of orthogonal cosine series with n^(1/(2 gamma
+ 1)) and k^(1/(2 gamma + 1)) terms, sqrt n (Theorem 18, which asks for gamma above 1).
Columns are axes of a grid, in the declared order of their cells; ``series`` takes one.

**Error.** Besides the bias of mechanisms.tables.drawn.exponential_records, N candidates reach no
nearer than the best of them: of k uniform records, to a Kolmogorov-Smirnov distance of about
pi/sqrt(8 k log N) of data that are near uniform themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal, Self, cast, get_args

import numpy as np

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.base.citation import CESAR_ROGERS, MCSHERRY_TALWAR, PROOF, WASSERMAN_ZHOU, Citation
from mechanisms.base.mechanism import Target
from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError, RecordsError
from mechanisms.sampling.randomness import Progress, Randomness
from mechanisms.tables.drawn.candidate_scores import (
    Scores,
    choose_candidate,
    cramer_von_mises_scores,
    draw_candidates,
    feature_scores,
    ks_scores,
    mean_features,
    series_features,
    series_terms,
)
from mechanisms.tables.drawn.exponential_records import (
    ExponentialRecords,
    check_records,
    dense_counts,
    grid_shape,
    sparse_table,
)
from mechanisms.tables.expected_error import BRIDGE, ExpectedCounts

Distance = Literal["ks", "cramer_von_mises", "mean", "series"]
_MOST_COUNTS = 4_000_000  # over all cells of all candidates
_MOST_TERMS = 200
_MOST_PRODUCT = 1 << 62  # of n and k, for exact distances
_INSTEAD = "Declare fewer cells, or use 'smoothed_histogram' or 'bootstrap'."
_LEAST, _MOST = Fraction(1, 1000), Fraction(1000)


@dataclass(frozen=True, kw_only=True)
class SampleResampleKnobs:
    """What a config may say about this mechanism.

    Attributes:
        distance: Between the data and a candidate.
        candidates: Their number, N.
        records: Of each, k; by default as the module says.
        smoothness: gamma of ``series``, above 1/2; by default 2.
        concentration: Of the Dirichlet distribution that each candidate's probabilities
            are drawn from first, 1/1000 to 1000; by default they are uniform.
    """

    distance: Distance = "ks"
    candidates: int = 1000
    records: int | None = None
    smoothness: Fraction | None = None
    concentration: Fraction | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            check_records(self.records, "records")
        _check(self.distance, self.candidates, self.smoothness, self.concentration)


@dataclass(frozen=True, kw_only=True)
class SampleResample(ExponentialRecords):
    """The mechanism at fixed parameters; see its knobs."""

    name: ClassVar[str] = "sample_resample"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorem 5, section 6"),
        MCSHERRY_TALWAR,
        CESAR_ROGERS,
        PROOF.at("Theorem 4.3"),
    )
    knobs: ClassVar[type] = SampleResampleKnobs

    distance: Distance
    candidates: int
    smoothness: Fraction | None = None
    concentration: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.distance, self.candidates, self.smoothness, self.concentration)
        if (self.smoothness is None) == (self.distance == "series"):
            raise ConfigError("'series' has a smoothness and no other distance.")

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> ContingencyTable:
        """Draw the candidates and choose one, held as counts per drawn cell."""
        counts = dense_counts(table)
        spread = None if self.concentration is None else float(self.concentration)
        public = draw_candidates(
            self.candidates, len(counts), self.records, rng, concentration=spread
        )
        scores = self.scores(counts, public, grid_shape(table.domain))
        chosen = public[choose_candidate(scores, self.epsilon, rng)]
        if progress is not None:
            progress(self.records)
        return sparse_table(table.domain, chosen)

    def scores(self, counts: Codes, public: Codes, shape: tuple[int, ...]) -> Scores:
        """Distances of candidates int64[N, s] to counts int64[s], in sensitivities. Private."""
        if self.distance in ("ks", "cramer_von_mises"):
            score = ks_scores if self.distance == "ks" else cramer_von_mises_scores
            return score(counts.reshape(shape), public.reshape(len(public), *shape))
        if self.distance == "mean":
            return feature_scores(counts, public, mean_features(shape))
        assert self.smoothness is not None
        terms, kept = (
            _terms(records, self.smoothness, len(counts))
            for records in (int(counts.sum()), self.records)
        )
        features = series_features(len(counts), max(terms, kept))
        ours, theirs = (
            np.where(np.arange(len(features))[:, np.newaxis] < number, features, 0)
            for number in (terms, kept)
        )
        return feature_scores(counts, public, ours, theirs)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error of k records; for ``ks`` as the module says. A guide, not a bound."""
        error = super().expected_error(n_records=n_records, n_cells=n_cells)
        if self.distance != "ks" or self.candidates == 1:
            return error
        k, e = self.records, float(self.epsilon) * n_records
        best = math.pi / math.sqrt(8 * k * math.log(self.candidates))
        chosen = (math.pi**2 / (2 * k * e)) ** (1 / 3)
        distance = min(max(best, chosen), BRIDGE / math.sqrt(k), 1.0)
        return replace(error, kolmogorov_smirnov=distance)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        optional = {
            name: Fraction(str(description[name]))
            for name in ("smoothness", "concentration")
            if name in description
        }
        return cls(
            epsilon_per_record=Decimal(str(description["epsilon_per_record"])),
            records=int(str(description["records"])),
            distance=cast(Distance, description["distance"]),
            candidates=int(str(description["candidates"])),
            **optional,
        )

    @classmethod
    def calibrate(cls, knobs: SampleResampleKnobs, target: Target) -> Self:
        """The largest epsilon that the target allows.

        Raises:
            ConfigError: The product has too many columns or cells, or there are too many
                records or candidates for it.
            InfeasibleBudgetError: The budget is next to nothing.
        """
        series = knobs.distance == "series"
        columns, instead = (1, "Use another distance.") if series else (None, _INSTEAD)
        target.grid(cls.name, columns=columns, instead=instead)
        if knobs.candidates * target.n_cells > _MOST_COUNTS:
            raise ConfigError(
                f"{knobs.candidates:,} candidates over {target.n_cells:,} cells are more than "
                f"{_MOST_COUNTS:,} counts.",
                next_step=f"Give fewer candidates. {_INSTEAD}",
            )
        n = target.n_records
        power = {"mean": 0.0, "series": 0.5}.get(knobs.distance, 2 / 3)
        most = max(1, (_MOST_PRODUCT - 1) // n)
        records = knobs.records or min(max(1, round(n**power)), 10**6, most)
        if records > most:
            raise RecordsError(
                f"{records:,} records are too many for exact distances to {n:,}.",
                next_step=f"Give at most {most:,} records.",
            )
        smoothness = (knobs.smoothness or Fraction(2)) if series else None
        if smoothness is not None and _terms(n, smoothness, target.n_cells) > _MOST_TERMS:
            raise ConfigError(
                f"A series of this smoothness has more than {_MOST_TERMS} terms.",
                next_step="Give a larger smoothness.",
            )
        return cls(
            epsilon_per_record=target.pure_epsilon(BoundedRangeLoss),
            records=records,
            distance=knobs.distance,
            candidates=knobs.candidates,
            smoothness=smoothness,
            concentration=knobs.concentration,
        )


def _terms(records: int, smoothness: Fraction, n_cells: int) -> int:
    """Terms of a series; further ones are 0 or repeat others at the middles of s cells."""
    return min(series_terms(records, smoothness), max(n_cells - 1, 1))


def _check(
    distance: str, candidates: int, smoothness: Fraction | None, concentration: Fraction | None
) -> None:
    if distance not in get_args(Distance):
        raise ConfigError(
            f"There is no such distance; there are {', '.join(get_args(Distance))}.",
            where="distance",
        )
    if not 1 <= candidates <= _MOST_COUNTS:
        raise ConfigError(
            f"The number of candidates must be between 1 and {_MOST_COUNTS:,}.", where="candidates"
        )
    if smoothness is not None:
        if distance != "series":
            raise ConfigError("A smoothness goes only with 'distance: series'.", where="smoothness")
        if not Fraction(1, 2) < smoothness <= 100 or smoothness.denominator > 1000:
            raise ConfigError(
                "The smoothness must be above 1/2 and at most 100, with a denominator of at "
                "most 1000.",
                where="smoothness",
            )
    if concentration is not None and not _LEAST <= concentration <= _MOST:
        raise ConfigError(
            "The concentration must be between 1/1000 and 1000.", where="concentration"
        )
