"""What a plan says of its products before any data is read: mostly noise, or nearly disclosed.

A product is *mostly noise* if more than half of its records are expected to be uniform, or if the
expected error from noise of what an analyst will read is above a quarter: of a table its own total
variation, of microdata that of tables of two columns, on the planner's reference shapes; of an
estimate half its interval, and of a function what noise adds to its largest error, as shares of
what is possible (``Kind.noise_figure``). It is *nearly disclosed* if no count is expected to be off
by half a record, and so is a whole release at an epsilon above 10.

All figures are public, and verdicts rules of thumb: no guarantee depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mechanisms.base.kind import MOST_NOISE
from mechanisms.planning.plan import Plan, PlannedProduct

MOST_UNIFORM = 0.5
"""Share of the records that may be uniform."""

LEAST_NOISE = 0.5
"""Standard deviation, in records, below which a count is nearly disclosed."""

MOST_EPSILON = 10
"""Epsilon above which a whole release is."""

Name = Literal["usable", "mostly_noise", "nearly_disclosed", "not_known"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verdict with the public figure that it follows from.

    Attributes:
        name: What it is.
        figure: What decided, in words; empty if nothing is known.
        value: The figure; None if it is not known.
        threshold: What it was compared with; likewise.
    """

    name: Name
    figure: str = ""
    value: float | None = None
    threshold: float | None = None

    @classmethod
    def stated(cls, product: Mapping[str, Any]) -> Verdict | None:
        """The one that a bundle states of a product; bundles of earlier versions have none."""
        facts = product.get("verdict")
        if facts is None:
            return None
        return cls(**{name: value for name, value in facts.items() if name != "accepted"})

    @property
    def words(self) -> str:
        """The verdict with its figure, for a person."""
        said = self.name.replace("_", " ")
        if self.value is None or self.threshold is None:
            return f"{said}: the error depends on the data"
        side = "above" if self.value > self.threshold else "below"
        if self.value == self.threshold:
            side = "not above"
        return f"{said}: {self.figure} {self.value:.3g}, {side} {self.threshold:g}"


def verdict(product: PlannedProduct[Any]) -> Verdict:
    """The verdict on a product, from public quantities only."""
    kind, error = product.kind, product.expected_error
    uniform: float = getattr(error, "uniform_share", 0.0)
    if uniform > MOST_UNIFORM:
        return Verdict(
            name="mostly_noise",
            figure="share of records that are uniform",
            value=uniform,
            threshold=MOST_UNIFORM,
        )
    figure = kind.noise_figure(product.mechanism, error, product.target)
    if figure is not None and figure.value > MOST_NOISE:
        return Verdict(
            name="mostly_noise", figure=figure.words, value=figure.value, threshold=MOST_NOISE
        )
    sd = kind.largest_noise(error)
    if sd is not None and sd < LEAST_NOISE:
        return Verdict(
            name="nearly_disclosed",
            figure="expected noise of every count, in records,",
            value=sd,
            threshold=LEAST_NOISE,
        )
    if figure is None:
        return Verdict(name="not_known")
    return Verdict(name="usable", figure=figure.words, value=figure.value, threshold=MOST_NOISE)


def release_verdict(plan: Plan) -> Verdict | None:
    """That the whole release is nearly disclosed; None if its epsilon is not that large."""
    epsilon = float(plan.epsilon)
    if epsilon <= MOST_EPSILON:
        return None
    return Verdict(
        name="nearly_disclosed",
        figure="epsilon",
        value=epsilon,
        threshold=MOST_EPSILON,
    )


def disclosures(plan: Plan) -> list[str]:
    """Warnings that the release nearly discloses its table, in words; mostly there are none."""
    found = []
    whole = release_verdict(plan)
    if whole is not None:
        found.append(
            f"The release nearly discloses the records: epsilon {whole.value:.4g} is "
            f"above {MOST_EPSILON}."
        )
    for product in plan.products:
        each = verdict(product)
        if each.name == "nearly_disclosed":
            found.append(
                f"'{product.name}' nearly discloses its table: the noise of every count "
                f"is expected to be {each.value:.2g} records, below {LEAST_NOISE:g}."
            )
    return found
