"""Releases whose records are fitted with the help of an earlier bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import time_machine

from statpress.configs.loading import load
from statpress.mechanisms.domain.domain import Adjacency, Privacy
from statpress.mechanisms.errors import BundleVerificationError, ConfigError, QueryError
from statpress.mechanisms.marginals.denoising import Model
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.products.noisy_tables import published_marginals, with_scores
from statpress.tasks.release.foreseen import foreseen
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.opened import open_release
from statpress.tasks.release.priors import newest_before, with_priors
from statpress.tasks.release.query import Question, ask

PRODUCTS = """\
products:
  people: {kind: microdata, mechanism: marginals, columns: [region, age, pay], copies: 2,
    accept: [mostly_noise, mostly_independent]}
"""


def opened(agency: Any) -> Any:
    agency.replace_products(PRODUCTS)
    agency.replace(", name: first", "")
    agency.amend(epsilon="9")
    return agency


@pytest.fixture
def office(agency: Any) -> Any:
    return opened(agency)


@pytest.fixture(scope="module")
def pressed(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with one release, of a known seed."""
    agency = opened(founded(tmp_path_factory.mktemp("pressed")))
    agency.run(insecure_seed=1)
    return agency


@pytest.fixture
def following(pressed: Any, tmp_path: Path) -> Any:
    """A copy of the pressed agency, with its release as ``first``, which the next one is after.

    A test may change all of it.
    """
    folder = shutil.copytree(pressed.folder, tmp_path / "following")
    office = replace(pressed, folder=folder)
    (office.first,) = office.bundles()
    after(office, office.first)
    return office


def stated(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "privacy.json").read_text())
    return found


def after(office: Any, bundle: Path) -> None:
    office.replace("copies: 2", f"copies: 2, prior: releases/{bundle.name}")


def read_back(bundle: Path) -> Model:
    own = stated(bundle)["products"]["people"]
    package = json.loads((bundle / "datapackage.json").read_text())
    released = published_marginals(bundle, "people", own, package["resources"])
    return Model.of(with_scores(released, bundle, "people", own))


def test_a_chain_of_releases_hands_on_what_was_learnt(following: Any) -> None:
    office, first = following, following.first
    second = office.run(insecure_seed=2).bundle
    was, now = stated(first), stated(second)
    seal = verify_bundle(first)["seal"]
    assert now["products"]["people"]["prior"] == seal
    assert {**was["products"]["people"], "prior": seal}.keys() | {"prior_pairs"} == now["products"][
        "people"
    ].keys()
    assert (was["epsilon"], was["rho"]) == (now["epsilon"], now["rho"])
    check_bundle(office.home, second, verify_bundle(second))
    verify_ledger(office.home)
    assert "earlier release" in (second / "README.md").read_text()

    listed = pq.read_table(second / "data" / "people_prior.parquet").to_pylist()
    shares = [row["share"] for row in listed if row["column_2"] is None]
    assert sum(shares) == pytest.approx(3)  # of three columns
    assert all((row["variance"] is None) == (row["column_2"] is not None) for row in listed)
    answer = ask(second, Question(columns=("region",), conditions={}))
    assert answer["of"] == "these records"
    helped = open_release(second).with_prior.table("region")
    assert helped.facts["with_prior"] == seal
    assert "prior's model" in " ".join(helped.notes)
    for one, other in zip(answer["cells"], helped.facts["cells"], strict=True):
        assert other["upper"] - other["lower"] < one["upper"] - one["lower"]
    with pytest.raises(QueryError, match="no earlier release"):
        open_release(first).with_prior.table("region")
    for changed in (
        lambda: open_release(second).change(open_release(first)).with_prior,
        lambda: open_release(second).with_prior.change(open_release(first)),
    ):
        with pytest.raises(QueryError, match="no changes with the prior"):
            changed()

    # The third needs the second only, whose files are no larger than those of the first but for
    # what the first said.
    office.text = office.text.replace(first.name, second.name)
    office.config.write_text(office.text)
    shutil.rmtree(first)
    third = office.run(insecure_seed=3).bundle
    read_back(third)
    assert stated(third)["products"]["people"]["prior"] == verify_bundle(second)["seal"]
    names = sorted(path.name for path in (third / "data").iterdir())
    assert names == sorted(path.name for path in (second / "data").iterdir())
    rows = pq.read_table(third / "data" / "people_prior.parquet").num_rows
    sizes = [
        column.size
        for column in load(office.config).domain.project(["region", "age", "pay"]).columns
    ]
    a, b, c = sizes
    assert rows <= a + b + c + a * b + a * c + b * c


@pytest.mark.parametrize("formats", [pytest.param("[csv]", marks=pytest.mark.nightly), "[parquet]"])
def test_what_is_read_back_is_what_was_used(following: Any, formats: str) -> None:
    """Records of the same bundle follow from it: their shares are those of the model, rounded."""
    office = following
    office.replace("formats: [parquet, csv]", f"formats: {formats}")
    second = office.run(insecure_seed=2).bundle
    one_way = read_back(second).one_way[0]
    path = next((second / "data").glob("people.*"))
    if path.suffix == ".parquet":
        values = pq.read_table(path)["region"].to_pylist()
    else:
        values = [
            line.split(",")[0].strip('"') or None for line in path.read_text().splitlines()[1:]
        ]
    region = load(office.config).domain["region"]
    for code, share in enumerate(one_way[: region.n_values]):
        label = region.decode([code])[0]
        assert abs(values.count(label) - share * len(values)) <= 1.0


def test_a_bundle_of_a_known_seed_is_no_prior_of_a_release(following: Any) -> None:
    office = following
    entries = len(office.entries())
    with pytest.raises(ConfigError, match="NOT PUBLISHABLE"):
        office.run()
    assert len(office.entries()) == entries
    release = load(office.config)
    (fault,) = foreseen(release, release.plan())
    assert "NOT PUBLISHABLE" in str(fault)
    assert "products.people.prior" in str(fault)


FLAWS = {
    "other codes": ("width: 10", "width: 20", "declares the column 'age' otherwise"),
    "another column": (
        "columns: [region, age, pay]",
        "columns: [region, born]",
        "no column 'born'",
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_columns_have_to_be_declared_alike(following: Any, flaw: str) -> None:
    office = following
    old, new, words = FLAWS[flaw]
    office.replace(old, new)
    with pytest.raises(ConfigError, match=words):
        office.run(insecure_seed=2)


def test_the_unit_and_the_product_have_to_be_there(following: Any) -> None:
    office, first = following, following.first
    release = load(office.config)
    plan = release.plan()
    persons = Privacy.of_units(
        adjacency=Adjacency.REPLACE_ONE, column="person", max_records=2, n_units=200
    )
    with pytest.raises(ConfigError, match="The bundle protects"):
        with_priors(office.home, release, replace(plan, privacy=persons), seeded=True)
    office.replace("  people:", "  others:")
    release = load(office.config)
    planned = with_priors(office.home, release, release.plan(), seeded=True)
    (product,) = planned.products  # the only one there
    assert product.mechanism.prior is not None
    assert product.mechanism.prior.seal == verify_bundle(first)["seal"]


def test_a_prior_that_was_changed_is_refused_before_the_charge(following: Any) -> None:
    office, first = following, following.first
    (first / "data" / "people_tables.csv").write_text("")
    entries = len(office.entries())
    with pytest.raises(BundleVerificationError, match="was changed"):
        office.run(insecure_seed=2)
    assert len(office.entries()) == entries


def test_columns_may_be_fewer_and_in_another_order(following: Any) -> None:
    office = following
    office.replace("columns: [region, age, pay]", "columns: [pay, region]")
    second = office.run(insecure_seed=2).bundle
    assert "prior" in stated(second)["products"]["people"]


@pytest.mark.nightly
@time_machine.travel("2026-06-01T12:00Z")
def test_a_series_carries_the_newest_earlier_period(office: Any) -> None:
    office.replace(
        "source: {path: data/source.parquet}",
        "series: {name: lfs, carry: prior, period: {by: month, first: 2026-01}, current: PERIOD}\n"
        'source: {path: "data/{period}.parquet"}',
    )
    text, bundles = office.text, {}
    for seed, month in enumerate(("2026-01", "2026-03", "2026-02")):
        shutil.copy(office.source, office.source.with_name(f"{month}.parquet"))
        office.config.write_text(text.replace("PERIOD", month))
        bundles[month] = office.run(insecure_seed=seed).bundle
    priors = {
        month: stated(each)["products"]["people"].get("prior") for month, each in bundles.items()
    }
    seal = verify_bundle(bundles["2026-01"])["seal"]
    assert priors == {"2026-01": None, "2026-03": seal, "2026-02": seal}
    office.config.write_text(text.replace("PERIOD", "2026-04"))
    release = load(office.config)
    assert newest_before(release, seeded=True) == bundles["2026-03"]
    assert newest_before(release, seeded=False) is None


def test_a_bundle_that_the_ledger_did_not_charge_is_no_prior(office: Any) -> None:
    """Its own word says no more than that it is whole: raw tables could have been made into one."""
    bundle = office.run().bundle
    after(office, bundle)
    office.run()
    office.home.root.rename(office.home.root.with_name("elsewhere"))
    office.register(epsilon="9")
    before = len(office.entries())
    with pytest.raises(BundleVerificationError, match="no such charge"):
        office.run()
    assert all(each.kind != "charge" for each in office.entries()[before:])
