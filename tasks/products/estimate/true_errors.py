"""The true errors of estimates: each next to its value on the confidential records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.estimates.exact_values import exact_values
from mechanisms.estimates.mechanism import EstimateMechanism
from mechanisms.estimates.released import Estimate
from mechanisms.inference.intervals import normal_quantile
from mechanisms.planning.plan import PlannedProduct
from tasks.pages.blocks import Block, Grid, Prose, Section
from tasks.pages.numbers import interval, measured, share
from tasks.products.true_errors import Compared, TrueErrors, compared

if TYPE_CHECKING:
    from tasks.products.estimate.files import DerivedEstimates

_ABOUT = (
    "The true value is the estimate that the confidential records themselves would give, without "
    "noise. The intervals are about the population of which these records are a sample, and allow "
    "for sampling too: one that does not hold the value of the records may hold that of the "
    "population, and most hold both. The promise is for records spread evenly over the declared "
    "ranges: of a variance, covariance, correlation, regression or ratio the noise depends on the "
    "records, and a bootstrap's estimates vary with its draws besides."
)
_CHANCE = 0.99


def estimate_errors(
    product: PlannedProduct[EstimateMechanism],
    derived: DerivedEstimates,
    private: ContingencyTable,
) -> TrueErrors:
    """Of every quantity; see ``ProductKind.true_errors``."""
    exact = exact_values(product.request.knobs, private, product.mechanism.terms.scales)
    rows, compared_rows, inside = [], [], 0
    expected = product.expected_error
    for found, true, sd in zip(derived.estimates, exact, expected.noise_sd, strict=True):
        held = holds(found, true)
        inside += held
        error = abs(found.value - true)
        rows.append(
            [
                found.quantity,
                measured(found.value),
                measured(true),
                measured(error),
                "" if sd is None else measured(sd),
                interval(found.lower, found.upper),
                "yes" if held else "no",
            ]
        )
        compared_rows.append(noise_of_one(found.quantity, sd, error))
    level = share(derived.estimates[0].confidence)
    of = len(derived.estimates)
    verdict = "about the population, so that most hold the records' value too"
    compared_rows.append(
        Compared(
            "intervals that hold the value of the records", level, f"{inside} of {of}", verdict
        )
    )
    headings = (
        "quantity", "released", "true, of the records", "error", "sd of the noise, promised",
        "interval", "holds it",
    )  # fmt: skip
    blocks: list[Block] = [Prose([_ABOUT]), Grid(headings, rows)]
    return TrueErrors(compared_rows, Section(f"product-{product.name}", product.name, blocks))


def noise_of_one(quantity: str, sd: float | None, error: float) -> Compared:
    """A single error beside the mean that is promised, and how far chance lets it be from that.

    Of normal noise 42 of 100 errors pass their mean and 23 pass it by half: no promise is broken.
    """
    words = f"{quantity}: noise, mean absolute"
    promised = None if sd is None else sd * math.sqrt(2 / math.pi)
    found = compared(words, promised, error)
    if sd is None or not (0 < sd < math.inf) or not math.isfinite(error):
        return found
    most = normal_quantile(_CHANCE) * sd
    allowed = "as" if error <= most else "more than"
    return found._replace(verdict=f"{allowed} chance allows, up to {measured(most, 3)}")


def holds(found: Estimate, true: float) -> bool:
    """Whether a confidence set holds a value: from end to end, but for its gap."""
    if not found.lower <= true <= found.upper:
        return False
    return found.gap is None or not found.gap[0] < true < found.gap[1]
