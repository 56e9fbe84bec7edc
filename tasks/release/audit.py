"""Audits of a config's mechanisms on made-up data, without a ledger and without its source.

For every product two made-up sources that differ in one unit (tasks.release.made_up) are scanned
and counted by the engine as a release's own source is, and the mechanism releases each of them many
times, with the randomness of production. What the releases prove stands beside the claim
(mechanisms.accounting.auditing): by the likelihood ratio of what was released, and blind, by a
figure of what is published. So does what the ideal test of the claimed loss would prove with as
many runs, and what the same audit says of a twin with half the noise, which it must catch.

Nothing here is private: the data follow from the config.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.configs.loading import Release
from statpress.configs.tables import LINKED_KIND
from statpress.mechanisms.accounting.auditing import (
    ALARM_MISS,
    MISS,
    Decisions,
    Floats,
    IdealTest,
)
from statpress.mechanisms.domain.contingency_table import (
    CodedColumns,
    ContingencyTable,
    Room,
    in_memory,
)
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.sampling.randomness import Evidence, HalvedNoise, Randomness
from statpress.tasks.products.product_kind import kind_of, private_input
from statpress.tasks.release.entropy import generator_of_made_up, key_of_choice
from statpress.tasks.release.made_up import Cell, Neighbours
from statpress.tasks.source.aggregates import units_of
from statpress.tasks.source.scanning import counted_of, scan_of

_BLIND_RUNS = 250
"""Of a mechanism whose records take long to make."""


@dataclass(frozen=True)
class Bounds:
    """Lower bounds that decisions prove; each fails with probability at most ``MISS``.

    Attributes:
        epsilon: On the smallest epsilon at the claimed delta.
        mu: On the mu of the claim.
        contradicts: Whether bounds that fail with probability ``ALARM_MISS`` exceed the claim.
    """

    epsilon: float
    mu: float
    contradicts: bool

    @classmethod
    def of(cls, ideal: IdealTest, level: Decisions, high: Decisions) -> Bounds:
        """Those by decisions at the threshold 0 and at a higher one."""
        found, certain = (
            (high.epsilon(ideal.delta, miss), level.mu(miss)) for miss in (MISS, ALARM_MISS)
        )
        return cls(*found, contradicts=ideal.contradicted_by(*certain))


@dataclass(frozen=True)
class Audited:
    """What an audit of one product found.

    Attributes:
        product: As planned.
        runs: Releases of each of the two datasets.
        ideal: The ideal test of the claim, with as many runs.
        raw: By the likelihood ratio of what was released; None if there is no test of it.
        twin: Likewise, of the twin with half the noise.
        attack: Mean rates of mistaken and of right decisions at both thresholds.
        blind: By what is published; None if there is no figure of it.
        blind_runs: Releases of each dataset that it went by, the half that it learnt from included.
    """

    product: PlannedProduct[Any]
    runs: int
    ideal: IdealTest
    raw: Bounds | None
    twin: Bounds | None
    attack: Sequence[tuple[float, float]]
    blind: Bounds | None
    blind_runs: int

    @property
    def caught(self) -> bool | None:
        """Whether the twin was; None if there is no test of it."""
        return None if self.twin is None else self.twin.contradicts

    @property
    def contradicted(self) -> bool:
        """Whether more is given away than is claimed."""
        return any(each.contradicts for each in (self.raw, self.blind) if each is not None)

    @property
    def tightness(self) -> float | None:
        """The likelihood ratio's bound over that of the ideal test, None if there is neither.

        Of epsilon where the claim has no delta, else of mu.
        """
        measure = 1 if self.ideal.delta else 0
        most = self.ideal.bounds()[measure]
        if self.raw is None or not most:
            return None
        return (self.raw.epsilon, self.raw.mu)[measure] / most

    @property
    def verdict(self) -> str:
        """What came of it, in a sentence."""
        if self.contradicted:
            return "It gives away more than it claims."
        if self.raw is None:
            return "Not audited: there is no test of what this mechanism releases."
        if not self.caught:
            return "Not conclusive: a twin with half the noise is not told apart by so few runs."
        return "No fault found; the same test catches a twin with half the noise."


def audit(
    release: Release,
    plan: Plan,
    *,
    runs: int,
    announce: Callable[[str], None],
    insecure_seed: int | None = None,
    blind_runs: int = _BLIND_RUNS,
) -> list[Audited]:
    """Audit every product of a plan.

    Args:
        release: The config; its source is never opened.
        plan: Of that.
        runs: Releases of each of the two datasets, at least 2.
        announce: Hears what begins.
        insecure_seed: In place of the operating system's bits.
        blind_runs: Releases at most of which what is published is looked at, where that takes long.

    Raises:
        ConfigError: A product's columns have but one possible cell.
    """
    found = []
    for number, product in enumerate(plan.products):
        seed = None if insecure_seed is None else insecure_seed + 10 * number
        with tempfile.TemporaryDirectory(prefix="statpress-audit-") as folder:
            found.append(
                _audited(release, plan, product, Path(folder), runs, blind_runs, announce, seed)
            )
    return found


def _audited(
    release: Release,
    plan: Plan,
    product: PlannedProduct[Any],
    folder: Path,
    runs: int,
    most_blind: int,
    announce: Callable[[str], None],
    seed: int | None,
) -> Audited:
    announce(f"audit {product.name}: make up and count")
    neighbours = Neighbours.of(release, product)
    inputs = [_counted(release, plan, product, neighbours, folder, side) for side in (0, 1)]
    ideal = IdealTest(product.loss, float(product.epsilon), float(product.delta), 2 * runs)
    evidence = getattr(product.mechanism, "evidence", None)
    ratio: Evidence | None = None if evidence is None else evidence(*inputs)
    figure = _figure_of(product, neighbours)
    slow = hasattr(product.mechanism, "published_as")
    blind_runs = min(runs, most_blind) if slow else runs
    rngs = [_generator(seed, side) for side in range(3)]

    announce(f"audit {product.name}: {2 * runs:,} releases")
    told, seen = [], []
    for side in (0, 1):
        told.append(np.zeros(runs if ratio else 0))
        seen.append(np.zeros(blind_runs if figure else 0))
        for run in range(max(len(told[side]), len(seen[side]))):
            raw = product.mechanism.release(inputs[side], rngs[side])
            if ratio is not None:
                told[side][run] = ratio(raw)
            if figure is not None and run < blind_runs:
                derived = kind_of(product).postprocess(
                    product, raw, plan.size_of({product.name: raw})
                )
                seen[side][run] = figure(derived)
    blind = None
    if figure is not None:
        learnt = Decisions.learnt(*seen)
        blind = Bounds.of(replace(ideal, runs=learnt.runs), learnt, learnt)
    if ratio is None:
        return Audited(product, runs, ideal, None, None, (), blind, blind_runs)

    announce(f"audit {product.name}: {2 * runs:,} releases of a twin with half the noise")
    halved = HalvedNoise(_quick_generator(seed))
    mechanism = _with_half_the_noise(product.mechanism)
    twins = [
        np.array([ratio(mechanism.release(private, halved)) for _ in range(runs)])
        for private in inputs
    ]
    level, high = _decided(ideal, told, rngs[2])
    return Audited(
        product,
        runs,
        ideal,
        Bounds.of(ideal, level, high),
        Bounds.of(ideal, *_decided(ideal, twins, rngs[2])),
        [(each.mistaken / each.runs, each.right / each.runs) for each in (high, level)],
        blind,
        blind_runs,
    )


def _decided(
    ideal: IdealTest, evidence: Sequence[Floats], rng: Randomness
) -> tuple[Decisions, Decisions]:
    """Decisions at the threshold 0, and at the one for the bound on epsilon."""
    one, other = evidence
    return Decisions.of(one, other, 0.0, rng), Decisions.of(one, other, ideal.threshold, rng)


def _generator(seed: int | None, side: int) -> Randomness:
    return generator_of_made_up(insecure_seed=None if seed is None else seed + side)


def _quick_generator(seed: int | None) -> Randomness:
    """For the twin, whose noise need not be exact: from a known seed."""
    return generator_of_made_up(insecure_seed=3 if seed is None else seed + 3)


def _with_half_the_noise(mechanism: Any) -> Any:
    """The mechanism, with four times the records if it draws them, which halves their noise."""
    drawn = mechanism.needs == "joint" and getattr(mechanism, "drawn_records", None)
    return replace(mechanism, records=4 * drawn) if drawn else mechanism


@dataclass(frozen=True)
class _Remembered:
    """Coded columns whose tables are counted once; of made-up data, so small."""

    coded: CodedColumns
    known: dict[tuple[int, ...], NDArray[np.int64]]

    @property
    def domain(self) -> Domain:
        return self.coded.domain

    @property
    def n_records(self) -> int:
        return self.coded.n_records

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """As of coded columns."""
        new = [group for group in groups if group not in self.known]
        if new:
            self.known.update(zip(new, self.coded.tables(new), strict=True))
        return [self.known[group] for group in groups]

    def table_at(
        self, column: int, places: NDArray[np.int64], n: int, group: tuple[int, ...]
    ) -> NDArray[np.int64]:
        """From the table of the column and the group, as of coded columns."""
        (table,) = self.tables([(column, *group)])
        found = np.zeros((n, *table.shape[1:]), np.int64)
        np.add.at(found, places[places >= 0], table[places >= 0])
        return found

    @property
    def room(self) -> Room:
        """In memory."""
        return in_memory


def _counted(
    release: Release,
    plan: Plan,
    product: PlannedProduct[Any],
    neighbours: Neighbours,
    folder: Path,
    side: int,
) -> ContingencyTable | CodedColumns:
    """What the mechanism is given of one of the made-up sources, counted by the engine."""
    work = folder / str(side)
    work.mkdir()
    source = neighbours.write(work, side, units_of(release))
    scan = scan_of(source, release, plan, work)
    key = key_of_choice()
    counted = private_input(product, counted_of(source, release, plan, scan, folder=work, key=key))
    return counted if isinstance(counted, ContingencyTable) else _Remembered(counted, {})


def _figure_of(
    product: PlannedProduct[Any], neighbours: Neighbours
) -> Callable[[Any], float] | None:
    """A figure of what is published of a product in which the two datasets differ."""
    names = neighbours.domain.names
    columns = [names.index(name) for name in product.domain.names]
    cells: list[Cell] = [tuple(cell[c] for c in columns) for cell in neighbours.cells]
    if product.kind.name == "estimate":
        return lambda derived: float(np.nan_to_num(derived.estimates[0].value))
    wide = product.mechanism.needs == "columns"
    if product.kind.name not in (("microdata", LINKED_KIND) if wide else ("microdata", "table")):
        return None
    if wide:

        def matched(derived: Any) -> float:
            """Columns and pairs in which records are as the unit is in ``one``, less ``other``."""
            codes = derived.microdata.codes
            alike = [sum((c == v).astype(np.int64) for c, v in zip(codes, cell, strict=True))
                     for cell in cells]  # fmt: skip
            one, other = (int((each * (each + 1)).sum()) for each in alike)
            return float(one - other)

        return matched
    codes = {name: np.array([cell[i] for cell in cells])
             for i, name in enumerate(product.domain.names)}  # fmt: skip
    places = product.domain.encode(codes)

    def counts(derived: Any) -> float:
        """Records in the one cell less those in the other, as published."""
        listed = derived.raw.cells[: derived.listed]
        figures = derived.figures["projected"] if derived.records is None else derived.records
        values = [figures[: len(listed)][listed == place].sum() for place in places]
        return float(values[0] - values[1])

    return counts
