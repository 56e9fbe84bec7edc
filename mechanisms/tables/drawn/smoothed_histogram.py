"""Smoothed histogram: the bootstrap's draws, few enough for a budget without delta.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), Theorems 8 and 9, on the declared
cells. Released are m iid draws from (1 - w) h/n + w/|domain|, which is the bootstrapping
mechanism's distribution at the pseudocount n w/(|domain| (1 - w)) (mechanisms/README.md, section
2). So this is that mechanism under another calibration: its loss is the same exact value, whose
epsilon at delta 0 is m log((c + pseudocount)/pseudocount), the theorem's equation 8 in one of c
records.

By default m balances the error of sampling against w (``balanced_draws``), and w is the
smallest that meets the budget. The theorem counts w as a bias of the records drawn; the
estimates of the counts are free of it, and vary least for m near n epsilon/|domain|, where w
is about a half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar, Self

from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import PROOF, WASSERMAN_ZHOU, Citation
from mechanisms.base.mechanism import Target
from mechanisms.errors import ConfigError, InfeasibleBudgetError
from mechanisms.sampling.density_sampler import balanced_draws
from mechanisms.tables.drawn.bootstrap import Bootstrap, BootstrapKnobs
from mechanisms.tables.drawn.exponential_records import check_records


@dataclass(frozen=True, kw_only=True)
class SmoothedHistogramKnobs:
    """What a config may say about this mechanism.

    Attributes:
        records: Number of draws m.
        uniform: Share w of the uniform distribution, above 0 and below 1.
    """

    records: int | None = None
    uniform: Fraction | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            check_records(self.records, "records")
        check_uniform(self.uniform)


class SmoothedHistogram(Bootstrap):
    """The mechanism at fixed parameters: those of ``Bootstrap``."""

    name: ClassVar[str] = "smoothed_histogram"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorems 8 and 9"),
        PROOF.at("Theorems 2.1 to 2.3"),
    )
    knobs: ClassVar[type] = SmoothedHistogramKnobs
    pure: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet a target, from public quantities only.

        Raises:
            InfeasibleBudgetError: No parameters, or not the given ones, meet it.
        """
        n, cells, w, records = target.n_records, target.n_cells, knobs.uniform, knobs.records
        if records is None:
            epsilon = Fraction(target.pure_epsilon())
            records = balanced_draws(n, epsilon, Fraction(cells))
        if w is not None:
            given = cls(n * w / (cells * (1 - w)), records)
            loss = given.loss(**target.frame)
            if target.allows(loss):
                return given
        least = super().calibrate(BootstrapKnobs(records=records), target)
        if w is not None:
            share = least.pseudocount * cells / (n + least.pseudocount * cells)
            raise InfeasibleBudgetError(
                f"{records:,} records at the uniform share {float(w):g} need an epsilon of "
                f"{needed_epsilon(loss)}.",
                next_step=f"Give a share of {math.ceil(share * 10**6) / 10**6:g}, fewer "
                "records, or a budget of at least that epsilon.",
            )
        return least


def needed_epsilon(loss: PrivacyLoss) -> str:
    """The budget without delta that a loss needs, to six digits rounded up."""
    exact = Decimal(loss.pure_epsilon.upper)
    return f"{Context(prec=6, rounding=ROUND_CEILING).create_decimal(exact):f}"


def check_uniform(uniform: Fraction | None) -> None:
    """Refuse a share that leaves nothing, or nothing but, the uniform distribution."""
    if uniform is not None and not 0 < uniform < 1:
        raise ConfigError("The uniform share must be above 0 and below 1.", where="uniform")
