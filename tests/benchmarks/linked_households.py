"""Errors of linked households and persons, beside a flattened release and random linking.

    python -m tests.benchmarks.linked_households [--cases arc semcog] [--epsilons 1 3] [--seeds 2]

Two examples of ActivitySim 1.6.0 (BSD 3-Clause), whose wheel is downloaded without what it needs:
``arc``, 24,061 households of Atlanta with 66,692 persons in up to six places, and ``semcog``,
19,548 households of Michigan. Replace-one household, delta = 1e-6, seeds 0, 1 and so on.

``linked`` is ours. ``flat`` is the mechanism ``marginals`` on the same record, whose columns of
persons have one value more for nobody; a person is there if their first column says so. ``random``
is without noise: the true households, each with as many true persons as it has, drawn at random.
``resampled`` is a bootstrap of the true households, and so the error of their sampling.

Errors of tables are mean total variations, over pairs of columns: of *households*; of *persons*; of
a household's column and a person's, over all persons (*both*); and of the columns of *two persons*
of one household, over all ordered pairs of them. Of *three persons* they are those of the table of
all sets of three persons of a household, each a child, of working age or older, and at work or not.
*Has one* and *has two* are the mean relative errors of the numbers of households with so many
persons of each value of a column, as PrivPetal asks (Cai, Xiao and Yang 2025, arXiv 2503.22970); of
less than a hundredth of the households the error is that over a hundredth. *Misfit* is the share of
places where a column does not agree with the size.

``--copies 10`` prints instead how often the interval of Rubin's rule from so many copies of ours
holds the figure of the true households, at .95: of *households* the shares of values and their mean
size; of *persons* those of values and of those at work by age; of *both* the mean age and the share
at work of persons by columns of their household; of a *regression* being at work on columns of
persons, income and size; of *two persons* shares of both at work and of one sex, and the mean gap
of ages; of *three persons* those of sets as above.

``--population 100`` prints how often intervals for a population hold its figure, at .95: it is the
example, from which as many households are drawn anew each time, and the tables of one release get
fresh noise. Figures are shares of *persons*' values, those of persons at *work* by age, and *by
household* the mean age and the share at work of at least a hundred persons. *Alone* takes
persons as drawn one by one; the intervals by households are so many times as long as those.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import NotMeasuredError
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.linked_marginals import LinkedKnobs, LinkedMarginals
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.persons import PersonResiduals
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import (
    GRID,
    NoisyMarginals,
    NoisyTable,
    Residuals,
    combine,
)
from statpress.mechanisms.marginals.target_tables import counts_of
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

SUPPORT = str(Path(__file__).parents[1] / "support")
DELTA, PLACES, LEAST = 1e-6, 6, 0.01
_ENOUGH, _COMMON = 100, 0.005
_INCOMES = (10, 20, 30, 40, 50, 60, 75, 100, 125, 150, 200)
_ADULT, _OLD = 3, 13  # in fives of years
METHODS = ("linked", "flat", "random", "resampled")
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Case:
    """Households with their persons.

    Attributes:
        own: Codes of households by column, int64[n] each, with the number of cells.
        persons: Codes of persons by column, int64[n, places] each, with the number of cells; -1
            where nobody is. The first is the age, in fives of years.
        ordered: Columns of persons that have an order.
        working: Codes of the column ``esr`` of those at work.
    """

    own: dict[str, tuple[Codes, int]]
    persons: dict[str, tuple[Codes, int]]
    ordered: tuple[str, ...]
    working: tuple[int, ...]

    @property
    def sizes(self) -> Codes:
        """int64[n]: how many persons every household has."""
        found: Codes = (next(iter(self.persons.values()))[0] >= 0).sum(axis=1)
        return found

    def records(self) -> Codes:
        """int64[n, d]: the records, of households, sizes and places."""
        columns = [codes for codes, _ in self.own.values()] + [self.sizes]
        for place in range(PLACES):
            columns += [np.where(c[:, place] < 0, k, c[:, place]) for c, k in self.persons.values()]
        return np.stack(columns, axis=1)

    def domain(self, *, linked: bool) -> Domain:
        """The columns of a record, those of persons as places or as columns like any other."""
        columns: list[Column] = [_integer(name, k) for name, (_, k) in self.own.items()]
        columns.append(_integer("n_persons", PLACES + 1))
        for place, (name, (_, k)) in itertools.product(range(1, PLACES + 1), self.persons.items()):
            of = _integer if name in self.ordered else _categorical
            own = f"{name}_{place}"
            slot = Slot(name=own, of=of(name, k), place=place, size_name="n_persons")
            columns.append(slot if linked else of(own, k + 1))
        return Domain(tuple(columns))

    def of_records(self, records: Codes) -> Case:
        """The households and persons of such records."""
        n_own, n_persons = len(self.own), len(self.persons)
        places = records[:, n_own + 1 :].reshape(len(records), PLACES, n_persons)
        own = {name: (records[:, i], k) for i, (name, (_, k)) in enumerate(self.own.items())}
        persons = {
            name: (np.where(places[..., i] < k, places[..., i], -1), k)
            for i, (name, (_, k)) in enumerate(self.persons.items())
        }
        return Case(own, persons, self.ordered, self.working)


def _integer(name: str, k: int) -> Column:
    return Integer(name=name, lower=0, upper=k - 1)


def _categorical(name: str, k: int) -> Column:
    return Categorical(name=name, categories=tuple(map(str, range(k))))


@cache
def case_of(name: str) -> Case:
    """The public tables of an example."""
    import pandas as pd

    sys.path.insert(0, SUPPORT)
    from wide_tables import downloaded

    example = {"arc": "prototype_arc", "semcog": "production_semcog"}[name]
    with zipfile.ZipFile(downloaded("activitysim==1.6.0", source=False)) as packed:
        frames = [
            pd.read_csv(packed.open(f"activitysim/examples/{example}/data/{table}.csv"))
            for table in ("households", "persons")
        ]
    households, persons = frames
    if name == "arc":
        listed = ("veh", "hht", "bld", "PUMA")
        members = {"age": persons["agep"] // 5, "sex": persons["sex"], "esr": persons["esr"]}
        members["schl"] = persons["schl"]
        order, working = [persons["sporder"]], (1, 2, 4, 5)
    else:
        listed = ("race_id", "cars", "children", "hht")
        members = {"age": persons["age"] // 5, "sex": persons["sex"], "esr": persons["esr"]}
        members["relate"] = persons["relate"]
        order, working = [persons["relate"], -persons["age"]], (1, 2)
    own = {
        "income": np.searchsorted([1000 * each for each in _INCOMES], households["hincp"], "right")
    }
    own |= {each: _ranks(households[each]) for each in listed}
    members["age"] = members["age"].clip(upper=17).astype(int)
    ranked = np.lexsort([*reversed([persons["household_id"], *order])])
    household = households.set_index("household_id").index.get_indexer(persons["household_id"])
    household = household[ranked]
    place = (
        np.arange(len(ranked))
        - np.flatnonzero(np.diff(household, prepend=-1) != 0)[
            np.cumsum(np.diff(household, prepend=-1) != 0) - 1
        ]
    )
    used = place < PLACES
    found = {}
    for each, values in members.items():
        codes = np.full((len(households), PLACES), -1)
        ranks = _ranks(values)[ranked]
        codes[household[used], place[used]] = ranks[used]
        found[each] = codes, int(ranks.max()) + 1
    at_work = np.flatnonzero(np.isin(np.unique(members["esr"]), working))
    return Case(
        {each: (codes, int(codes.max()) + 1) for each, codes in own.items()},
        found, ("age", "schl"), tuple(at_work.tolist()),
    )  # fmt: skip


def _ranks(values: Any) -> Codes:
    found: Codes = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return found


def released(case: Case, method: str, epsilon: float, seed: int) -> Codes:
    """Records int64[n, d] as a method makes them."""
    rng, true = np.random.default_rng(seed), case.records()
    n = len(true)
    if method == "resampled":
        return np.asarray(true[rng.integers(n, size=n)])
    if method == "random":
        persons = true[:, len(case.own) + 1 :].reshape(n, PLACES, -1).copy()
        there = np.arange(PLACES) < case.sizes[:, None]
        persons[there] = rng.permutation(persons[there])
        return np.concatenate([true[:, : len(case.own) + 1], persons.reshape(n, -1)], axis=1)
    made, mechanism = _drawn(case, method, epsilon, seed)
    return np.stack(mechanism.postprocess(made).codes, axis=1).astype(np.int64)


def _drawn(
    case: Case, method: str, epsilon: float, seed: int, copies: int = 1
) -> tuple[NoisyMarginals, Marginals]:
    """What a mechanism releases of the true households."""
    sys.path.insert(0, SUPPORT)
    from coded import CodesInMemory

    domain, true = case.domain(linked=method == "linked"), case.records()
    target = Target(epsilon=epsilon, delta=DELTA, n_records=len(true), n_cells=0, domain=domain)
    mechanism: Marginals = (
        LinkedMarginals.calibrate(LinkedKnobs(copies=copies), target)
        if method == "linked"
        else Marginals.calibrate(MarginalsKnobs(copies=copies), target)
    )
    private = CodesInMemory(domain, len(true), tuple(true.astype(np.uint8).T.copy()))
    return mechanism.release(private, SeededRandomness(np.random.PCG64(seed))), mechanism


def errors(case: Case, records: Codes) -> dict[str, float]:
    """The errors of records; see the module's text."""
    found = case.of_records(records)
    answers = zip(_tables(case).items(), _tables(found).items(), strict=True)
    result = {
        label: float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(one, other, strict=True)]))
        for (label, one), (_, other) in answers
    }
    for least, label in ((1, "has one"), (2, "has two")):
        true, made = (_having(each, least) for each in (case, found))
        result[label] = float(np.mean(np.abs(made - true) / np.maximum(true, LEAST)))
    sizes = records[:, len(case.own)]
    wanted = np.arange(PLACES) < sizes[:, None]
    result["misfit"] = float(np.mean([(c >= 0) != wanted for c, _ in found.persons.values()]))
    return result


def _tables(case: Case) -> dict[str, list[NDArray[np.float64]]]:
    """Shares of the cells of tables, by sort."""
    sizes = (case.sizes, PLACES + 1)
    own, persons = [*case.own.values(), sizes], list(case.persons.values())
    apart = [(i, j) for i in range(PLACES) for j in range(PLACES) if i != j]
    i, j = (list(each) for each in zip(*apart, strict=True))

    def spread(column: tuple[Codes, int]) -> tuple[Codes, int]:
        return np.repeat(column[0][:, None], PLACES, axis=1), column[1]

    return {
        "households": [_shares(a, b) for a, b in itertools.combinations(own, 2)],
        "persons": [_shares(a, b) for a, b in itertools.combinations(persons, 2)],
        "both": [_shares(spread(a), b) for a in own for b in persons],
        "two persons": [
            _shares((a[0][:, i], a[1]), (b[0][:, j], b[1]))
            for a, b in itertools.combinations_with_replacement(persons, 2)
        ],
        "three persons": [_threes(case)],
    }


def _shares(one: tuple[Codes, int], other: tuple[Codes, int]) -> NDArray[np.float64]:
    there = (one[0] >= 0) & (other[0] >= 0)
    cells = np.bincount(one[0][there] * other[1] + other[0][there], minlength=one[1] * other[1])
    return np.asarray(cells / max(cells.sum(), 1))


def _threes(case: Case) -> NDArray[np.float64]:
    """Shares of all sets of three persons of a household by what each of them is."""
    age, work = case.persons["age"][0], case.persons["esr"][0]
    kind = np.digitize(age, [_ADULT + 1, _OLD]) * 2 + np.isin(work, case.working)
    cells = np.zeros(6**3)
    for some in itertools.combinations(range(PLACES), 3):
        there = (age[:, some] >= 0).all(axis=1) & (work[:, some] >= 0).all(axis=1)
        ordered = np.sort(kind[there][:, some], axis=1)
        cells += np.bincount(ordered @ np.array([36, 6, 1]), minlength=len(cells))
    return np.asarray(cells / max(cells.sum(), 1))


def _having(case: Case, least: int) -> NDArray[np.float64]:
    """Shares of households with so many persons of each value of every column, or more."""
    return np.concatenate(
        [
            [((codes == value).sum(axis=1) >= least).mean() for value in range(k)]
            for codes, k in case.persons.values()
        ]
    )


def figures(case: Case) -> dict[str, dict[str, float]]:
    """Figures of households and persons that copies give intervals of; see the module's text."""
    sizes, ages, work = (
        case.sizes,
        case.persons["age"][0],
        np.isin(case.persons["esr"][0], case.working),
    )
    there = ages >= 0
    household = np.nonzero(there)[0]
    age, at_work = ages[there], work[there].astype(np.float64)
    found: dict[str, dict[str, float]] = {}

    def add(kind: str, name: str, values: NDArray[Any], least: int = 1) -> None:
        if len(values) >= least:
            found.setdefault(kind, {})[name] = float(np.mean(values))

    columns = case.own | {"size": (sizes, PLACES + 1)}
    add("households", "size", sizes)
    for name, (codes, k) in columns.items():
        for code in range(k):
            add("households", f"{name} {code}", codes == code)
            own = codes[household] == code
            add("both", f"age by {name} {code}", age[own], _ENOUGH)
            add("both", f"work by {name} {code}", at_work[own], _ENOUGH)
    for name, (codes, k) in case.persons.items():
        for code in range(k):
            add("persons", f"{name} {code}", codes[there] == code)
    for code in range(case.persons["age"][1]):
        add("persons", f"work at {code}", at_work[age == code], _ENOUGH)
    adult = age > _ADULT
    terms = [codes[there] for name, (codes, _) in case.persons.items() if name != "esr"]
    terms += [sizes[household]] + [codes[household] for codes, _ in case.own.values()]
    x = np.stack([np.ones(len(age)), *terms], axis=1)[adult]
    for at, value in enumerate(np.linalg.lstsq(x, at_work[adult], rcond=None)[0]):
        add("regression", str(at), value[None])
    two = sizes >= 2
    add("two persons", "work", work[two, 0] & work[two, 1])
    add("two persons", "gap", np.abs(ages[two, 0] - ages[two, 1]))
    if "sex" in case.persons:
        sex = case.persons["sex"][0]
        add("two persons", "sex", sex[two, 0] == sex[two, 1])
    for at, share in enumerate(_threes(case)):
        if share > _COMMON:
            add("three persons", str(at), share[None])
    return found


def covered(
    case: Case, epsilon: float, seed: int, copies: int
) -> dict[str, list[tuple[bool, float]]]:
    """By kind of figure whether each is in its interval from copies, with its standard error."""
    from statpress.mechanisms.marginals.copies import combined

    made, mechanism = _drawn(case, "linked", epsilon, seed, copies)
    sets = [each.astype(np.int64) for each in mechanism.postprocess(made).copies.sets]
    of_copies = [figures(case.of_records(each)) for each in sets]
    found: dict[str, list[tuple[bool, float]]] = {}
    for kind, true in figures(case).items():
        for name, value in true.items():
            if all(name in each.get(kind, {}) for each in of_copies):
                one = combined([each[kind][name] for each in of_copies])
                lower, upper = one.interval()
                found.setdefault(kind, []).append((lower <= value <= upper, one.standard_error))
    return found


Asked = tuple[str, tuple[Any, ...]]


def _asked(case: Case) -> dict[str, list[Asked]]:
    """By kind the figures of persons of a population: methods of ``Analyses``, with arguments."""
    work, sizes = list(case.working), case.own | {"n_persons": (case.sizes, PLACES + 1)}
    by_household = [
        {name: [code]}
        for name, (codes, k) in sizes.items()
        for code in range(k)
        if case.sizes[codes == code].sum() >= _ENOUGH
    ]
    ages = case.persons["age"][1]
    return {
        "persons": [
            ("share", (name, [code], {}))
            for name, (_, k) in case.persons.items()
            for code in range(k)
        ],
        "work": [("share", ("esr", work, {"age": [code]})) for code in range(3, ages)],
        "by household": [("mean", ("age", where)) for where in by_household]
        + [("share", ("esr", work, where)) for where in by_household],
    }


def of_population(case: Case, epsilon: float, replicates: int) -> dict[str, tuple[float, ...]]:
    """By kind how often intervals hold, also of persons one by one, and the ratio of lengths."""
    domain, true = case.domain(linked=True), case.records()
    made, _ = _drawn(case, "linked", epsilon, 0)
    measured = [(table.group, table.scale) for table in (*made.one_way, *made.tables)]
    sizes = [column.size for column in domain.columns]
    shapes = [tuple(sizes[c] for c in group) for group, _ in measured]
    asked, sample = _asked(case), Sample(n_units=len(true), unit_records=PLACES, absent=True)

    def answers(
        records: Codes, rng: np.random.Generator | None, kind: type[PersonResiduals]
    ) -> dict[str, list[Interval | None]]:
        tables, groups = [], [group for group, _ in measured]
        for (group, scale), shape, flat in zip(
            measured, shapes, counts_of(records, groups, shapes), strict=True
        ):
            noise = 0.0 if rng is None else rng.normal(0, float(scale), shape)
            values = flat.reshape(shape) * GRID + np.rint(noise).astype(np.int64)
            tables.append(NoisyTable(group, scale, values))
        columns, persons = kind.of(combine(sizes, tables, n_present=len(records)), domain)
        of = Analyses(domain=columns, residuals=persons, sample=None if rng is None else sample)

        def one(method: str, arguments: tuple[Any, ...]) -> Interval | None:
            with suppress(NotMeasuredError):
                figure: Interval = getattr(of, method)(*arguments)
                return figure
            return None

        return {name: [one(*each) for each in questions] for name, questions in asked.items()}

    whole, rng = answers(true, None, PersonResiduals), np.random.default_rng(1)
    held: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in asked}
    for _ in range(replicates):
        drawn, seed = true[rng.integers(len(true), size=len(true))], int(rng.integers(2**32))
        found, alone = (
            answers(drawn, np.random.default_rng(seed), each) for each in (PersonResiduals, _Alone)
        )
        for kind, values in whole.items():
            for value, *both in zip(values, found[kind], alone[kind], strict=True):
                ends = [(each.lower, each.upper) for each in both if each is not None]
                if value is not None and np.isfinite(ends).all():
                    one, other = (low <= value.value <= high for low, high in ends)
                    lengths = [high - low for low, high in ends]
                    held[kind].append((one, other, lengths[0] / lengths[1]))
    return {kind: tuple(np.mean(each, axis=0).tolist()) for kind, each in held.items()}


class _Alone(PersonResiduals):
    """Persons who count as drawn one by one."""

    products = Residuals.products


def measure(name: str, method: str, epsilon: float, seeds: int) -> dict[str, float]:
    """Mean errors over seeds."""
    case = case_of(name)
    rows = [errors(case, released(case, method, epsilon, seed)) for seed in range(seeds)]
    return {label: float(np.mean([row[label] for row in rows])) for label in rows[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each case, method and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=["arc", "semcog"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--population", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.population:
        for name, epsilon in itertools.product(options.cases, options.epsilons):
            held = of_population(case_of(name), epsilon, options.population)
            text = ", ".join(
                f"{kind} {one:.3f} (alone {other:.3f}, {length:.2f} times as long)"
                for kind, (one, other, length) in held.items()
            )
            print(f"{name} population {epsilon:g}: {text}", flush=True)
        return
    if options.copies > 1:
        for name, epsilon in itertools.product(options.cases, options.epsilons):
            of_seeds = [
                covered(case_of(name), epsilon, seed, options.copies)
                for seed in range(options.seeds)
            ]
            kinds = {
                kind: np.mean([held for each in of_seeds for held, _ in each[kind]])
                for kind in of_seeds[0]
            }
            text = ", ".join(f"{kind} {share:.3f}" for kind, share in kinds.items())
            print(f"{name} {options.copies} copies {epsilon:g}: {text}", flush=True)
        return
    for name, method in itertools.product(options.cases, options.methods):
        noisy = method in ("linked", "flat")
        for epsilon in options.epsilons if noisy else [np.inf]:
            found = measure(name, method, epsilon, options.seeds)
            text = ", ".join(f"{label} {each:.4f}" for label, each in found.items())
            print(f"{name} {method} {epsilon:g}: {text}", flush=True)


if __name__ == "__main__":
    main()
