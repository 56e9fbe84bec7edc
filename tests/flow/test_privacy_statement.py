"""The privacy statement of a bundle: its form, what was spent, what it says in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from monthly import monthly

from statpress.configs.loading import load
from statpress.configs.order import Order
from statpress.configs.privacy_statement import FORMAT
from statpress.configs.schema import privacy_schema_text
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.build import statement
from statpress.tasks.release.reprint import check_reprint, reprint
from statpress.tasks.report.privacy_page import NAME, privacy_page

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(privacy_schema_text())
COUNTS = """\
  drawn: {kind: microdata, mechanism: bootstrap, columns: [region, age], accept: mostly_noise}
  noisy: {kind: table, mechanism: gaussian, columns: [born], accept: mostly_noise}
"""
EVERY_KIND = f"""\
{COUNTS}\
  fitted: {{kind: microdata, mechanism: marginals, columns: [region, age, pay],
    copies: 2, accept: mostly_noise}}
  mean: {{kind: estimate, statistic: mean, columns: [pay], accept: mostly_noise}}
  curve: {{kind: function, target: kde, columns: [age], bandwidth: 0.3, degree: 4, order: 2,
    accept: mostly_noise}}
"""
EPSILON, RHO = "{epsilon: 1.0, delta: 1.0e-6}", "{rho: 0.05, delta: 1.0e-6}"
UNITS = "{adjacency: replace_one, unit: {column: person, max_records: 3}, n_units: 100}"


def stated_in(bundle: Path) -> Any:
    return json.loads((bundle / "privacy.json").read_text())


def check(stated: Any) -> None:
    """It is of the form, and says nothing that the form does not know of."""
    jsonschema.Draft202012Validator(SCHEMA).validate(stated)
    assert stated.keys() - {"$schema"} <= SCHEMA["properties"].keys()


@pytest.fixture(scope="module")
def released(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with two releases of a dataset, whose limit was raised afterwards."""
    agency = founded(tmp_path_factory.mktemp("statements"))
    agency.run()
    agency.replace("name: first", "name: second")
    agency.run()
    agency.amend(epsilon="20", delta="1e-5")
    return agency


def test_it_is_of_its_form_and_explained(released: Any) -> None:
    for bundle in released.bundles():
        verify_bundle(bundle)
        stated = stated_in(bundle)
        check(stated)
        assert stated["format"] == FORMAT
        assert (bundle / stated["$schema"]).read_text() == privacy_schema_text()
        assert (bundle / NAME).read_text() == privacy_page(stated)
        assert stated["outside_the_guarantee"] == " ".join(stated["not_covered"])


def test_it_says_what_the_dataset_has_spent_at_its_charge(released: Any) -> None:
    first, second = (stated_in(bundle)["lifetime"] for bundle in released.bundles())
    assert first["spent_before"] == dict.fromkeys(first["spent"], "0")
    assert second["spent_before"] == first["spent"]
    with Ledger.open(released.home.ledger, create=False) as ledger:
        account = ledger.account("testdata")
    assert second["spent"] == account.spent.texts()
    for each in (first, second):
        assert (each["policy"], each["limit"]["epsilon"]) == ("basic", "3")  # not 20, set later
        assert set(each["limit"]) == {"epsilon", "delta"} == set(each["remaining"])
        for measure, left in each["remaining"].items():
            known = Decimal(each["limit"][measure]) - Decimal(each["spent"][measure])
            assert Decimal(left) == known


def test_a_second_release_says_that_there_was_a_first(released: Any) -> None:
    first, second = ((bundle / NAME).read_text() for bundle in released.bundles())
    assert "Before it the same data were charged for other releases" in second
    assert "Before it the same data" not in first


@pytest.mark.parametrize("period", [None, "2026-10"])
def test_a_panel_s_statement_is_of_one_person(agency: Any, period: str | None) -> None:
    agency.amend(design="any 2 months")
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        for number in range(1, 4):
            loss = {"epsilon": f"0.{number}", "delta": "1e-7", "rho": "0.01", "rho_delta": "0"}
            terms = {"adjacency": "replace_one", "unit": "record", "n_records": 400}
            ledger.charge(
                dataset="testdata",
                run_id=f"run-{number}",
                period=f"2026-0{number}",
                mechanisms=[],
                config_sha256="a" * 64,
                insecure_seed=False,
                version="1",
                unit_records=1,
                **loss,
                **terms,
            )
    order = Order(agency.config)
    if period is not None:
        monthly(agency, "2026-01")
        agency.source.rename(agency.source.with_name(f"{period}.parquet"))
        order = order.at_period(period)
    bundle = agency.run(order).bundle
    verify_bundle(bundle)
    stated = stated_in(bundle)
    check(stated)
    life = stated["lifetime"]
    assert (life["design"], life.get("period")) == ("any 2 months", period)
    before = "0.5" if period is None else "0.3"  # the two heaviest, or the heaviest other
    assert life["spent_before"]["epsilon"] == before
    assert life["spent_before"].keys() == life["limit"].keys() == life["spent"].keys()
    left = Decimal("3") - Decimal(before) - Decimal(stated["epsilon"])
    assert Decimal(life["remaining"]["epsilon"]) == left
    for page in (NAME, "report.html"):
        text = " ".join((bundle / page).read_text().split())
        assert "a person takes part in at most 2 of the months" in text
        assert ("names no period" in text) == (period is None)


def test_a_reprint_keeps_it_to_the_letter(released: Any) -> None:
    original = released.releases / "first"
    made = reprint(original).bundle
    try:
        verify_bundle(made)
        assert check_reprint(made)
        for name in (NAME, "privacy.json", "privacy.schema.json"):
            assert (made / name).read_bytes() == (original / name).read_bytes()
    finally:
        made.rename(released.folder / "reprinted")


@pytest.fixture(scope="module")
def charged(released: Any) -> dict[str, Any]:
    """What a statement holds only once its release is charged."""
    found = stated_in(released.bundles()[0])
    return {name: found[name] for name in ("$schema", "format", "ledger_entry", "lifetime")}


def planned(config: Path, charged: dict[str, Any], *, seed: int | None = None) -> Any:
    """The statement of a config's release, as it would be charged."""
    release = load(config)
    found = statement(release, release.plan(), publishable=seed is None)
    stated = json.loads(json.dumps(found, allow_nan=False))
    privacy_page(stated)  # as before the charge
    return charged | stated


@pytest.mark.parametrize(
    "name", ["census2000", "census2000_estimates", "census2000_places", "happiness"]
)
def test_of_the_shipped_configs(name: str, charged: dict[str, Any]) -> None:
    stated = planned(ROOT / "configs" / f"{name}.yaml", charged)
    check(stated)
    assert "charged as entry" in privacy_page(stated)


@pytest.mark.parametrize(
    ("unit", "budget"),
    [
        pytest.param("record", EPSILON, marks=pytest.mark.nightly),
        ("record", RHO),
        ("column", EPSILON),
        pytest.param("column", RHO, marks=pytest.mark.nightly),
    ],
)
def test_of_every_kind_budget_and_unit(
    budget: str, unit: str, agency: Any, charged: dict[str, Any]
) -> None:
    start, end = agency.text.index("  people:"), agency.text.index("publish:")
    agency.replace(agency.text[start:end], COUNTS if unit == "column" else EVERY_KIND)
    agency.replace("{epsilon: 1.0, delta: 1.0e-6}", budget)
    if unit == "column":
        agency.replace("{adjacency: replace_one, unit: record, n_records: 400}", UNITS)
    stated = planned(agency.config, charged, seed=3)
    check(stated)
    kinds = {product["kind"] for product in stated["products"].values()}
    assert len(kinds) == (2 if unit == "column" else 4)
    page = privacy_page(stated)
    assert page.splitlines()[2].startswith("**NOT PUBLISHABLE")
    assert ("one `person` with all its records" in page) is (unit == "column")
    assert set(stated["citations"]) == {each["mechanism"] for each in stated["products"].values()}


def test_a_statement_of_another_form_is_refused(released: Any) -> None:
    honest = stated_in(released.bundles()[0])
    for path, value in {
        ("format",): "statpress-privacy/2",
        ("epsilon",): "-1",
        ("epsilon_upper",): None,
        ("lifetime", "policy"): "any",
        ("products", "people", "trade_off"): [],
        ("products", "people", "mechanism"): 3,
        ("curve", 0, "delta_upper"): 1.5,
        ("not_covered",): [],
    }.items():
        stated = copy.deepcopy(honest)
        place = stated
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            check(stated)
    with pytest.raises(AssertionError):
        check(honest | {"unheard": 1})
