"""What other products of a release measured of the columns of microdata by marginals.

One release tells one truth: records are fitted to everything in it that bears on their columns. All
of it is public, and the noise of each product is independent of that of the others, so that tables
combine by inverse variances (mechanisms.marginals.residuals). A product bears on records if it has
the same column, declared alike, and its noise is known without that of sampling: noisy counts of
all cells of one or two columns, and means, shares and sums of one column from noisy sums. Where a
column names the units nothing enters: products may then hold other records of the same unit, which
differ by more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.planning.plan import Plan, PlannedProduct

if TYPE_CHECKING:
    from statpress.mechanisms.estimates.estimate import RawEstimates
    from statpress.mechanisms.estimates.joint_moments import MeanEstimate
    from statpress.mechanisms.marginals.marginals import Microdata
    from statpress.mechanisms.marginals.residuals import NoisySum, NoisyTable

MOST_APART = 3.0
"""Standard errors beyond which records and a figure of the same release are said to differ."""
_STRETCH = 2.5  # half the variance of a square of Laplace noise over that of its mean
_LEAST_PROBABILITY = 1e-300
_MOST_COUNT = 2**42  # fits on the grid


def with_beside(product: PlannedProduct[Any], plan: Plan, drawn: Mapping[str, Any]) -> Any:
    """What a product drew, for microdata by marginals with what stands beside it.

    Args:
        product: Whose release is asked for.
        plan: With all products.
        drawn: What each released, by name.
    """
    raw = drawn[product.name]
    found = tuple(measured for _, measured in _beside(product, plan, drawn))
    if placed_by := getattr(product.mechanism, "placed_by", None):
        from statpress.mechanisms.places.placed_records import PlacesOfRecords

        placing = PlacesOfRecords(drawn[placed_by.product])
        raw = replace(raw, placing=placing)
        found += tuple(placing.whole(raw.domain))
    return replace(raw, beside=found) if found else raw


def differences(plan: Plan, drawn: Mapping[str, Any], derived: Mapping[str, Any]) -> list[str]:
    """What readers have to know of records that are apart from what stands beside them.

    Args:
        plan: With all products.
        drawn: What each released, by name.
        derived: What follows from it.
    """
    texts, n_records = [], plan.size_of(drawn)
    for product in plan.products:
        for other, measured in _beside(product, plan, drawn):
            apart = _apart(derived[product.name].microdata, measured, n_records)
            if apart > MOST_APART:
                texts.append(
                    f"The records of {product.name} differ from {other} by more than "
                    f"{MOST_APART:g} standard errors of their noise together, which is rare by "
                    f"chance. Where they differ take the figures of {other}, whose errors are "
                    "stated."
                )
    return texts


def _apart(microdata: Microdata, measured: NoisyTable | NoisySum, n_records: int) -> float:
    """How far records are from a measurement, in standard errors of its noise and their own.

    Of a table it is the normal quantile of its sum of squares over all cells, as if that were a
    multiple of a chi-square variable with the mean and variance of Laplace noise, which
    is more than that of normal noise.
    """
    from scipy.special import chdtrc, ndtri

    from statpress.mechanisms.marginals.residuals import NoisySum
    from statpress.tasks.products.marginal_product import tables_of_records

    own = microdata.residuals
    group = (measured.column,) if isinstance(measured, NoisySum) else measured.group
    (records,) = tables_of_records(microdata.domain, [group], microdata.codes)
    counts = records * (n_records / len(microdata.codes[0]))
    if isinstance(measured, NoisySum):
        variance = measured.variance + own.query_variance(group, measured.weights)
        return abs(float(measured.weights @ counts) - measured.value) / math.sqrt(variance)
    variance = measured.variance + (own.table_variance(group) if group in own.values else 0.0)
    squares = float(((counts - measured.counts) ** 2).sum()) / variance
    beyond = chdtrc(counts.size / _STRETCH, squares / _STRETCH)
    return -float(ndtri(max(beyond, _LEAST_PROBABILITY)))


def _beside(
    product: PlannedProduct[Any], plan: Plan, drawn: Mapping[str, Any]
) -> Iterator[tuple[str, NoisyTable | NoisySum]]:
    """What bears on a product's records, by the name of the product that measured it."""
    if product.mechanism.needs != "columns" or plan.privacy.unit != "record":
        return
    from statpress.mechanisms.marginals.residuals import NoisyMarginals

    raw = drawn[product.name]
    if isinstance(raw, NoisyMarginals):
        for other in plan.products:
            if other.name != product.name:
                for measured in _measured(raw.domain, other, drawn[other.name]):
                    yield other.name, measured


def _measured(
    domain: Domain, other: PlannedProduct[Any], raw: Any
) -> Iterator[NoisyTable | NoisySum]:
    """What a product says of one or two columns of a domain."""
    from statpress.mechanisms.estimates.estimate import RawEstimates
    from statpress.mechanisms.estimates.joint_moments import MeanEstimate
    from statpress.mechanisms.marginals.residuals import GRID, NoisyTable
    from statpress.mechanisms.tables.perturbed import NoisyCounts, Perturbed

    names, mechanism = other.domain.names, other.mechanism
    if len(names) > 2 or other.domain.absent:
        return
    if not all(name in domain.names and domain[name] == other.domain[name] for name in names):
        return
    places = [domain.names.index(name) for name in names]
    if isinstance(mechanism, Perturbed) and isinstance(raw, NoisyCounts):
        if other.domain.zeros or np.abs(raw.counts).max() >= _MOST_COUNT:
            return
        order = sorted(range(len(names)), key=places.__getitem__)
        counts = raw.counts.reshape([column.size for column in other.domain.columns])
        scale = Fraction(mechanism.sd) * GRID
        values = np.ascontiguousarray(counts.transpose(order)) * GRID
        yield NoisyTable(tuple(sorted(places)), scale, values)
    elif isinstance(mechanism, MeanEstimate) and isinstance(raw, RawEstimates) and len(names) == 1:
        yield _sum(places[0], other.domain, mechanism, raw)


def _sum(column: int, domain: Domain, mechanism: MeanEstimate, raw: RawEstimates) -> NoisySum:
    """The noisy sum behind a mean, of the numbers in [0, 1] that it is of."""
    from statpress.mechanisms.marginals.residuals import NoisySum

    assert mechanism.estimand is not None
    weights = mechanism.estimand.columns(domain, np.arange(domain.columns[0].size))[:, 0]
    value, sd = mechanism.noisy_moments(raw).noisy_sum
    return NoisySum(column, weights, value, sd**2)
