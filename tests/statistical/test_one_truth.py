"""Figures of one thing in one bundle: a table, three estimates and a quantile over shared columns.

Their noise is independent, so the difference of two figures over the root of both variances is
about standard normal, and beyond 3 in .0027 of all pairs. An interval of a quantile contradicts the
table where an end lies so far on the wrong side of the share that the table has below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, Privacy
from statpress.mechanisms.estimates.estimand import Among, EstimandKnobs
from statpress.mechanisms.planning.choice import Budget, ProductRequest
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.registry import KINDS, REGISTRY
from statpress.tasks.release.entropy import SeededRandomness

LEVEL, FAR = 1e-6, 3.0
NORMAL = 2 * stats.norm.sf(FAR)
F = Among(column="sex", values=("f",))


def random_pairs(seed: int, share_of_noise: float = 1.0) -> Iterator[tuple[str, float]]:
    """What is compared in one random config, and how far both figures are apart, in joint errors.

    Args:
        seed: Of the config, the records and the noise.
        share_of_noise: The table states this share of its noise; 1 but for the twin.
    """
    rng = np.random.default_rng(seed)
    n, bins = int(rng.integers(500, 20_000)), int(rng.integers(4, 20))
    pay = Numeric(name="pay", edges=Numeric.uniform_edges(0, float(rng.integers(1, 500)), bins))
    age = Integer(name="age", lower=0, upper=int(rng.integers(3, 9)))
    domain = Domain((pay, Categorical(name="sex", categories=("f", "m")), age))
    shape = tuple(column.size for column in domain.columns)
    cells = rng.choice(domain.n_cells, n, p=rng.dirichlet(np.full(domain.n_cells, 0.3)))
    private = ContingencyTable.from_cells(domain, cells, np.ones(n, np.int64))
    q = Fraction(int(rng.integers(1, 10)), 10)
    wanted = {
        "table": (str(rng.choice(["laplace", "gaussian"])), REGISTRY["laplace"].knobs(),
                  domain.names),
        "sum": ("joint_moments", EstimandKnobs(statistic="sum"), ("pay",)),
        "count": ("joint_moments", EstimandKnobs(statistic="count", values=("f",)), ("sex",)),
        "of some": ("joint_moments", EstimandKnobs(statistic="sum", where=F), ("age", "sex")),
        "quantile": ("noisy_quantile", EstimandKnobs(statistic="quantile", q=q, confidence=0.99),
                     ("pay",)),
    }  # fmt: skip
    requests = [
        ProductRequest(
            name=name, kind=KINDS["table" if name == "table" else "estimate"], mechanism=mechanism,
            knobs=knobs, columns=columns, share=Decimal("0.2"),
        )
        for name, (mechanism, knobs, columns) in wanted.items()
    ]  # fmt: skip
    plan = plan_release(
        requests,
        domain=domain,
        privacy=Privacy(adjacency="replace_one", unit="record", n_records=n),
        budget=Budget(epsilon=Decimal(int(rng.integers(1, 9))), delta=Decimal("1e-6")),
    )
    noise = SeededRandomness(np.random.PCG64(seed))
    made = {product.name: product for product in plan.products}
    released = {
        name: product.mechanism.release(private.marginal(product.request.columns), noise)
        for name, product in made.items()
    }
    counts = np.zeros(domain.n_cells)
    counts[released["table"].cells] = released["table"].counts
    counts, sd = counts.reshape(shape), made["table"].mechanism.sd * share_of_noise
    values = pay.decode(np.arange(bins)), age.decode(np.arange(age.size))
    weights = {
        "sum": values[0][:, None, None] * np.ones(shape),
        "count": np.array([1.0, 0.0])[None, :, None] * np.ones(shape),
        "of some": np.array([1.0, 0.0])[None, :, None] * values[1] * np.ones(shape),
    }
    for name, weight in weights.items():
        (estimate,) = made[name].mechanism.estimates(released[name])
        (own,) = made[name].expected_error.noise_sd
        joint = math.hypot(sd * float(np.linalg.norm(weight)), own)
        yield name, (float((counts * weight).sum()) - estimate.value) / joint
    (found,) = made["quantile"].mechanism.estimates(released["quantile"])
    below = np.append(0.0, np.cumsum(counts.sum(axis=(1, 2))))
    wanted_below, edges = float(q) * n, np.array(pay.edges)
    spread = math.sqrt(wanted_below * (1 - float(q)) + sd**2 * math.prod(shape))
    for name, end, sign in (("lower end", found.lower, 1), ("upper end", found.upper, -1)):
        reached = float(below[int(np.argmin(np.abs(edges - end)))])
        yield name, max(0.0, sign * (reached - wanted_below) / spread)


def rate_apart(configs: range, share_of_noise: float = 1.0) -> tuple[int, int]:
    """How many pairs are apart by more than ``FAR`` joint errors, and of how many."""
    apart = [abs(z) > FAR for seed in configs for _, z in random_pairs(seed, share_of_noise)]
    return sum(apart), len(apart)


@pytest.mark.parametrize("n", [50, pytest.param(400, marks=pytest.mark.benchmark_full)])
def test_tables_and_estimates_agree_within_their_errors(n: int) -> None:
    far, of = rate_apart(range(n))
    print(f"{far} of {of} pairs are apart by more than {FAR:g} joint standard errors")
    assert stats.binom.sf(far - 1, of, NORMAL) > LEVEL


def test_a_table_that_states_a_quarter_of_its_noise_would_be_seen() -> None:
    far, of = rate_apart(range(12), 1 / 4)
    assert stats.binom.sf(far - 1, of, NORMAL) < LEVEL
