"""``adjacency: add_remove`` through the whole flow: nothing but noisy counts tells the size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import run_acting
from bad_input import N
from people import RECORD, UNIT, ZEROS, put_people

from statpress.configs.loading import PlannedOrder, load
from statpress.configs.order import Order
from statpress.flows.cli.ledger_commands import register
from statpress.flows.cli.rehearse_command import run_rehearsal
from statpress.flows.runner import run_release
from statpress.flows.terminal import registration
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import (
    ConfigError,
    EmptySourceError,
    LedgerError,
    PolicyMismatchError,
    QueryError,
    RefinementError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.catalogues.linked_data import Publication
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.products.product_kind import kind_named
from statpress.tasks.release.audit import audit
from statpress.tasks.release.foreseen import warnings
from statpress.tasks.release.ledger_check import recomputed, verify_ledger
from statpress.tasks.release.query import Question, ask
from statpress.tasks.release.refine import Options, refine
from statpress.tasks.release.reprint import reprint
from statpress.tasks.source.scanning import SpilledColumns

PRIVATE = "adjacency: add_remove, unit: record, n_records: {about: 400}"
PRODUCTS = """\
products:
  people: {kind: microdata, columns: [region, age, pay], share: 0.5, copies: 2,
    accept: mostly_independent}
  ages: {kind: table, mechanism: laplace, columns: [age, pay], share: 0.25, accept: mostly_noise}
  regions: {kind: table, mechanism: gaussian, columns: [region], share: 0.125}
  old: {kind: estimate, statistic: mean, columns: [age], share: 0.125}
"""


def opened(agency: Any) -> Any:
    """An agency whose size is private, with an account for that."""
    agency.replace(f"adjacency: replace_one, {RECORD}", PRIVATE)
    agency.replace_products(PRODUCTS)
    agency.replace("dataset: testdata", "dataset: panel")
    agency.replace("epsilon: 1.0", "epsilon: 3.0")
    agency.replace(", name: first}", "}")
    agency.dataset = "panel"
    agency.register(adjacency="add_remove", n_records=None, epsilon="30", delta="1e-3")
    return agency


@pytest.fixture
def private(agency: Any) -> Any:
    return opened(agency)


def of_size(agency: Any, n: int) -> None:
    """Write a source of so many records like those of the agency."""
    table = pq.read_table(agency.source)
    agency.write_source(pa.concat_tables([table] * (n // len(table) + 1)).slice(0, n))


def stated(bundle: Path) -> Any:
    return json.loads((bundle / "privacy.json").read_text())


def test_a_release_says_what_its_noisy_counts_say(pressed: Any) -> None:
    bundle = pressed.bundle
    verify_bundle(bundle)
    verify_ledger(pressed.home)
    statement = stated(bundle)
    assert (statement["adjacency"], statement["size"]) == ("add_remove", "rough")
    found, sd = statement["estimated_records"], statement["estimated_records_sd"]
    assert abs(found - N) < 8 * sd and 0 < sd < N / 4
    for product in statement["products"].values():
        assert (product["adjacency"], product["estimated_records"]) == ("add_remove", found)
    for name in ("ages", "regions"):
        rows = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        assert sum(row["projected"] for row in rows) == pytest.approx(found)
    (mean,) = pq.read_table(bundle / "data" / "old.parquet").to_pylist()
    half, true = (mean["upper"] - mean["lower"]) / 2, sum(i % 90 for i in range(N)) / N
    assert abs(mean["lower"] + half - true) < 4 * half
    raw = json.loads((bundle / "data" / "old_raw.json").read_text())
    assert raw["n_records"] == round(raw["numbers"]["records"][0] / 2**21)
    people = pq.read_table(bundle / "data" / "people.parquet").num_rows
    assert abs(people - found) < 8 * sd
    text = " ".join((bundle / "PRIVACY.md").read_text().split())
    for words in (
        "Adjacency is add-remove",
        "wonders whether it is there",
        "expects about 400 records",
        f"there are {found:,} records, with a standard error",
        "planned for about 400 records",
    ):
        assert words in text, words
    assert "replace-one" not in text and "two candidates" not in statement["meaning"]
    assert "whether it is there" in statement["meaning"]
    assert f"about {found:,} records" in " ".join((bundle / "README.md").read_text().split())


def test_neither_the_ledger_nor_what_a_run_says_tells_the_size(private: Any) -> None:
    """Two sources that differ by a third in size, one of them far from what was planned for."""

    class Listener(Silent):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def announce(self, title: str) -> None:
            self.heard.append(title)

        def notify(self, text: str) -> None:
            self.heard.append(text)

    heard, charges, plans = [], [], []
    for n in (400, 523):
        of_size(private, n)
        listener, before = Listener(), len(private.entries())
        private.inspector.log = CuratorLog(private.home.folder("curator"), new_run_id())
        context = private.context()
        context.listener = listener
        bundle = run_release(context, Order(private.config)).bundle
        heard.append([text for text in listener.heard if str(bundle) not in text])
        charges.append(
            [
                {k: v for k, v in each.body.items() if k not in _OF_A_RUN}
                for each in private.entries()[before:]
            ]
        )
        statement = stated(bundle)
        plans.append({k: v for k, v in statement.items() if k not in _RELEASED})
        for product in statement["products"].values():
            assert product["n_records"] == 400
    assert heard[0] == heard[1]
    assert charges[0] == charges[1] and len(charges[0]) == 4
    assert plans[0] == plans[1]


_OF_A_RUN = {"run", "run_id", "created", "spent", "bundle", "manifest_sha256", "open_looks"}
_RELEASED = {
    "ledger_entry", "lifetime", "products", "estimated_records", "estimated_records_sd",
}  # fmt: skip


def test_after_the_count_nothing_reads_the_size(
    private: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(self: Any) -> int:
        raise AssertionError("the private size was read")

    def guard() -> None:
        for kind in (ContingencyTable, SpilledColumns):
            monkeypatch.setattr(kind, "n_records", property(unread))

    run_acting(private, {"draw records": guard, "post-process": monkeypatch.undo})


@pytest.mark.nightly
def test_a_size_far_from_the_planned_one_stops_nothing(private: Any) -> None:
    private.replace("publish:", "gate: {noise: true}\npublish:")
    for n in (280, 520):
        of_size(private, n)
        statement = stated(private.run().bundle)
        found, sd = statement["estimated_records"], statement["estimated_records_sd"]
        assert abs(found - n) < 8 * sd
    release = load(private.config)
    said = " ".join(warnings(release, release.plan()))
    assert "The size is private, and the plan for about 400 records" in said
    assert "a third fewer, errors of shares are half as large again" in said
    planned = {400: release.plan()}
    for n in (267, 600):
        private.replace("about: 400", f"about: {n}")
        planned[n] = load(private.config).plan()
        private.replace(f"about: {n}", "about: 400")
    errors = {n: plan.products[1].expected_error.total_variation for n, plan in planned.items()}
    assert errors[267] / errors[400] == pytest.approx(1.5, rel=0.01)
    assert errors[600] / errors[400] == pytest.approx(2 / 3, rel=0.01)
    sds = {plan.products[1].expected_error.cell_sd_average for plan in planned.values()}
    assert len(sds) == 1


def test_a_bundle_answers_refines_and_reprints_by_the_noisy_total(
    pressed: Any, tmp_path: Path
) -> None:
    bundle = pressed.bundle
    found = stated(bundle)["estimated_records"]
    answer = ask(bundle, Question(columns=("region",), conditions={}))
    assert sum(cell["estimate"] for cell in answer["cells"]) == pytest.approx(found, rel=0.5)
    with pytest.raises(QueryError, match="How many units there are is private"):
        ask(bundle, Question(columns=("region",), conditions={}, population=True))
    product, package = stated(bundle)["products"]["regions"], Publication(bundle).package
    kind = kind_named(product["kind"], product["mechanism"])
    tracked = kind.tracked(bundle, "regions", product, package["resources"])
    # Shares of their own noisy sum: of a public number they would not add up to 1.
    assert sum(each.reading.value for each in tracked) == pytest.approx(1, rel=1e-12)
    refine(bundle, tmp_path / "refined", Options(products=("ages",)))
    with pytest.raises(RefinementError, match="their total, which is private"):
        refine(bundle, tmp_path / "consistent", Options(consistent=True))
    again = reprint(bundle, (), lambda text: None).bundle
    verify_bundle(again)
    for name in ("ages", "regions"):
        one, two = (pq.read_table(each / "data" / f"{name}.parquet") for each in (bundle, again))
        assert one.equals(two)


@pytest.mark.nightly
def test_units_of_several_records(private: Any) -> None:
    private.replace(
        "unit: record, n_records: {about: 400}",
        UNIT.replace("n_units: 160", "n_units: {about: 150}"),
    )
    private.replace("products:", ZEROS + "products:")
    private.replace("  old: {kind: estimate, statistic: mean, columns: [age], share: 0.125}\n", "")
    private.replace("share: 0.125", "share: 0.25")
    private.replace("dataset: panel", "dataset: persons")
    private.register(
        dataset="persons", adjacency="add_remove", unit="column person", unit_records=3,
        n_records=None, epsilon="30", delta="1e-3",
    )  # fmt: skip
    put_people(private)
    statement = stated(private.run().bundle)
    assert (statement["n_units"], statement["n_records"]) == (150, 450)
    found, sd = statement["estimated_records"], statement["estimated_records_sd"]
    assert abs(found - 480) < 8 * sd  # 160 persons, padded to 3 records each
    release = load(private.config)
    for product in release.plan().products:
        described = product.describe(release.privacy)
        assert described["adjacency"] == "add_remove" and described["unit_records"] == 3


def test_accounts_have_one_adjacency(private: Any) -> None:
    private.replace("dataset: panel", "dataset: testdata")
    with pytest.raises(PolicyMismatchError, match="adjacency add_remove is not replace_one"):
        private.run()
    private.replace(PRIVATE, f"adjacency: replace_one, {RECORD}")
    private.replace("dataset: testdata", "dataset: panel")
    with pytest.raises(PolicyMismatchError, match="adjacency replace_one is not add_remove"):
        private.run()


@pytest.mark.parametrize("size", ["400", "from_source", "{from_source: true, about: 400}"])
def test_a_public_size_contradicts_it(private: Any, size: str) -> None:
    private.replace("n_records: {about: 400}", f"n_records: {size}")
    with pytest.raises(ConfigError, match="Under add_remove the number of records is private"):
        load(private.config)


def test_bands_need_a_public_size(private: Any) -> None:
    private.replace("mechanism: gaussian,", "mechanism: gaussian, bands: [cells],")
    with pytest.raises(ConfigError, match="limits for a public number of records"):
        load(private.config).plan()


def test_an_empty_source_is_refused_and_said_to_be(private: Any, pressed: Any) -> None:
    assert "without any record" in " ".join(stated(pressed.bundle)["not_covered"])
    of_size(private, 0)
    with pytest.raises(EmptySourceError):
        private.run()


def test_the_command_registers_it_without_a_size(private: Any) -> None:
    words = registration(load(private.config).config)
    assert "--adjacency add_remove" in words and "n-records" not in words
    home = private.home.root
    result = register("new", adjacency="add_remove", epsilon="1", delta="1e-6", home=home)
    assert result.exit_code == 0
    (entry,) = [each for each in private.entries() if each.body.get("dataset") == "new"]
    assert entry.body["adjacency"] == "add_remove" and "n_records" not in entry.body
    with pytest.raises(ConfigError, match="not stated in full"):
        register("x", adjacency="add_remove", n_records=4, epsilon="1", delta="0", home=home)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("runs", "epsilon"), [(500, 9), pytest.param(2000, 3, marks=pytest.mark.nightly)]
)
def test_it_is_audited_with_a_unit_more(private: Any, runs: int, epsilon: int) -> None:
    """The larger the loss, the fewer releases tell a twin."""
    private.replace("epsilon: 3.0", f"epsilon: {epsilon}")
    start, end = private.text.index("  people:"), private.text.index("  ages:")
    private.replace(private.text[start:end], "")
    private.replace("share: 0.25", "share: 0.5")
    private.replace("share: 0.125", "share: 0.25")
    private.replace("share: 0.125", "share: 0.25")
    release = load(private.config)
    found = audit(release, release.plan(), runs=runs, announce=lambda text: None, insecure_seed=1)
    assert {each.product.name for each in found} == {"ages", "regions", "old"}
    assert all(each.caught and not each.contradicted for each in found)


@pytest.mark.usefixtures("judged_here")
def test_a_rehearsal_is_of_the_same_kind(private: Any) -> None:
    done = run_rehearsal(PlannedOrder.of(Order(private.config)), None, Silent())
    assert stated(done.bundle)["adjacency"] == "add_remove"


def test_a_mechanism_described_for_the_cheaper_adjacency_is_not_covered(agency: Any) -> None:
    agency.run()
    body = next(each.body for each in agency.entries() if each.kind == "charge")
    recomputed(body)
    cheaper = [described | {"adjacency": "add_remove"} for described in body["mechanisms"]]
    with pytest.raises(LedgerError, match="described for add_remove, and charged for replace_one"):
        recomputed({**body, "mechanisms": cheaper})
