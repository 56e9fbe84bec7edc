"""Bundles released anew: reprinted without data, renewed on new data, revised."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from cyclopts import CycloptsError
from people import ZEROS, count_persons, put_people

from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order, from_environment, from_options
from statpress.configs.yaml_text import parse
from statpress.flows.cli import app
from statpress.flows.cli.rerelease_command import proposal_facts, proposal_report
from statpress.flows.runner import run_release
from statpress.mechanisms import errors
from statpress.tasks.bundle.manifest import FACTS, MANIFEST_NAME, seal, verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.reprint import check_reprint, reprint
from statpress.tasks.release.review import note_bundle
from statpress.tasks.release.succession import propose

PRODUCTS = """\
products:
  people: {accept: mostly_noise, kind: microdata, mechanism: bootstrap, columns: [region, age], share: 0.5}
  pays: {accept: mostly_noise, kind: table, mechanism: laplace, columns: [pay, region], share: 0.3}
  ages: {accept: mostly_noise, kind: table, mechanism: two_resolutions, columns: [age], share: 0.1}
"""  # noqa: E501
MEAN = "  mean: {kind: estimate, columns: [age], statistic: mean, confidence: 0.9, share: 0.1}\n"
COPIED = {"mean.csv", "mean_distribution.csv", "mean_raw.json"}
STEMS = {"people", "people_debiased", "pays", "ages"}
KEPT: dict[str, Path] = {}


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    KEPT.clear()
    KEPT["folder"] = tmp_path_factory.mktemp("kept")


def restored(agency: Any, case: str, publish: Callable[[], None]) -> Path:
    """The bundle ``first`` of an agency that published it once, in a copy of all it has."""
    place = KEPT["folder"] / case
    if not place.exists():
        publish()
        shutil.copytree(agency.folder, place)
    shutil.rmtree(agency.folder)
    shutil.copytree(place, agency.folder)
    agency.text = agency.config.read_text()
    return next(iter(agency.bundles()))


@pytest.fixture
def first(agency: Any) -> Path:
    """A published bundle, whose config names a file of categories."""

    def publish() -> None:
        agency.replace_products(PRODUCTS + MEAN)
        agency.replace("categories: [north, south]", "categories: {file: regions.txt}")
        agency.replace("formats: [parquet, csv]", "formats: [csv]")
        (agency.folder / "regions.txt").write_text("north\nsouth\n")
        agency.run()

    return restored(agency, "first", publish)


def manifest_of(bundle: Path) -> Any:
    return json.loads((bundle / MANIFEST_NAME).read_text())


def reseal(bundle: Path, **facts: Any) -> None:
    manifest = manifest_of(bundle)
    config = hashlib.sha256((bundle / "config.yaml").read_bytes()).hexdigest()
    seal(bundle, {name: manifest[name] for name in FACTS} | {"config_sha256": config} | facts)


def edit(bundle: Path, name: str, old: str, new: str) -> None:
    text = (bundle / name).read_text()
    assert old in text
    (bundle / name).write_text(text.replace(old, new, 1))
    reseal(bundle)


def follow(
    agency: Any, bundle: Path, *options: str, revised: Path | None = None, **variables: str
) -> Any:
    """The proposal for a renewal, or a revision, once the ledger was asked."""
    overrides = (*from_environment(variables), *from_options(options))
    proposal = propose(bundle, revised, overrides, agency.folder, agency.home)
    proposal.check(agency.home)
    return proposal


def run(agency: Any, proposal: Any) -> Any:
    agency.config.unlink(missing_ok=True)  # a renewal needs the bundle alone
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
    return run_release(agency.context(), proposal.planned)


# --- overrides in a run ---------------------------------------------------------


def test_a_run_records_its_overrides_and_the_config_as_it_was_used(first: Path, agency) -> None:
    text = agency.config.read_text()
    proposal = follow(agency, first, "publish.name=x", STATPRESS__SOURCE__FORMAT="parquet")
    outcome = run(agency, proposal)
    manifest = verify_bundle(outcome.bundle)
    assert manifest["overrides"] == [
        {"key": "source.format", "value": "parquet", "by": "STATPRESS__SOURCE__FORMAT"},
        {"key": "publish.name", "value": "x", "by": "--set"},
    ]
    used = (outcome.bundle / "config.yaml").read_text()
    assert used == (
        text.replace("{file: regions.txt}", "[north, south]")
        .replace("{path", "{format: parquet, path")
        .replace("name: first", "name: x")
    )
    digest = hashlib.sha256(used.encode()).hexdigest()
    charges = [entry for entry in agency.entries() if entry.kind == "charge"]
    assert charges[-1].body["config_sha256"] == manifest["config_sha256"] == digest
    (outcome.bundle / "config.yaml").write_text(used.replace("name: x", "name: y"))
    seal(outcome.bundle, {name: manifest[name] for name in FACTS})
    with pytest.raises(errors.BundleVerificationError, match=r"manifest\.json was changed"):
        verify_bundle(outcome.bundle)
    reseal(outcome.bundle)
    with pytest.raises(errors.BundleVerificationError, match="another seal"):
        check_bundle(agency.home, outcome.bundle, verify_bundle(outcome.bundle))


# --- reprint --------------------------------------------------------------------


def test_a_reprint_in_another_format_holds_what_was_drawn(first: Path, agency) -> None:
    before, entries = manifest_of(first), agency.entries()
    for name in ("data", "home"):
        shutil.move(agency.folder / name, agency.folder / f"no-{name}")  # neither is needed
    done = reprint(first, from_options(["publish.formats=[parquet]", "title=Anew"]))
    (agency.folder / "no-home").rename(agency.folder / "home")
    assert done.bundle == first.parent / "first-reprint-1"
    assert manifest_of(first) == before and agency.entries() == entries
    manifest = verify_bundle(done.bundle)
    assert manifest["reprint_of"] == before
    for name in ("run_id", "ledger_entry", "publishable", "dataset", "supersedes"):
        assert manifest[name] == before[name]
    assert manifest["title"] == "Anew"
    assert [each["key"] for each in manifest["overrides"]] == ["publish.formats", "title"]
    assert {path.name for path in (done.bundle / "data").iterdir()} == {
        *COPIED, *(f"{stem}.parquet" for stem in STEMS)
    }  # fmt: skip
    assert done.copied == ("mean",)
    for stem in STEMS - {"people"}:
        nulls = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
        was = pyarrow.csv.read_csv(first / "data" / f"{stem}.csv", convert_options=nulls)
        assert (
            pq.read_table(done.bundle / "data" / f"{stem}.parquet").to_pydict() == was.to_pydict()
        )
    package = json.loads((done.bundle / "datapackage.json").read_text())
    assert len(package["resources"]) == len(STEMS) + len(COPIED)
    for resource in package["resources"]:
        if Path(resource["path"]).name in COPIED:
            continue
        names = [field["name"] for field in resource["schema"]["fields"]]
        assert names == pq.read_schema(done.bundle / resource["path"]).names
    readme = (done.bundle / "README.md").read_text()
    assert readme.startswith("# Anew\n") and before["seal"] in readme
    assert check_reprint(done.bundle)
    check_bundle(agency.home, done.bundle, manifest)
    with pytest.raises(errors.BundleVerificationError, match="reprint"):
        note_bundle(agency.home, done.bundle)


def test_reprints_of_reprints_name_the_original(first: Path, agency) -> None:
    original = manifest_of(first)
    one = reprint(first)
    two = reprint(one.bundle, from_options(["publish.name=named"]))
    three = reprint(one.bundle)
    assert [done.bundle.name for done in (one, two, three)] == [
        "first-reprint-1", "named", "first-reprint-2",
    ]  # fmt: skip
    for done in (one, two, three):
        assert manifest_of(done.bundle)["reprint_of"] == done.original == original
        for path in (first / "data").iterdir():
            assert (done.bundle / "data" / path.name).read_bytes() == path.read_bytes()
        assert (done.bundle / "README.md").read_text().count("## Reprint") == 1
        check_bundle(agency.home, done.bundle, verify_bundle(done.bundle))
    with pytest.raises(errors.BundleExistsError):
        reprint(first, from_options(["publish.name=named"]))


def _raw(done: Path) -> None:
    path = done / "data" / "pays.csv"
    rows = path.read_text().splitlines()
    cells = rows[1].split(",")
    cells[2] = str(int(cells[2]) + 1)
    path.write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]) + "\n")


def _record(done: Path) -> None:
    path = done / "data" / "people.csv"
    rows = path.read_text().splitlines()
    other = next(row for row in rows[2:] if row != rows[1])
    path.write_text("\n".join([rows[0], other, *rows[2:]]) + "\n")


def _estimate(done: Path) -> None:
    path = done / "data" / "people_debiased.csv"
    path.write_text(path.read_text().replace("\n", "0\n", 2).replace("0\n", "\n", 1))


def _mean(done: Path) -> None:
    path = done / "data" / "mean_raw.json"
    text = path.read_text()
    (drawn,) = json.loads(text)["numbers"]["sum"]
    path.write_text(text.replace(str(drawn), str(drawn + 1), 1))


def _more(done: Path) -> None:
    (done / "data" / "more.csv").write_text("a\n1\n")


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (_raw, "'pays' are not those that were drawn"),
        (_record, "'people' are not those that were drawn"),
        (_estimate, r"data/people_debiased\.csv: not what follows"),
        (_mean, r"data/mean_raw\.json: not what follows"),
        (_more, r"data/more\.csv: not what follows"),
    ],
)
def test_a_forged_reprint_is_found(first: Path, forge: Any, said: str) -> None:
    done = reprint(first).bundle
    assert check_reprint(done)
    forge(done)
    reseal(done)
    verify_bundle(done)
    with pytest.raises(errors.BundleVerificationError, match=said):
        check_reprint(done)


def test_a_reprint_cannot_take_over_another_statement_or_original(first: Path, agency) -> None:
    done = reprint(first).bundle
    kept = (done / "privacy.json").read_text()
    (done / "privacy.json").write_text(kept.replace('"epsilon": "0.', '"epsilon": "0.0', 1))
    reseal(done)
    with pytest.raises(errors.BundleVerificationError, match="was changed"):
        verify_bundle(done)
    (done / "privacy.json").write_text(kept)
    forged = manifest_of(first) | {"title": "x"}
    reseal(done, reprint_of=forged)
    with pytest.raises(errors.BundleVerificationError, match="was changed"):
        verify_bundle(done)
    other = agency.folder / "other"
    shutil.copytree(first, other)
    reseal(other, title="x")  # a whole bundle, which no ledger knows
    reseal(done, reprint_of=manifest_of(other))
    with pytest.raises(errors.BundleVerificationError, match="another seal"):
        check_bundle(agency.home, done, verify_bundle(done))


def test_a_reprint_by_other_versions_is_checked_by_what_was_drawn(first: Path, capsys) -> None:
    done = reprint(first).bundle
    reseal(done, versions=manifest_of(done)["versions"] | {"statpress": "99"})
    _estimate(done)  # a later version's post-processing may differ
    reseal(done)
    assert check_reprint(done) is False
    app(["verify", str(done)], exit_on_error=False)
    assert "were not derived again" in capsys.readouterr().out
    _raw(done)
    reseal(done)
    with pytest.raises(errors.BundleVerificationError, match="drawn"):
        check_reprint(done)


def test_a_reprint_by_other_versions_is_checked_in_every_format(first: Path) -> None:
    done = reprint(first, from_options(["publish.formats=[parquet, csv]"])).bundle
    other = manifest_of(done)["versions"] | {"statpress": "99"}
    _raw(done)  # the Parquet file beside it is as it was
    reseal(done, versions=other)
    with pytest.raises(errors.BundleVerificationError, match="drawn"):
        check_reprint(done)
    shutil.copyfile(first / "data" / "pays.csv", done / "data" / "pays.csv")
    (done / "data" / "pays.xlsx").write_text("anything")
    reseal(done, versions=other)
    with pytest.raises(errors.BundleVerificationError, match=r"data/pays\.xlsx: not what follows"):
        check_reprint(done)


@pytest.mark.parametrize("option", ["budget.epsilon=0.1", "publish.directory=x", "dataset=x"])
def test_a_reprint_changes_presentation_alone(first: Path, option: str) -> None:
    with pytest.raises(errors.RereleaseError, match="A reprint changes") as caught:
        reprint(first, from_options([option]))
    assert caught.value.where == f"--set {option.partition('=')[0]}"
    with pytest.raises(errors.ConfigError, match=r"'parquet', 'csv', .* or '\w+'"):
        reprint(first, from_options(["publish.formats=[xlsx]"]))
    assert [path.name for path in first.parent.iterdir()] == ["first"]


def test_what_is_no_bundle_of_this_version_is_not_reprinted(first: Path) -> None:
    (first / "README.md").write_text("x")
    with pytest.raises(errors.BundleVerificationError, match=r"README\.md was changed"):
        reprint(first)
    stated = json.loads((first / "privacy.json").read_text())
    del stated["products"]["pays"]["raw_sha256"]
    (first / "privacy.json").write_text(json.dumps(stated))
    reseal(first)
    with pytest.raises(errors.RereleaseError, match="no digest"):
        reprint(first)
    assert [path.name for path in first.parent.iterdir()] == ["first"]


def test_a_bundle_of_a_later_version_is_named_as_such(first: Path, agency) -> None:
    reseal(first, format="statpress-bundle/9")
    for act in (reprint, verify_bundle, lambda bundle: follow(agency, bundle)):
        with pytest.raises(errors.BundleVerificationError, match=r"bundle/9.*does not") as caught:
            act(first)
        assert "version of statpress" in caught.value.next_step


def test_a_bundle_of_the_first_form_still_verifies(first: Path) -> None:
    manifest = manifest_of(first)
    form = {"format": "statpress-bundle/1", "config_sha256": "a" * 64}
    seal(first, {name: manifest[name] for name in FACTS[:-3]} | form)
    assert verify_bundle(first)["format"] == "statpress-bundle/1"


@pytest.mark.nightly
def test_units_zeros_and_a_known_seed_are_reprinted_too(agency) -> None:
    products = PRODUCTS.replace("[region, age]", "[region, age, pay]").replace("0.1}", "0.2}")
    agency.replace_products(ZEROS + products)
    count_persons(agency)
    put_people(agency)
    bundle = agency.run(insecure_seed=2).bundle
    done = reprint(bundle, from_options(["publish.formats=[csv]", "publish.name=more"]))
    assert done.bundle.name == "more-NOT-PUBLISHABLE"
    assert manifest_of(done.bundle)["publishable"] is False
    assert check_reprint(done.bundle)
    for path in (done.bundle / "data").iterdir():
        assert path.read_bytes() == (bundle / "data" / path.name).read_bytes()
    with pytest.raises(errors.RereleaseError, match="NOT PUBLISHABLE"):
        follow(agency, bundle)


# --- renew ----------------------------------------------------------------------


def test_a_renewal_is_a_run_of_its_own_from_the_bundle_alone(first: Path, agency) -> None:
    (agency.folder / "regions.txt").unlink()
    elsewhere = agency.folder / "archive" / "first"
    elsewhere.parent.mkdir()
    first.rename(elsewhere)
    table = pq.read_table(agency.source)
    age = table.schema.get_field_index("age")
    agency.write_source(table.set_column(age, "age", pa.array([95] * len(table))))
    agency.source.rename(agency.folder / "data" / "new.parquet")
    proposal = follow(agency, elsewhere, "source.path=data/new.parquet", "publish.name=second")
    assert set(proposal.difference["config"]) == {"source.path", "publish.name"}
    assert {p["fate"] for p in proposal.difference["products"].values()} == {"unchanged"}
    assert all(cost["change"] == "0" for cost in proposal.difference["cost"].values())
    outcome = run(agency, proposal)
    assert outcome.bundle == agency.releases / "second"
    manifest = verify_bundle(outcome.bundle)
    assert manifest["supersedes"] == manifest_of(elsewhere)["seal"]
    assert manifest["supersedes"] in (outcome.bundle / "README.md").read_text()
    ages = pyarrow.csv.read_csv(outcome.bundle / "data" / "ages.csv").to_pydict()
    assert ages["age"][int(np.argmax(ages["estimate"]))] == 94.5  # the new vintage
    kinds = [entry.kind for entry in agency.entries()]
    assert kinds == ["register", *(["look", "charge", "draw", "publish"] * 2)]
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        spent = ledger.account("testdata").spent["epsilon"]
    assert str(spent) == str(2 * proposal.plan.epsilon)
    assert verify_ledger(agency.home).entries == 9
    check_bundle(agency.home, outcome.bundle, manifest)
    with pytest.raises(errors.BundleExistsError):
        run(agency, proposal)
    assert len(agency.entries()) == 9


@pytest.mark.parametrize("option", ["budget.epsilon=0.5", "products.people.columns=[age]"])
def test_a_renewal_changes_the_vintage_alone(first: Path, agency, option: str) -> None:
    with pytest.raises(errors.RereleaseError, match="vintage") as caught:
        follow(agency, first, option)
    assert "--revise" in caught.value.next_step
    name, _, value = option.partition("=")
    variable = f"STATPRESS__{name.replace('.', '__').upper()}"
    with pytest.raises(errors.RereleaseError, match="vintage") as caught:
        follow(agency, first, **{variable: value})
    assert caught.value.where == variable


def test_a_vintage_of_another_size_needs_an_account_for_it(first: Path, agency) -> None:
    proposal = follow(agency, first, "privacy.n_records=300", "publish.name=x")
    assert proposal.difference["protected"]["n_records"] == {"was": 400, "now": 300}
    assert "A run would stop: " in list(proposal_report(proposal))[-1]
    with pytest.raises(errors.PolicyMismatchError):
        run(agency, proposal)
    assert len(agency.entries()) == 5


# --- who may be followed ---------------------------------------------------------


def test_only_what_this_ledger_published_is_followed(first: Path, agency) -> None:
    again = reprint(first).bundle
    with pytest.raises(errors.RereleaseError, match="reprint") as caught:
        follow(agency, again)
    assert manifest_of(first)["seal"] in caught.value.next_step
    with pytest.raises(errors.UnregisteredDatasetError):
        follow(agency, first, "dataset=other")
    ledger, kept = agency.home.ledger, agency.folder / "kept.sqlite"
    shutil.move(ledger, kept)
    with pytest.raises(errors.UnregisteredDatasetError):  # no ledger at all
        follow(agency, first)
    agency.register()
    with pytest.raises(errors.BundleVerificationError, match="no such charge"):
        follow(agency, first)
    shutil.move(kept, ledger)
    follow(agency, first)
    edit(first, "config.yaml", "epsilon: 1.0", "epsilon: 0.9")
    with pytest.raises(errors.BundleVerificationError, match="another seal"):
        follow(agency, first)
    (first / "config.yaml").write_text("x")
    with pytest.raises(errors.BundleVerificationError, match=r"config\.yaml was changed"):
        follow(agency, first)
    assert len(agency.entries()) == 5


# --- revise ----------------------------------------------------------------------


def test_a_revision_shows_what_changes_and_then_runs(first: Path, agency) -> None:
    agency.replace("epsilon: 1.0", "epsilon: 0.5")
    agency.replace("delta: 1.0e-6", "delta: 0.0000010")
    agency.replace("bins: 5", "bins: 4")
    agency.replace(
        "mechanism: laplace, columns: [pay, region]", "mechanism: gaussian, columns: [pay]"
    )
    agency.replace(
        "ages: {accept: mostly_noise, kind: table, mechanism: two_resolutions, columns: [age]",
        "born: {accept: mostly_noise, kind: table, mechanism: laplace, columns: [born]",
    )
    revised = agency.folder / "revised.yaml"
    agency.config.rename(revised)
    entries = agency.entries()
    proposal = follow(agency, first, "publish.name=second", revised=revised)
    assert agency.entries() == entries
    found = json.loads(json.dumps(proposal_facts(proposal)))["difference"]
    assert found["supersedes"] == manifest_of(first)["seal"]
    assert {name: each["fate"] for name, each in found["products"].items()} == {
        "people": "changed", "pays": "changed", "ages": "removed", "born": "added",
        "mean": "changed",
    }  # fmt: skip
    assert found["config"]["budget.epsilon"] == {"was": "1.0", "now": "0.5"}
    assert "budget.delta" not in found["config"]  # spelt otherwise, and the same
    assert found["config"]["domain.pay.bins"] == {"was": "5", "now": "4"}
    assert found["config"]["products.ages"]["now"] is None
    assert "domain.region.categories" not in found["config"]  # a file then, a list now
    pays, stated = found["products"]["pays"], json.loads((first / "privacy.json").read_text())
    assert pays["parameters"]["mechanism"] == {"was": "laplace", "now": "gaussian"}
    assert pays["parameters"]["columns"] == {"was": ["pay", "region"], "now": ["pay"]}
    planned = {p.request.name: p for p in proposal.plan.products}
    for name, product in planned.items():
        told = found["products"][name]["expected_error"]
        figure = "width" if name == "mean" else "cell_sd_average"
        expected = getattr(product.expected_error, figure)
        assert told[figure]["now"] == (list(expected) if name == "mean" else expected)
    width = found["products"]["mean"]["expected_error"]["width"]
    assert width["ratio"] == [width["now"][0] / width["was"][0]] > [1]
    people = found["products"]["people"]["expected_error"]["cell_sd_average"]
    assert people["was"] == stated["products"]["people"]["expected_error"]["cell_sd_average"]
    assert people["ratio"] == people["now"] / people["was"] > 1
    verdict = found["products"]["people"]["verdict"]
    assert verdict["was"].startswith("mostly noise: ") and verdict["now"] != verdict["was"]
    page, meaning = (first / "report.html").read_text(), stated["meaning"]
    assert "standard error of an empty cell" in page and "cell_sd" not in page
    assert "attack_advantage" not in meaning and "% over guessing" in meaning
    cost = found["cost"]["epsilon"]
    assert float(cost["was"]) + float(cost["change"]) == pytest.approx(float(cost["now"]))
    assert cost["change"].startswith("-")
    assert found["products"]["ages"]["cost"]["epsilon"]["now"] is None
    assert found["products"]["born"]["cost"]["epsilon"]["was"] is None
    *tables, one, two = proposal_report(proposal)
    assert len(tables) == 2 and all("The config accepts that" in text for text in (one, two))
    outcome = run(agency, proposal)
    assert manifest_of(outcome.bundle)["supersedes"] == manifest_of(first)["seal"]
    kept = parse((outcome.bundle / "config.yaml").read_text(), "x").value
    assert kept["publish"]["name"] == "second"


# --- the command, and the deployed flow --------------------------------------------


@pytest.mark.usefixtures("judged_here")
def test_the_command_in_its_three_ways(
    first: Path, agency, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def statpress(*arguments: str) -> Any:
        app([*arguments, "--json"], exit_on_error=False)
        return json.loads(capsys.readouterr().out)

    monkeypatch.setenv("STATPRESS_HOME", str(agency.home.root))
    monkeypatch.chdir(agency.folder)
    bundle, original = str(first), manifest_of(first)["seal"]
    told = statpress("rerelease", bundle, "--reprint", "--set", "publish.formats=[parquet, csv]")
    assert told["reprint_of"] == original
    checked = statpress("verify", told["bundle"], "--home", str(agency.home.root))
    assert checked["rederived"] is True and checked["seal"] == told["seal"]
    planned = statpress("rerelease", bundle, "--revise", "release.yaml", "--plan-only")["plan"]
    assert planned["difference"]["config"] == {}
    assert planned["remaining"]["epsilon"] and len(agency.entries()) == 5
    with pytest.raises(errors.ConfirmationError):
        statpress("rerelease", bundle, "--renew")
    assert len(agency.entries()) == 5
    assert planned["epsilon"] in capsys.readouterr().err
    monkeypatch.setenv("STATPRESS__SOURCE__FORMAT", "parquet")
    options = ("--renew", "--name", "second", "--yes", "--no-orchestrator")
    told = statpress("rerelease", bundle, *options)
    assert told["plan"]["difference"]["supersedes"] == original
    assert manifest_of(Path(told["bundle"]))["supersedes"] == original
    assert Path(told["bundle"]).name == "second" and len(agency.entries()) == 9
    for ways in ((), ("--renew", "--reprint")):
        with pytest.raises(CycloptsError):
            app(["rerelease", bundle, *ways], exit_on_error=False, print_error=False)
    plain = statpress("plan", "release.yaml")
    less = statpress("plan", "release.yaml", "--set", "budget.epsilon=0.5")
    assert float(less["epsilon"]) < float(plain["epsilon"])
    free = ("--set", "budget.epsilon=0.5", "--set", "publish.name=third")
    valid, less = (statpress(command, "release.yaml", *free) for command in ("validate", "plan"))
    assert valid["config_sha256"] == less["config_sha256"] != plain["config_sha256"]


def _order(given: Order | PlannedOrder) -> Order:
    return given.order if isinstance(given, PlannedOrder) else given


def test_the_deployed_flow_orders_a_renewal_or_a_revision(
    first: Path, agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statpress.flows import deployed

    ordered: list[Order] = []
    monkeypatch.setattr(
        deployed, "_pressed", lambda order, *_: ordered.append(_order(order(agency.home)))
    )
    monkeypatch.setenv("STATPRESS__SOURCE__FORMAT", "parquet")
    deployed.rerelease.fn(
        str(first), folder=str(agency.folder), overrides={"privacy.n_records": 400}
    )
    deployed.rerelease.fn(str(first), str(agency.config), overrides={"budget.epsilon": 0.5})
    deployed.release.fn(str(agency.config))
    assert [order.path.name for order in ordered] == ["config.yaml", *["release.yaml"] * 2]
    assert [[each.key for each in order.overrides] for order in ordered] == [
        ["SOURCE__FORMAT", "privacy.n_records"],
        ["SOURCE__FORMAT", "budget.epsilon"],
        ["SOURCE__FORMAT"],
    ]
    original = manifest_of(first)["seal"]
    assert [order.supersedes for order in ordered] == [original, original, None]
    assert ordered[0].folder == agency.folder
    with pytest.raises(errors.SourceNotFoundError, match=r"data/source\.parquet.* in .*/x or in"):
        deployed.rerelease.fn(str(first), folder="x")
    with pytest.raises(errors.UnregisteredDatasetError):
        deployed.rerelease.fn(str(first), overrides={"dataset": "other"})
