"""Tables of persons are sums over places, with the exact variance of their noise."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from households import CONFIG, loaded, made_up, record_of
from scipy import stats

from statpress.mechanisms.errors import NotMeasuredError
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses, Copy, persons_of
from statpress.mechanisms.marginals.linear_moments import ONE, moments
from statpress.mechanisms.marginals.persons import PersonResiduals
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, Residuals, combine
from statpress.mechanisms.marginals.weighted_sums import SampleDesign

N, LEVEL = 400, 1e-6


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """The columns of a household's record, the records, and the persons in them as pairs."""
    domain = loaded(tmp_path_factory.mktemp("config")).domain
    households, persons = made_up(N)
    rows = [record_of(h, [p for p in persons if p["hid"] == h["hid"]]) for h in households]
    people = [
        (row[0], row[1], row[2 + 2 * place], row[3 + 2 * place])
        for row in rows
        for place in range(row[1])
    ]
    return domain, np.array(rows), np.array(people)


def measured(domain, rows, sd: float, rng: np.random.Generator, without=()) -> Residuals:
    """Tables of all columns and pairs, those of a pair with twice the variance of a column's."""
    sizes = [column.size for column in domain.columns]
    groups = [(c,) for c in range(len(sizes))]
    groups += [p for p in itertools.combinations(range(len(sizes)), 2) if p not in without]
    tables = []
    for group in groups:
        shape = [sizes[c] for c in group]
        spread = sd * 2 ** ((len(group) - 1) / 2)
        counts = np.zeros(shape)
        np.add.at(counts, tuple(rows[:, c] for c in group), 1)
        values = np.rint((counts + spread * rng.standard_normal(shape)) * GRID).astype(np.int64)
        tables.append(NoisyTable(group, Fraction(spread).limit_denominator(10**6) * GRID, values))
    return combine(sizes, tables, n_present=len(rows))


def test_without_noise_they_are_those_of_all_persons(office: tuple) -> None:
    domain, rows, people = office
    exact = measured(domain, rows, 1e-5, np.random.default_rng(1))
    columns, tables = PersonResiduals.of(exact, domain)
    assert columns.names == ("tenure", "n_persons", "relation", "age")
    assert moments(tables, [ONE]).values == pytest.approx([len(people)], abs=1e-2)
    for group in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 3), (2, 3)]:
        counts = np.zeros([columns.columns[c].size for c in group])
        np.add.at(counts, tuple(people[:, c] for c in group), 1)
        assert np.allclose(tables.table(group), counts, atol=1e-2), group
    asked = Analyses(domain=columns, residuals=tables)
    known = people[people[:, 3] <= 90]
    by_tenure = known[known[:, 0] == 1]
    assert asked.mean("age", {"tenure": [1]}).value == pytest.approx(
        by_tenure[:, 3].mean(), abs=0.01
    )
    children = (people[:, 2] == 2).mean()
    assert asked.share("relation", [2], {}).value == pytest.approx(children, abs=1e-4)
    r = np.corrcoef(known[:, 1], known[:, 3])[0, 1]
    assert asked.correlation("n_persons", "age", {}).value == pytest.approx(r, abs=0.01)


@pytest.fixture(scope="module")
def noisy(office: tuple) -> list[Analyses]:
    """Tables of persons from as many releases."""
    domain, rows, _ = office
    rng = np.random.default_rng(3)
    found = [PersonResiduals.of(measured(domain, rows, 3.0, rng), domain) for _ in range(300)]
    return [Analyses(domain=columns, residuals=tables) for columns, tables in found]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "where", [{}, {"tenure": [1]}, {"relation": [2]}, {"tenure": [0], "relation": [0, 1]}]
)
def test_their_errors_have_the_stated_variance(
    office: tuple, noisy: list[Analyses], where: dict
) -> None:
    people, scores = office[2], []
    kept = np.all(
        [np.isin(people[:, ("tenure", "", "relation").index(c)], v) for c, v in where.items()]
        or [np.ones(len(people), bool)],
        axis=0,
    )
    for analyses in noisy:
        figure = analyses.count(where)
        scores.append((figure.value - kept.sum()) / figure.standard_error)
    squares = float(np.sum(np.square(scores)))
    least, most = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], len(scores))
    assert least < squares < most
    for factor in (0.7, 1 / 0.7):  # the broken twins: a standard error that is wrong by so much
        assert not least < squares * factor**2 < most


def test_a_pair_that_one_place_lacks_has_no_answer(office: tuple) -> None:
    domain, rows, _ = office
    last = (0, domain.names.index("relation_3"))
    found = measured(domain, rows, 1.0, np.random.default_rng(2), without=[last])
    columns, tables = PersonResiduals.of(found, domain)
    assert not tables.holds((0, 2)) and tables.holds((0, 3)) and tables.holds((2, 3))
    with pytest.raises(NotMeasuredError):
        Analyses(domain=columns, residuals=tables).count({"tenure": [0], "relation": [1]})


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("group", [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (1, 3), (2, 3)])
def test_products_are_those_of_households_or_no_smaller(
    office: tuple, group: tuple[int, ...], exact: bool
) -> None:
    """Of a column of persons exact if two persons' pairs are measured, else never too small."""
    domain, rows, people = office
    household = np.repeat(np.arange(N), rows[:, 1])
    order = np.concatenate([np.flatnonzero(rows[:, 1] > place) for place in range(3)])
    by_place = np.concatenate(
        [rows[rows[:, 1] > place][:, [0, 1, 2 + 2 * place, 3 + 2 * place]] for place in range(3)]
    )
    assert sorted(map(tuple, by_place)) == sorted(map(tuple, people))
    assert (np.bincount(order, minlength=N) == np.bincount(household, minlength=N)).all()
    apart = [p for p in itertools.combinations(range(8), 2) if p[0] > 1 and (p[1] - p[0]) % 2 == 0]
    noiseless = measured(
        domain, rows, 1e-5, np.random.default_rng(1), without=() if exact else apart
    )
    columns, tables = PersonResiduals.of(noiseless, domain)
    functions = np.random.default_rng(2).normal(size=(4, *[columns.columns[c].size for c in group]))
    of_persons = functions[(slice(None), *(by_place[:, c] for c in group))]
    totals = np.zeros((N, 4))
    np.add.at(totals, order, of_persons.T)
    true = totals.T @ totals
    found = tables.products(group, functions)
    least, *_, most = np.linalg.eigvalsh((found - true) / np.trace(true))
    assert least > -1e-4
    if group in [(0,), (1,), (0, 1)] or (exact and len(group) == 1):
        assert most < 1e-4
    else:
        assert most > 0.01
        all_alike = len(tables.places) * of_persons @ of_persons.T
        assert np.linalg.eigvalsh(all_alike - found)[0] > -1e-4 * np.trace(true)


POPULATION = 2000
ASKED = (
    ("mean", ("n_persons", {})), ("share", ("relation", [2], {})), ("mean", ("age", {})),
    ("share", ("relation", [2], {"tenure": [1]})),
)  # fmt: skip


class OfSinglePersons(PersonResiduals):
    """Twin: of two persons of one household nothing is known."""

    products = Residuals.products


def figures(
    domain, found: Residuals, sample: Sample | None, asked=ASKED, of=PersonResiduals
) -> list:
    columns, tables = of.of(found, domain)
    analyses = Analyses(domain=columns, residuals=tables, sample=sample)
    return [getattr(analyses, method)(*arguments) for method, arguments in asked]


def test_intervals_for_a_population_cover_and_those_of_single_persons_do_not(
    office: tuple,
) -> None:
    """Where no table of two persons is clear of its noise intervals cover more often."""
    domain, rng, runs = office[0], np.random.default_rng(4), 100
    households, persons = made_up(POPULATION)
    of: dict[int, list] = {}
    for each in persons:
        of.setdefault(each["hid"], []).append(each)
    rows = np.array([record_of(h, of.get(h["hid"], [])) for h in households])
    true = [each.value for each in figures(domain, measured(domain, rows, 1e-5, rng), None)]
    sample = Sample(n_units=N, unit_records=3, absent=True)
    held, of_twin = np.zeros(len(ASKED)), 0
    for _ in range(runs):
        drawn, seed = rows[rng.integers(POPULATION, size=N)], int(rng.integers(2**32))
        found = measured(domain, drawn, 0.5, np.random.default_rng(seed))
        made = figures(domain, found, sample)
        held += [a.lower <= b <= a.upper for a, b in zip(made, true, strict=True)]
        (twin,) = figures(domain, found, sample, ASKED[:1], OfSinglePersons)
        of_twin += twin.lower <= true[0] <= twin.upper
    least, most = stats.binom.ppf([1e-5, 1 - 1e-5], runs, 0.95)
    assert (least <= held).all() and (held[:2] <= most).all()
    assert of_twin < least


def test_persons_of_copies_have_the_variance_of_their_households(office: tuple) -> None:
    """Of copies that are alike only the sampling is left."""
    domain, rows, _ = office
    columns, tables = PersonResiduals.of(
        measured(domain, rows, 1.0, np.random.default_rng(1)), domain
    )
    persons = persons_of(Copy(rows), tables)
    asked = CopiedAnalyses(
        domain=columns, residuals=tables, copies=[persons] * 2,
        sample=Sample(n_units=N, unit_records=3, absent=True),
    )  # fmt: skip
    codes, household = persons.codes, persons.household
    assert len(persons) == rows[:, 1].sum()

    def error(parts: np.ndarray) -> float:
        totals = np.bincount(household, parts, minlength=N)
        return float(np.sqrt(N * totals.var(ddof=1)))

    children = (codes[:, 2] == 2).astype(float)
    assert asked.count({"relation": [2]}).standard_error == pytest.approx(error(children))
    parts = (children - children.mean()) / len(children)
    share = asked.share("relation", [2], {})
    assert share.standard_error == pytest.approx(error(parts)) and share.sampling == "households"
    sizes = codes[:, 1] - codes[:, 1].mean()
    figure = asked.mean("n_persons", {})
    assert figure.standard_error == pytest.approx(error(sizes / len(sizes)))
    assert figure.standard_error > 1.2 * codes[:, 1].std() / np.sqrt(len(codes))
    known = codes[:, 3] <= 90
    x, y = ((each - each.mean()) for each in codes[known][:, (1, 3)].T.astype(float))
    x, y = x / np.sqrt(x @ x), y / np.sqrt(y @ y)
    r, parts = float(x @ y), np.zeros(len(codes))
    parts[known] = x * y - r / 2 * (x**2 + y**2)
    correlation = asked.correlation("n_persons", "age", {})
    assert correlation.value == pytest.approx(r)
    assert correlation.standard_error == pytest.approx(error(parts))


def test_weighted_persons_of_copies_have_the_variance_of_their_households_strata(
    office: tuple,
) -> None:
    domain, rows, _ = office
    columns, tables = PersonResiduals.of(
        measured(domain, rows, 1.0, np.random.default_rng(1)), domain
    )
    weights, strata = 1.0 + rows[:, 1], rows[:, 0]
    persons = persons_of(Copy(rows, weights, SampleDesign(strata=strata)), tables)
    asked = CopiedAnalyses(
        domain=columns, residuals=tables, copies=[persons] * 2,
        sample=Sample(n_units=N, unit_records=3, absent=True),
    )  # fmt: skip
    sizes, w = persons.codes[:, 1], persons.weights
    assert (w == 1.0 + sizes).all()
    parts = w * (sizes - np.average(sizes, weights=w)) / w.sum()
    totals = np.bincount(persons.household, parts, minlength=N)
    of_strata = [totals[strata == each] for each in np.unique(strata)]
    variance = sum(len(each) * each.var(ddof=1) for each in of_strata)
    figure = asked.mean("n_persons", {})
    assert figure.value == pytest.approx(np.average(sizes, weights=w))
    assert figure.standard_error == pytest.approx(np.sqrt(variance))


def test_persons_of_households_of_one_place_are_not_their_households(tmp_path: Path) -> None:
    """Nobody is in some of them, and shares are of those who are there."""
    domain = loaded(tmp_path, CONFIG.replace("at_most: 3", "at_most: 1")).domain
    households, persons = made_up(N)
    rows = np.array(
        [record_of(h, [p for p in persons if p["hid"] == h["hid"]], places=1) for h in households]
    )
    there = rows[rows[:, 1] > 0]
    assert len(there) < 0.9 * N
    columns, tables = PersonResiduals.of(
        measured(domain, rows, 1e-5, np.random.default_rng(1)), domain
    )
    sample = Sample(n_units=N, unit_records=1, absent=True)
    asked = Analyses(domain=columns, residuals=tables, sample=sample)
    of_age = (there[:, 3] < 50).mean()
    share = asked.share("age", range(50), {})
    assert share.value == pytest.approx(of_age, abs=1e-3) and share.sampling
    assert asked.mean("n_persons", {}).value == pytest.approx(1.0, abs=1e-3)
    assert asked.share("relation", [0], {}).value == pytest.approx(1.0, abs=1e-3)
