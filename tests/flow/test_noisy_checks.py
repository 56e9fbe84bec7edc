"""Checks of the input with noise: charged before the look, refusals inside the guarantee."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import raising, run_acting
from bad_input import N

from statpress.configs.loading import load
from statpress.flows.cli import app
from statpress.mechanisms.errors import (
    InfeasibleBudgetError,
    NoisyGateError,
    OutputNotWritableError,
    PolicyMismatchError,
    QualityGateError,
    SourceUnavailableError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.mechanisms.tables.noisy_checks import NoisyChecks
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.entropy import generator_of_made_up, key_of_choice
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.release.quality_gates import Between, check_noisily
from statpress.tasks.release.steps import saying_charged
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.scanning import kept_profile, scan_of


@pytest.fixture
def noisy(agency: Any) -> Any:
    """An agency whose checks are noisy; with a large budget they protect a source of 400."""
    agency.replace("publish: {", "gate: {noise: true, share: 0.1}\npublish: {")
    agency.replace("epsilon: 1.0", "epsilon: 2.0")
    return agency


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def looks(agency: Any) -> int:
    """How many looks count."""
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        return ledger.account_terms(agency.dataset).open_looks


def spent(agency: Any) -> float:
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        return float(ledger.account_terms(agency.dataset).spent["epsilon"])


def words_of(error: BaseException, agency: Any) -> str:
    """What an error says, without the path of the log, whose name has digits by chance."""
    return str(error).replace(str(agency.inspector.log.path), "")


def with_strangers(agency: Any, number: int) -> None:
    """Ages of so many records are nulls, for which the column has no cell."""
    table = pq.read_table(agency.source)
    ages = [None if i < number else age for i, age in enumerate(table["age"].to_pylist())]
    agency.write_source(table.set_column(1, "age", pa.array(ages)))


def test_a_release_is_charged_before_its_look_and_the_look_does_not_count(noisy: Any) -> None:
    bundle = noisy.run().bundle
    assert kinds(noisy) == ["register", "charge", "look", "draw", "settle", "publish"]
    look, settled = noisy.entries()[2], noisy.entries()[4]
    assert (look.body["gates"], look.body["open_looks"]) == ("noisy", 1)
    assert settled.body["passed"] is True
    assert looks(noisy) == 1  # that all can be read in this form is new
    charged = noisy.entries()[1].body["mechanisms"]
    assert [each["mechanism"] for each in charged] == ["bootstrap", "bootstrap", "noisy_checks"]
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["checks"].items() >= charged[-1].items()
    page = (bundle / "PRIVACY.md").read_text()
    assert "compared with the config after noise" in page and "compare exact numbers" not in page
    assert verify_ledger(noisy.home).entries == 6
    app(["verify", str(bundle), "--home", str(noisy.home.root)], exit_on_error=False)


def test_a_few_records_beyond_what_is_allowed_pass_and_many_do_not(noisy: Any) -> None:
    with_strangers(noisy, 1)
    noisy.run()
    with_strangers(noisy, 390)
    noisy.replace("name: first", "name: second")
    noisy.replace("epsilon: 2.0", "epsilon: 0.9")
    with pytest.raises(NoisyGateError) as caught:
        noisy.run()
    assert caught.value.exit_code == 74
    assert "stays spent" in caught.value.what and "390" not in words_of(caught.value, noisy)
    assert kinds(noisy)[6:] == ["charge", "look", "draw", "settle"]
    assert noisy.entries()[-1].body["passed"] is False and looks(noisy) == 1
    logs = [path.read_text() for path in (noisy.home.root / "curator").glob("*.log")]
    hints = [re.findall("^.*declare 'missing: true'.*$", text, re.MULTILINE) for text in logs]
    hint = "missing age: declare 'missing: true', or see whether a field of the source stands for "
    hint += "no value."
    assert sorted(hints) == [[], [hint]]
    assert [each.name for each in noisy.bundles()] == ["first"]
    assert verify_ledger(noisy.home).entries == 10
    with pytest.raises(StatpressError):
        noisy.run_again()  # it drew
    assert len(noisy.entries()) == 10


def test_the_noise_of_the_checks_is_paid_for(noisy: Any) -> None:
    """The products get what is left, and all together no more than the budget."""
    from statpress.configs.loading import load

    with_noise = load(noisy.config).plan()
    noisy.replace("gate: {noise: true, share: 0.1}\n", "")
    exact = load(noisy.config).plan()
    assert with_noise.epsilon <= 2 and exact.epsilon <= 2
    for one, other in zip(with_noise.products, exact.products, strict=True):
        assert one.epsilon < other.epsilon
    assert with_noise.gate is not None and exact.gate is None


@pytest.mark.nightly
def test_every_other_form_of_reading_counts_once(agency: Any) -> None:
    """That a file can be read with another delimiter, or other nulls, is an exact answer."""
    agency.source.with_suffix(".csv").write_text("age\n" + "\n".join(["7"] * N) + "\n")
    agency.text = CSV
    agency.config.write_text(CSV)
    for form in ("", ", delimiter: ';'", ", null_values: [x]", ""):
        agency.config.write_text(CSV.replace("source.csv", f"source.csv{form}"))
        agency.run()
    assert looks(agency) == 3
    agency.config.write_text(CSV.replace("epsilon: 0.1", "epsilon: 0.2"))
    agency.run()
    assert looks(agency) == 3
    verify_ledger(agency.home)


CSV = """\
title: Ages
dataset: testdata
source: {path: data/source.csv}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 0.1, delta: 1.0e-7}
domain: {age: {type: integer, lower: 0, upper: 9}}
products: {ages: {accept: mostly_noise, kind: table, mechanism: gaussian, columns: [age]}}
gate: {noise: true, share: 0.2}
publish: {directory: releases, plots: false, formats: [csv]}
"""


def test_a_unit_cannot_be_asked_for_by_name(of_units: Any) -> None:
    """Fields that stand for no value are none of the column that names the units."""
    people = visits()
    lines = [",".join(map(str, row)) for row in zip(*people.to_pydict().values(), strict=True)]
    of_units.source.with_suffix(".csv").write_text("who,region,age\n" + "\n".join(lines) + "\n")
    of_units.replace("data/source.parquet", "data/source.csv, null_values: ['42']")
    of_units.run()
    assert kinds(of_units)[-1] == "publish"


def test_what_ends_outside_the_guarantee_goes_on_to_count(noisy: Any) -> None:
    noisy.source.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(StatpressError) as caught:
        noisy.run()
    assert isinstance(caught.value, SourceUnreadableError)
    assert kinds(noisy)[1:] == ["charge", "look", "refuse", "void"]
    assert "was given back" in caught.value.what and looks(noisy) == 1
    assert spent(noisy) == 0 and verify_ledger(noisy.home).entries == 5


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"region;age;pay;born\nnorth;1;2;1960-01-01\n", "';'"),
        ("region,age,pay,born,größe\n".encode("latin-1"), "encoding"),
        (b"region,age,born\nnorth,1,1960-01-01\n", "'pay'"),
        (b"region,age,pay,born\nnorth,1,2,1960-01-01\n", "input gate"),
    ],
)
def test_what_stops_a_run_before_it_draws_costs_a_look_and_no_budget(
    noisy: Any, written: bytes, said: str
) -> None:
    noisy.replace("source.parquet", "source.csv")
    noisy.source.with_suffix(".csv").write_bytes(written)
    with pytest.raises(StatpressError, match=said) as caught:
        noisy.run()
    assert "was given back" in caught.value.what and "stays spent" not in str(caught.value)
    assert kinds(noisy)[1:3] == ["charge", "look"] and kinds(noisy)[-1] == "void"
    assert spent(noisy) == 0 and looks(noisy) == 1
    verify_ledger(noisy.home)


def test_an_account_that_wants_noisy_checks_is_charged_for_every_look(noisy: Any) -> None:
    with Ledger.open(noisy.home.ledger) as ledger:
        terms = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": N}
        ledger.register(dataset="only noisy", noisy_gates=True, epsilon="5", delta="1e-4", **terms)
    noisy.replace("dataset: testdata", "dataset: only noisy")
    noisy.source.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(SourceUnreadableError, match="stays spent"):
        noisy.run()
    assert kinds(noisy)[2:] == ["charge", "look", "draw", "refuse"]


def test_a_source_that_is_out_of_reach_leaves_the_charge_for_the_same_run(noisy: Any) -> None:
    gone = SourceUnavailableError("The server does not answer.", where="source")
    with pytest.raises(SourceUnavailableError, match="stays spent"):
        run_acting(noisy, {"check input": raising(gone)})
    assert kinds(noisy)[1:] == ["charge", "look"] and looks(noisy) == 1


def test_a_source_of_another_size_is_outside_too(noisy: Any) -> None:
    table = pq.read_table(noisy.source)
    noisy.write_source(pa.concat_tables([table, table.slice(0, 1)]))
    with pytest.raises(QualityGateError) as caught:
        noisy.run()
    assert type(caught.value) is QualityGateError and caught.value.exit_code == 46
    assert "was given back" in caught.value.what
    assert kinds(noisy)[-2:] == ["refuse", "void"] and looks(noisy) == 1


def test_an_interrupted_look_counts(noisy: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_acting(noisy, {"check input": raising(KeyboardInterrupt())})
    assert kinds(noisy)[1:] == ["charge", "look"] and looks(noisy) == 1 and spent(noisy) > 0


def test_an_account_may_want_noisy_checks(agency: Any) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        terms = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": N}
        ledger.register(dataset="only noisy", noisy_gates=True, epsilon="5", delta="1e-4", **terms)
    agency.replace("dataset: testdata", "dataset: only noisy")
    agency.dataset = "only noisy"
    before = len(agency.entries())
    with pytest.raises(PolicyMismatchError, match="checks are noisy"):
        agency.run()
    assert len(agency.entries()) == before
    agency.replace("publish: {", "gate: {noise: true}\npublish: {")
    agency.run()
    assert kinds(agency)[before:] == ["charge", "look", "draw", "settle", "publish"]


def test_without_delta_there_is_no_noise_for_the_checks(noisy: Any) -> None:
    noisy.replace("delta: 1.0e-6", "delta: 0")
    with pytest.raises(InfeasibleBudgetError, match="delta above 0") as caught:
        noisy.run()
    assert "release.yaml:15" in caught.value.where and kinds(noisy) == ["register"]


# --- units, zeros --------------------------------------------------------------------------

UNITS = """\
title: Visits
dataset: visits
source: {path: data/source.parquet}
privacy: {adjacency: replace_one, unit: {column: who, max_records: 3}, n_units: 100}
budget: {epsilon: 8.0, delta: 1.0e-6}
domain:
  region: {type: categorical, categories: [north, south]}
  age: {type: integer, lower: 0, upper: 9}
structural_zeros: [{region: [north], age: {lower: 8}}]
products:
  people: {accept: mostly_noise, kind: table, mechanism: gaussian, columns: [region, age]}
gate: {noise: true, share: 0.2}
publish: {directory: releases, plots: false, formats: [csv], name: first}
"""


def visits(each: int = 3) -> pa.Table:
    """A hundred persons with so many records, all in the south."""
    who = np.repeat(np.arange(100), each)
    return pa.table({"who": who, "region": ["south"] * len(who), "age": who % 10})


@pytest.fixture
def of_units(agency: Any) -> Any:
    agency.text, agency.dataset = UNITS, "visits"
    agency.config.write_text(UNITS)
    terms = {"unit": "column who", "unit_records": 3, "n_records": 300, "epsilon": "20"}
    agency.register(**terms)
    return agency


class Exact:
    """In place of noisy checks and of the process that judges them: keeps exact figures."""

    margin = 0

    def release(self, counts: Any, noise: Any) -> Any:
        return counts

    def meets(self, gate: str, figures: dict[str, int], expectations: list[Between]) -> bool:
        self.figures = figures
        return True


def judged(agency: Any) -> dict[str, int]:
    """What the noisy gate compares, before the noise."""
    release, exact = load(agency.config), Exact()
    source, plan = source_of(release), release.plan()
    scan = scan_of(source, release, plan, agency.folder)
    profile = kept_profile(source, release, scan, folder=agency.folder, key=key_of_choice())
    check_noisily(cast(Any, exact), release, profile, cast(Any, exact), cast(Any, None))
    return exact.figures


def test_of_a_unit_no_more_than_its_kept_records_is_compared(of_units: Any) -> None:
    """One person with a thousand records in a zero, without a region: three of them count."""
    nulls = pa.nulls(1000, pa.string())
    odd = pa.table({"who": [0] * 1000, "region": nulls, "age": [9] * 1000})
    strange = pa.table({"who": [1] * 500, "region": ["north"] * 500, "age": [9] * 500})
    rest = visits().filter(pa.array(visits()["who"].to_numpy() > 1))
    of_units.write_source(pa.concat_tables([rest, odd, strange]))
    found = judged(of_units)
    assert found["missing region"] == 3 and found["in a structural zero"] in (3, 6)
    assert sum(found.values()) <= 9


def test_a_record_in_a_structural_zero_is_counted_elsewhere(of_units: Any) -> None:
    table = visits()
    ages = table["age"].to_pylist()
    regions = ["north" if age == 9 and i < 30 else "south" for i, age in enumerate(ages)]
    of_units.write_source(table.set_column(1, "region", pa.array(regions)))
    of_units.run()
    path = of_units.releases / "first" / "data" / "people.csv"
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 18 and not any(r["region"] == "north" and int(r["age"]) > 7 for r in rows)


# --- the scan and the membership question ---------------------------------------------------


def told_apart(checks: NoisyChecks, epsilon: float, delta: float) -> bool:
    """Whether one record more changes how often a count passes by more than is claimed.

    At every place of the threshold, with 10,000 runs a side, past what chance explains.
    """
    rng, runs = generator_of_made_up(insecure_seed=20261125), 10_000
    wide = dataclasses.replace(checks, counts=runs, moved=1)
    noise = wide.release(np.zeros(runs, np.int64), rng), wide.release(np.ones(runs, np.int64), rng)
    slack = 2 * 4.9 * (0.25 / runs) ** 0.5
    for threshold in range(-20, 22, 2):
        one, other = (float(np.mean(each <= threshold)) for each in noise)
        for p, q in ((one, other), (other, one), (1 - one, 1 - other), (1 - other, 1 - one)):
            if p > np.exp(epsilon) * q + delta + slack:
                return True
    return False


def test_a_membership_question_has_a_noisy_answer_within_its_share() -> None:
    """Whether one record lies in a structural zero; a twin with next to no noise is caught."""
    checks, delta = NoisyChecks(Fraction(12), 5, 5), 1e-3
    epsilon = checks.loss(n_records=400, n_cells=10).epsilon(delta).upper
    assert not told_apart(checks, epsilon, delta)
    assert told_apart(dataclasses.replace(checks, scale=Fraction(1, 4)), epsilon, delta)


@pytest.mark.parametrize("said", ["Nothing was charged.", "The run was charged, and stays so."])
def test_what_cannot_be_written_after_the_charge_says_once_that_it_was_charged(said: str) -> None:
    charge = cast(Entry, SimpleNamespace(body={"epsilon": "1.5", "delta": "0.00001"}))
    context = cast(RunContext, SimpleNamespace(draw=None))
    with pytest.raises(OutputNotWritableError) as caught, saying_charged(context, charge):
        raise OutputNotWritableError(f"The private copy cannot be written. {said}", where="work")
    assert caught.value.what.count("was charged") == 1
    assert "Nothing was charged" not in caught.value.what
