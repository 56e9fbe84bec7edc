"""Every registered mechanism at work on a small public frame: what the contract suites share.

A mechanism whose knobs all have defaults needs nothing here; one for estimates is given the
first statistic that it serves. Another one needs a row of ``KNOBS``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from coded import CodesInMemory
from estimating import COLUMNS, columns_of, draw, needed_knobs
from geographies import geography_of

from statpress.mechanisms.domain.columns import Column, Integer, Slot
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, Privacy
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.statistics import STATISTICS
from statpress.mechanisms.functions.function_targets import FunctionKnobs
from statpress.mechanisms.marginals.linked_marginals import LINKED
from statpress.mechanisms.mechanism import Mechanism, Target
from statpress.mechanisms.places.place_tables import PlaceTablesKnobs
from statpress.mechanisms.planning.choice import Budget, ProductRequest
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.registry import KINDS, REGISTRY
from statpress.mechanisms.tables.count_tables import CountsKind
from statpress.mechanisms.tables.sample_resample import SampleResampleKnobs

KNOBS: dict[str, Any] = {"bernstein": FunctionKnobs(target="kde")}
"""Knobs of mechanisms that have no defaults for all of them."""

OF_AGE: dict[str, Any] = {
    "place_tables": PlaceTablesKnobs(
        at=["half", "place"],
        geography=geography_of("age", ("nation", "half", "place"), [0, 0, 1, 1]),
    )
}
"""The same of mechanisms that are given the table of four cells."""

TINY_KNOBS: dict[str, Any] = {
    "sample_resample": SampleResampleKnobs(candidates=8, records=1),
    "place_tables": PlaceTablesKnobs(
        at=["half", "place"],
        geography=geography_of("age", ("nation", "half", "place"), [0, 0, 1]),
    ),
}
"""Knobs that are needed to enumerate all outputs; by default those above."""

N_TINY, TINY = 3, Integer(name="age", lower=0, upper=2)
N_COUNTS, COUNTS = 200, np.array([120, 50, 25, 5])
FOUR = Integer(name="age", lower=0, upper=3)
PAY = Integer(name="pay", lower=0, upper=3)
N_OTHERS = 3000
NAMES = list(REGISTRY)
SERVED = [(name, kind.name) for name in NAMES for kind in REGISTRY[name].kinds]
BUDGET = Budget(epsilon=Decimal(1), delta=Decimal("1e-6"))


@dataclass(frozen=True, eq=False)
class Case:
    """A mechanism with its knobs, and a table for it.

    Attributes:
        name: Of the mechanism.
        knobs: For ``calibrate``.
        domain: The product's columns.
        table: Private.
    """

    name: str
    knobs: Any
    domain: Domain
    table: ContingencyTable

    @property
    def mechanism(self) -> type[Mechanism]:
        return REGISTRY[self.name]

    @property
    def private(self) -> Any:
        """What the mechanism is given."""
        wide = self.mechanism.needs == "columns"
        return CodesInMemory.of(self.table) if wide else self.table

    @property
    def n_records(self) -> int:
        return self.table.n_records

    def target(self, **budget: Any) -> Target:
        """A target for its size and domain."""
        asked = {"epsilon": 1.0, "delta": 1e-6} | budget
        return Target(
            n_records=self.n_records,
            n_cells=self.domain.n_possible,
            shape=tuple(column.size for column in self.domain.columns),
            domain=self.domain,
            **asked,
        )

    def calibrated(self, **budget: Any) -> Any:
        """The mechanism that meets a target; made once for each."""
        return _calibrated(self, tuple(sorted(budget.items())))


@functools.cache
def planned(name: str, kind: str) -> Plan:
    """A release of one product, of a kind that the mechanism serves."""
    found = case(name)
    request = ProductRequest(
        name="p",
        kind=KINDS[kind],
        mechanism=name,
        knobs=found.knobs,
        columns=found.domain.names,
        share=Decimal(1),
    )
    return plan_release(
        [request],
        domain=found.domain,
        privacy=Privacy(adjacency="replace_one", unit="record", n_records=found.n_records),
        budget=BUDGET,
    )


@functools.cache
def _calibrated(found: Case, budget: tuple[tuple[str, Any], ...]) -> Any:
    return found.mechanism.calibrate(found.knobs, found.target(**dict(budget)))


def serves_counts(name: str) -> bool:
    """Whether it is for tables or microdata, and is given and gives one table of counts."""
    mechanism = REGISTRY[name]
    counts = any(isinstance(kind, CountsKind) for kind in mechanism.kinds)
    return counts and mechanism.needs == "joint"


def _plain(counts: Any, column: Column, name: str, knobs: Any) -> Case:
    domain, counts = Domain((column,)), np.asarray(counts, np.int64)
    cells = np.flatnonzero(counts)
    return Case(name, knobs, domain, ContingencyTable(domain, cells, counts[cells]))


@functools.cache
def case(name: str) -> Case:
    """The mechanism on a small table: of four cells, or of 3000 drawn records."""
    if REGISTRY[name].kinds == (LINKED,):
        return _of_households(name)
    if name in KNOBS or issubclass(REGISTRY[name].knobs, EstimandKnobs):
        knobs, columns = _declared(name)
        domain, codes = Domain(tuple(COLUMNS[each] for each in columns)), draw(N_OTHERS)
        cells = domain.encode({each: codes[each] for each in columns})
        ones = np.ones(len(cells), np.int64)
        return Case(name, knobs, domain, ContingencyTable.from_cells(domain, cells, ones))
    return case_of(name, COUNTS)


def _of_households(name: str) -> Case:
    """Households of up to one person, whose age is one of four."""
    size = Integer(name="n_persons", lower=0, upper=1)
    domain = Domain((FOUR, size, Slot(name="pay_1", of=PAY, place=1, size_name=size.name)))
    household = np.repeat(np.arange(4), COUNTS)
    person = np.arange(len(household)) % 5  # the last code is that of nobody
    codes = {"age": household, "n_persons": (person < 4).astype(np.int64), "pay_1": person}
    ones = np.ones(len(household), np.int64)
    table = ContingencyTable.from_cells(domain, domain.encode(codes), ones)
    return Case(name, REGISTRY[name].knobs(), domain, table)


def case_of(name: str, counts: Any) -> Case:
    """The mechanism on a table of four cells with these counts."""
    return _plain(counts, FOUR, name, OF_AGE.get(name) or REGISTRY[name].knobs())


@functools.cache
def constant_case(name: str) -> Case:
    """The same with all records in one cell, so that no resampling moves a statistic."""
    found = case(name)
    one = ContingencyTable(found.domain, found.table.cells[:1], np.array([found.n_records]))
    return Case(name, found.knobs, found.domain, one)


@functools.cache
def tiny_case(name: str, counts: tuple[int, ...] = (2, 1, 0)) -> Case:
    """The mechanism on a table of three cells and few records."""
    knobs = TINY_KNOBS.get(name)
    if knobs is None and issubclass(REGISTRY[name].knobs, EstimandKnobs):
        knobs = case(name).knobs
    return _plain(counts, TINY, name, knobs or REGISTRY[name].knobs())


def _declared(name: str) -> tuple[Any, list[str]]:
    """Knobs that a mechanism takes, with columns that suit them."""
    if name in KNOBS:
        return KNOBS[name], ["pay"]
    mechanism = REGISTRY[name]
    for statistic in STATISTICS.values():
        knobs = mechanism.knobs(statistic=statistic.name, **needed_knobs(statistic))
        columns = columns_of(statistic)
        domain = Domain(tuple(COLUMNS[each] for each in columns))
        wanted = Target(
            epsilon=1.0, delta=1e-6, n_records=N_OTHERS, n_cells=domain.n_possible, domain=domain
        )
        try:
            mechanism.calibrate(knobs, wanted)
        except ConfigError:
            continue
        return knobs, columns
    raise LookupError(f"'{name}' serves no statistic: give it a row of KNOBS")


def budgets(name: str) -> Iterator[dict[str, Any]]:
    """Budgets that every mechanism has to meet; a pure one does so without a delta."""
    yield {}
    yield {"epsilon": 0.25, "delta": 1e-5}
    if REGISTRY[name].pure:
        yield {"epsilon": 0.5, "delta": 0.0}


def optional_budgets() -> Iterator[dict[str, Any]]:
    """Budgets that a mechanism meets or refuses."""
    yield {"rho": 0.05}
    yield {"renyi": (8, 0.5)}
    yield {"unit_records": 2}
    yield {"delta": 0.0}
