"""Planning releases of many products, against error functions in balls of 128 bits.

These are Arb's own, and no code of ours is in them. Each plan starts from nothing: whatever is kept
between calls is forgotten before. Times are of the processor.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from decimal import Decimal

import pytest
from flint import arb, ctx

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy, Unit
from statpress.mechanisms.planning.choice import Budget, ProductRequest
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables.count_tables import TABLE, AutoKnobs

DOMAIN = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=3 + i) for i in range(12)))
FRAME = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=100_000)
BUDGET = Budget(epsilon=Decimal(1), delta=Decimal("1e-6"))
COLUMNS = [
    columns for size in (2, 3) for columns in itertools.combinations(DOMAIN.names, size)
]  # 286 products, most of them of different sizes
MOST = {"laplace": 4.0, "gaussian": 3.0, "auto": 7.0, "bootstrap": 7.0}
"""Plans of 50 products, in baselines."""
BASELINE = 50_000
"""Error functions at 128 bits, spread over 0..5."""
LINEAR = 1.4
"""How much longer a plan may take than in proportion to a smaller one."""


def forget() -> None:
    """Empty every cache of the core, so that nothing is left of what ran before."""
    for name, module in list(sys.modules.items()):
        if name.startswith("statpress.mechanisms."):
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def requests_of(mechanism: str, products: int, *, alike: bool) -> list[ProductRequest]:
    """Tables of a mechanism; of one share each, or of shares that all differ."""
    knobs = AutoKnobs() if mechanism == "auto" else REGISTRY[mechanism].knobs()
    weights = [1] * products if alike else list(range(products, 2 * products))
    return [
        ProductRequest(
            name=f"p{i}",
            kind=TABLE,
            mechanism=mechanism,
            knobs=knobs,
            columns=columns,
            share=Decimal(weight) / sum(weights),
        )
        for i, (columns, weight) in enumerate(zip(COLUMNS, weights, strict=False))
    ]


def planned(mechanism: str, products: int, *, alike: bool = True) -> tuple[Plan, float]:
    """A plan, and the processor seconds that it took."""
    requests = requests_of(mechanism, products, alike=alike)
    forget()
    started = time.process_time()
    made = plan_release(requests, domain=DOMAIN, privacy=FRAME, budget=BUDGET)
    return made, time.process_time() - started


def baseline() -> float:
    """Processor seconds of the error functions."""
    started = time.process_time()
    with ctx.workprec(128):
        for i in range(BASELINE):
            (arb(i) / (BASELINE // 5)).erfc()
    return time.process_time() - started


@pytest.mark.parametrize(
    ("mechanism", "alike"),
    [
        pytest.param(
            mechanism, alike, id=f"{mechanism}-{'alike' if alike else 'different'}",
            marks=pytest.mark.study if alike else pytest.mark.nightly,
        )
        for mechanism in MOST
        for alike in (True, False)
    ],
)  # fmt: skip
def test_planning_fifty_products(mechanism: str, alike: bool) -> None:
    """Within its limit, and linear: plans of 10 are often met at the first try, those of 20 not."""

    def timed(products: int) -> float:
        return planned(mechanism, products, alike=alike)[1]

    planned(mechanism, 2)  # imports what it takes
    few, unit = (min(run() for _ in range(2)) for run in (lambda: timed(20), baseline))
    made, spent = planned(mechanism, 50, alike=alike)
    for _ in range(4):  # chance, perhaps: another process took the caches
        if spent < LINEAR * 50 / 20 * few:
            break
        few, spent = min(few, timed(20)), min(spent, timed(50))
    print(f"{mechanism}: {few:.2f} s, {spent:.2f} s, {spent / unit:.1f} times the error functions")
    assert made.loss.delta(1.0).upper <= 1e-6
    assert Decimal("0.98") < made.epsilon <= 1
    assert spent < MOST[mechanism] * unit
    assert spent < LINEAR * 50 / 20 * few + 0.05


@pytest.mark.study
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize("mechanism", MOST)
def test_planning_grows_with_the_number_of_products(mechanism: str, alike: bool) -> None:
    """The less a loss is, the longer the search for its rho; so where shares all differ."""
    planned(mechanism, 2)
    spent = {size: planned(mechanism, size, alike=alike)[1] for size in (50, 100, 200)}
    print(mechanism, "alike" if alike else "different", spent)
    most = LINEAR if alike else LINEAR**2
    assert spent[200] < most * 200 / 50 * spent[50] + 0.05
