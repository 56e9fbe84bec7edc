"""Configs: places of errors, exact values, categories files, defaults, schema."""

import hashlib
import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from statpress.configs.checks import Limits, limits
from statpress.configs.loading import load
from statpress.configs.release_config import CheckConfig
from statpress.configs.schema import privacy_schema_text, schema_text
from statpress.configs.yaml_text import parse
from statpress.mechanisms import errors
from statpress.mechanisms.domain.columns import Categorical, Numeric
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.planning.charges import recompute_charge
from statpress.mechanisms.registry import KINDS, serving
from statpress.mechanisms.tables.count_tables import MICRODATA

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "configs" / "census2000.yaml"
SCHEMA = ROOT / "configs" / "release.schema.json"


PRODUCT = """\
title: t
dataset: d
source: {path: a.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 1000}
budget: {epsilon: 3, delta: 1.0e-6}
domain:
  a: {type: integer, lower: 0, upper: 9}
  b: {type: integer, lower: 0, upper: 9}
products:
  p: {PRODUCT}
publish: {directory: r}
"""


SMALL = PRODUCT.replace("n_records: 1000", "n_records: 100")


def changed(folder: Path, old: str, new: str) -> Path:
    text = SHIPPED.read_text()
    assert old in text
    path = folder / "c.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


def test_shipped_config_is_valid_and_its_plan_recomputes() -> None:
    release = load(SHIPPED)
    plan = release.plan()
    assert plan.epsilon <= release.config.budget.epsilon
    assert plan.delta == release.config.budget.delta
    charge = {"epsilon": plan.epsilon, "delta": plan.delta}
    again = recompute_charge(plan.describe(), **charge)
    assert (again["epsilon"], again["delta"]) == (plan.epsilon, plan.delta)
    assert 0 < again["rho"] <= plan.amounts["rho"] <= again["rho"] * Decimal("1.00001")
    less = plan.epsilon * Decimal("0.99")  # composition is known to within a hundredth
    assert recompute_charge(plan.describe(), epsilon=less, delta=plan.delta)["epsilon"] > less
    understated = [d | {"epsilon": "0.5"} for d in plan.describe()]
    with pytest.raises(errors.AmountError, match="below the"):
        recompute_charge(understated, **charge)


def test_the_shipped_products_are_within_a_tenth_of_rho_and_a_tenth_buys_more(
    tmp_path: Path,
) -> None:
    plan = load(SHIPPED).plan()
    assert plan.amounts["rho"] <= Decimal("0.1")
    assert plan.amounts["rho_delta"] <= Decimal("1e-8")
    bought = load(changed(tmp_path, "epsilon: 2.0", "rho: 0.1")).plan()
    assert Decimal("0.099") < bought.amounts["rho"] <= Decimal("0.1")
    assert bought.amounts["rho_delta"] <= Decimal("1e-8")
    for one, two in zip(bought.products, plan.products, strict=True):
        assert one.mechanism.pseudocount < two.mechanism.pseudocount
    whole = load(changed(tmp_path, "epsilon: 2.0", "rho: 0.1, rho_delta: 0")).plan()
    assert whole.amounts["rho_delta"] == 0 and whole.amounts["rho"] <= Decimal("0.1")
    assert whole.products[0].mechanism.pseudocount > 5 * bought.products[0].mechanism.pseudocount


def test_shipped_schemas_are_the_models() -> None:
    assert SCHEMA.read_text() == schema_text(), (
        "python -m statpress.configs.schema > configs/release.schema.json"
    )
    shipped = (ROOT / "configs" / "privacy.schema.json").read_text()
    assert shipped == privacy_schema_text(), (
        "python -m statpress.configs.schema privacy > configs/privacy.schema.json"
    )


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("title:", "titel:", "c.yaml:3:1: titel"),
        ("epsilon: 2.0", "epsilon: -2", "c.yaml:15:10: budget.epsilon"),
        ("bins: 10", "bins: 0", "c.yaml:33:49: domain.lweekinc.bins"),
        ("width: 10", "width: 7", "c.yaml:34:3: domain.exper"),
        ("[state, educ]", "[state, nope]", "c.yaml:46:22: products.states.columns.1"),
        ("share: 0.6", "share: 0.6\n    records: 0", "c.yaml:42:5: products.workers.records"),
        ("share: 0.6", "share: 0.7", "c.yaml:35:1: products"),
        ("  lweekinc: {missing", "  wage: {missing", "c.yaml:49:3: checks.wage"),
        ("adjacency: replace_one, ", "", "c.yaml:14:1: privacy.adjacency"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, old: str, new: str, place: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        load(changed(tmp_path, old, new))
    assert caught.value.where == place


def test_several_faults_are_told_together(tmp_path: Path) -> None:
    path = changed(tmp_path, "title:", "titel:")
    path.write_text(path.read_text().replace("delta: 1.0e-8", "delta: 2"))
    with pytest.raises(errors.ConfigError, match=r"budget\.delta"):
        load(path)


def test_a_product_or_check_at_fault_does_not_hide_its_columns(tmp_path: Path) -> None:
    path = changed(tmp_path, "[state, educ]", "[state, nope, state]")
    text = path.read_text().replace("share: 0.4", "share: 0.4\n    recrods: 5")
    path.write_text(text.replace("  lweekinc: {missing", "  wage: {misses"))
    with pytest.raises(errors.UnknownKeyError) as caught:
        load(path)
    assert [each.where for each in (caught.value, *caught.value.also)] == [
        "c.yaml:48:5: products.states.recrods",  # an unknown key, and one more
        "c.yaml:50:10: checks.wage.misses_at_most",
        "c.yaml:46:22: products.states.columns.1",  # the rest
        "c.yaml:46:28: products.states.columns.2",
        "c.yaml:50:3: checks.wage",
    ]


def test_a_mechanism_may_be_left_out_for_every_kind(tmp_path: Path) -> None:
    path = changed(tmp_path, "    mechanism: bootstrap\n", "")
    path.write_text(path.read_text().replace("    mechanism: bootstrap\n", ""))
    release = load(path)
    assert [request.mechanism for request in release.requests] == ["auto", "auto"]
    criteria = [request.kind.criterion(request.knobs) for request in release.requests]
    assert criteria == ["pair_total_variation"] * 2
    path.write_text(path.read_text().replace("kind: microdata", "kind: table"))
    assert [each.kind.criterion(each.knobs) for each in load(path).requests] == [
        "total_variation"
    ] * 2
    assert all(kind.may_omit for kind in KINDS.values())


@pytest.mark.parametrize(
    ("kind", "said"),
    [("    kind: film\n", "no kind of product 'film'"), ("", "'kind' is missing")],
)
def test_a_product_without_mechanism_and_kind(tmp_path: Path, kind: str, said: str) -> None:
    path = changed(tmp_path, "    kind: microdata\n    mechanism: bootstrap\n", kind)
    with pytest.raises(ConfigError, match=said) as caught:
        load(path)
    assert caught.value.where.startswith("c.yaml:3")


@pytest.mark.parametrize("value", ["5", "[1]", "words", "true"])
@pytest.mark.parametrize(
    "place", ["products", "products.p", "domain", "domain.a", "source", "budget"]
)
def test_what_has_keys_must_be_a_mapping(tmp_path: Path, place: str, value: str) -> None:
    yaml, path = YAML(), tmp_path / "c.yaml"
    document = yaml.load(PRODUCT.replace("PRODUCT", "kind: table, columns: [a, b]"))
    inner, *names = document, *place.split(".")
    for name in names[:-1]:
        inner = inner[name]
    assert names[-1] in inner
    inner[names[-1]] = yaml.load(value)
    yaml.dump(document, path)
    with pytest.raises(ConfigError, match=rf"{place}: The value must be a mapping of keys"):
        load(path)


def test_a_misspelt_mechanism_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.UnknownKeyError, match=r"'mechansim' here\. Is 'mechanism' meant"):
        load(changed(tmp_path, "mechanism:", "mechansim:"))


def test_an_unknown_key_is_told_first_with_the_nearest_known_one(tmp_path: Path) -> None:
    path = changed(tmp_path, "dataset:", "zataset:")  # after 'dataset' in the alphabet
    path.write_text(path.read_text().replace("epsilon: 2.0, ", "").replace("width", "widht"))
    with pytest.raises(errors.UnknownKeyError) as caught:
        load(path)
    assert caught.value.where == "c.yaml:12:1: zataset"
    assert caught.value.what == "There is no key 'zataset' here. Is 'dataset' meant?"
    assert [f"{each.where}: {each.what}" for each in caught.value.also] == [
        "c.yaml:34:47: domain.exper.widht: There is no key 'widht' here. Is 'width' meant?",
        "c.yaml:3:1: dataset: 'dataset' is missing.",
        "c.yaml:15:1: budget: Give either epsilon, or rho.",
    ]
    lines = str(caught.value).split("\n")
    assert [line.split(" ")[0] for line in lines] == [
        "c.yaml:12:1:", "c.yaml:34:47:", "c.yaml:3:1:", "c.yaml:15:1:",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", errors.YamlError), ("a: [1", errors.YamlError), ("a: 1\n---\nb: 2", errors.YamlError),
        ("a: !!python/object:os.system x", errors.YamlError), ("a: &x [*x]", errors.YamlError),
        ("? [a]\n: 1", errors.YamlError), ("<<: {a: 1}", errors.YamlError),
        ("a: *nope", errors.YamlError), ("a: \x00", errors.YamlError),
        ("[" * 1_000, errors.YamlError), ("a: 1\na: 2", errors.DuplicateColumnError),
    ],
    ids=range(11),
)  # fmt: skip
def test_what_is_not_yaml_for_us(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        parse(text, "c.yaml")


def test_values_are_yaml_1_2_and_exact() -> None:
    value = parse(
        "a: 0.1234567890123456789012345\nb: no\nc: 1e-300\nd: 1_000\n"
        "e: '7'\nf: 0x1F\ng: ~\nh: true",
        "c.yaml",
    ).value
    assert value == {
        "a": Decimal("0.1234567890123456789012345"), "b": "no", "c": Decimal("1e-300"),
        "d": 1000, "e": "7", "f": 31, "g": None, "h": True,
    }  # fmt: skip


def test_categories_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "levels.txt").write_text("low\nhigh\n\n")
    path = changed(
        tmp_path, "categories: [9, 10, 11, 12, 13, 14, 16]", "categories: {file: levels.txt}"
    )
    release = load(path)
    assert release.domain["educ"].categories == ("low", "high")
    first = release.sha256
    (tmp_path / "levels.txt").write_text("low\nmiddle\nhigh\n")
    assert load(path).sha256 != first  # the hash covers what the config refers to
    (tmp_path / "levels.txt").unlink()
    with pytest.raises(errors.ConfigNotFoundError, match=r"levels\.txt"):
        load(path)


@pytest.mark.parametrize(
    ("pseudocount", "exact"), [("1/3", Fraction(1, 3)), ("0.3", Fraction(3, 10))]
)
def test_pseudocount_is_exact(tmp_path: Path, pseudocount: str, exact: Fraction) -> None:
    path = changed(
        tmp_path, "share: 0.6", f"share: 0.6\n    pseudocount: {pseudocount}\n    records: max"
    )
    assert load(path).requests[0].knobs.pseudocount == exact


def test_paper_calibration_is_charged_by_the_exact_accountant(tmp_path: Path) -> None:
    path = changed(tmp_path, "share: 0.6", "share: 0.6\n    calibration: paper")
    plan = load(path).plan()
    workers = plan.products[0]
    assert workers.mechanism.pseudocount > 1000
    assert workers.epsilon < workers.target.epsilon / 20  # which the theorem proves


def test_infeasible_knobs_name_what_would_do(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(SMALL.replace("PRODUCT", "kind: microdata, columns: [a, b], pseudocount: 1/2"))
    with pytest.raises(errors.InfeasibleBudgetError, match=r"allows \d+ records") as caught:
        load(path).plan()
    assert "products.p" in caught.value.where


def test_input_gate_defaults_accept_only_values_with_a_cell() -> None:
    bare = Categorical(name="a", categories=("x",))
    full = Categorical(name="a", categories=("x",), other=True, missing=True)
    number = Numeric(name="a", edges=(0.0, 1.0))
    zero, some = Decimal(0), [Decimal(share) for share in ("0.5", "0.1", "0.2")]
    assert limits(bare, {}) == Limits(zero, zero, zero)
    assert limits(full, {}) == Limits(Decimal(1), None, zero)
    assert limits(number, {}) == Limits(zero, None, zero)
    keys = ("missing_at_most", "outside_at_most", "unreadable_at_most")
    declared = CheckConfig(**dict(zip(keys, some, strict=True)))
    assert limits(number, {number.name: declared}) == Limits(*some)


@pytest.mark.parametrize(("share", "larger"), [("0.03", "0.05"), ("0.0749", "0.1"), ("0.51", "1")])
def test_a_check_takes_one_of_few_shares(tmp_path: Path, share: str, larger: str) -> None:
    path = changed(tmp_path, "outside_at_most: 0.01", f"outside_at_most: {share}")
    with pytest.raises(errors.ConfigError) as caught:
        load(path)
    assert f"; the next larger one is {larger}." in str(caught.value)
    assert ":" in caught.value.where and "checks.lweekinc.outside_at_most" in caught.value.where


def test_hash_is_that_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SHIPPED.read_bytes().replace(b"\n", b"\r\n"))
    release = load(path)
    assert release.text == SHIPPED.read_text()
    assert release.sha256 == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "more", ["calibration: paper\n    records: 5", "records: 10000000000000000"]
)
def test_knobs_that_cannot_be_met_are_refused_with_their_place(tmp_path: Path, more: str) -> None:
    path = changed(tmp_path, "share: 0.6", f"share: 0.6\n    {more}")
    with pytest.raises(errors.ConfigError) as caught:
        load(path)
    assert "products.workers.records" in caught.value.where


def test_a_description_cannot_hide_a_loss_behind_a_negative_one() -> None:
    described = load(SHIPPED).plan().describe()
    with pytest.raises(errors.AmountError):
        recompute_charge(
            [described[0], described[1] | {"epsilon": "-0.5"}],
            epsilon=Decimal(2),
            delta=Decimal("1e-8"),
        )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "mechanism: bootstrap",
            "mechanism: bernstein",
            "The mechanism 'bernstein' serves function, and not 'microdata', which bootstrap, "
            f"laplace, {', '.join(each.name for each in serving(MICRODATA)[2:])} would serve",
        ),
        (
            "kind: microdata",
            "kind: picture",
            "serves microdata and table, and not 'picture', which none would serve",
        ),
        (
            "mechanism: bootstrap",
            "mechanism: bootsrap",
            "There is no mechanism 'bootsrap'; for 'microdata' there are auto, "
            f"{', '.join(each.name for each in serving(MICRODATA))}. Is 'bootstrap' meant?",
        ),
    ],
)
def test_a_product_that_no_mechanism_serves_says_which_would(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = SHIPPED.read_text()
    assert old in text
    config = tmp_path / "release.yaml"
    config.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load(config)
    assert "release.yaml:" in caught.value.where


def of_product(folder: Path, product: str) -> Any:
    path = folder / "p.yaml"
    path.write_text(PRODUCT.replace("PRODUCT", product))
    return load(path).config.products["p"]


@pytest.mark.parametrize(
    ("product", "mechanism"),
    [
        ("kind: microdata, columns: [a, b], pairs: all", "marginals"),
        ("kind: microdata, columns: [a, b], screen: no, within_cells: middle", "marginals"),
        ("kind: table, columns: [a, b], blocks: 5", "two_resolutions"),
        ("kind: table, columns: [a, b], pseudocount: 3", "bootstrap"),
        ("kind: estimate, statistic: mean, columns: [a], replicates: 100", "dp_bootstrap"),
    ],
)
def test_a_knob_that_one_mechanism_has_implies_it(
    tmp_path: Path, product: str, mechanism: str
) -> None:
    implied = of_product(tmp_path, product)
    assert implied.mechanism == mechanism
    assert implied == of_product(tmp_path, f"{product}, mechanism: {mechanism}")
    (form,) = [
        each for each in json.loads(SCHEMA.read_text())["$defs"].values()
        if each.get("properties", {}).get("mechanism", {}).get("const") == mechanism
    ]  # fmt: skip
    knobs = {key.split(":")[0].strip() for key in product.split(",")} & form["properties"].keys()
    assert "mechanism" not in form["required"]
    assert any({*each["required"]} <= knobs for each in form["anyOf"])


@pytest.mark.parametrize(
    "product",
    [
        "kind: microdata, columns: [a, b], records: 100",  # several mechanisms have it
        "kind: microdata, columns: [a, b], pairs: all, pseudocount: 3",  # of two mechanisms
        "kind: microdata, columns: [a, b], mechanism: auto, pairs: all",
        "kind: table, columns: [a, b], pairs: all",  # of another kind
    ],
)
def test_knobs_that_imply_none_or_several_are_refused(tmp_path: Path, product: str) -> None:
    with pytest.raises(errors.UnknownKeyError):
        of_product(tmp_path, product)


def test_without_such_a_knob_the_mechanism_is_left_open(tmp_path: Path) -> None:
    assert of_product(tmp_path, "kind: microdata, columns: [a, b]").mechanism == "auto"
