"""Verdicts of a plan, from public quantities only: mostly noise, nearly disclosed, or neither."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from statpress.configs.loading import Release, load
from statpress.flows.cli.plan_command import plan_facts
from statpress.mechanisms.errors import ConfigError, MostlyIndependentError, MostlyNoiseError
from statpress.mechanisms.planning.plan import (
    ADVICE,
    Verdict,
    disclosures,
    release_verdict,
    verdict,
)
from statpress.tasks.release.foreseen import check_verdicts, warnings

SHIPPED = Path(__file__).parents[2] / "configs"
DOMAIN = "\n".join(f"  c{i}: {{type: integer, lower: 0, upper: 9}}" for i in range(12))
CONFIG = """\
title: Verdicts
dataset: x
source: {{path: x.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: {n}}}
budget: {{epsilon: {epsilon}, delta: {delta}}}
domain:
{domain}
products:
  p: {{{product}}}
publish: {{directory: releases}}
"""


def loaded(folder: Path, product: str, **said: Any) -> Release:
    path = folder / "v.yaml"
    fields = {"n": 10_000, "epsilon": 1, "delta": "1e-6", "domain": DOMAIN} | said
    path.write_text(CONFIG.format(product=product, **fields))
    return load(path)


def planned(folder: Path, product: str, **said: Any) -> tuple[Release, Any]:
    """The release and the plan of one product."""
    release = loaded(folder, product, **said)
    return release, release.plan()


def judged(folder: Path, product: str, **said: Any) -> Verdict:
    return verdict(planned(folder, product, **said)[1].products[0])


WIDE = "columns: [c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11]"


@pytest.mark.parametrize(
    ("product", "said", "name", "figure"),
    [
        # Drawn from far more cells than there are records: uniform rows.
        (f"kind: microdata, mechanism: bootstrap, {WIDE}", {}, "mostly_noise", "uniform"),
        # The same columns from their pairs, with enough records and with too few.
        (f"kind: microdata, {WIDE}", {"n": 100_000}, "usable", "pairs of columns"),
        # In between single columns are right, and most relations are lost.
        (f"kind: microdata, {WIDE}", {}, "mostly_independent", "Cramér's V"),
        (f"kind: microdata, {WIDE}", {"n": 300}, "mostly_noise", "pairs of columns"),
        # A table is read by its own cells, and microdata by those of two columns.
        ("kind: table, mechanism: laplace, columns: [c0, c1, c2]", {"epsilon": "0.2"},
         "mostly_noise", "total variation, projected"),
        ("kind: microdata, mechanism: laplace, columns: [c0, c1, c2]", {"epsilon": "0.2"},
         "usable", "pairs of columns"),
        ("kind: table, mechanism: laplace, columns: [c0, c1]", {}, "usable", "projected"),
        # An interval of half the range is worth nothing, for all that its level is right.
        ("kind: estimate, statistic: mean, columns: [c0]", {}, "usable", "expected interval"),
        ("kind: estimate, statistic: mean, columns: [c0]", {"epsilon": "0.0005"},
         "mostly_noise", "expected interval"),
        ("kind: estimate, statistic: median, columns: [c0]", {"epsilon": "0.001"},
         "mostly_noise", "expected interval"),
        ("kind: function, target: kde, columns: [c0], degree: 16, order: 4", {}, "usable",
         "from noise"),
        ("kind: function, target: kde, columns: [c0]", {"epsilon": "0.001"},
         "mostly_noise", "from noise"),
        # How far these are off depends on the data, which no figure stands for.
        ("kind: table, mechanism: exponential_ks, columns: [c0]", {}, "not_known", ""),
        ("kind: table, mechanism: laplace, columns: [c0]", {"epsilon": "9", "delta": "0"},
         "nearly_disclosed", "noise of every count"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_a_public_figure(
    tmp_path: Path, product: str, said: Any, name: str, figure: str
) -> None:
    found = judged(tmp_path, product, **said)
    assert found.name == name
    assert figure in found.figure
    if found.value is not None and found.threshold is not None:
        noisy = found.value > found.threshold
        assert noisy == (name in ADVICE)
        assert f"{found.value:.3g}" in found.words


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.system] * ("engine: postgres" in path.read_text()))
        for path in sorted(SHIPPED.glob("*.yaml"))
    ],
    ids=lambda path: path.stem,
)
def test_the_shipped_configs_are_usable(path: Path) -> None:
    release = load(path)
    plan = release.plan()
    assert {verdict(product).name for product in plan.products} == {"usable"}
    assert warnings(release, plan) == []


def test_a_large_epsilon_is_a_warning_and_does_not_stop(tmp_path: Path) -> None:
    product = "kind: table, mechanism: gaussian, columns: [c0]"
    release, plan = planned(tmp_path, product, epsilon="10.5")
    assert plan.epsilon > 10
    whole = release_verdict(plan)
    assert whole is not None and (whole.name, whole.threshold) == ("nearly_disclosed", 10)
    (said,) = check_verdicts(release, plan)
    assert "nearly discloses" in said and "above 10" in said
    _, smaller = planned(tmp_path, product, epsilon="9.5")
    assert release_verdict(smaller) is None
    assert disclosures(smaller) == []


def test_every_refused_product_is_named_and_what_is_accepted_is_said(tmp_path: Path) -> None:
    release, plan = planned(
        tmp_path,
        "kind: table, mechanism: laplace, columns: [c0, c1, c2], share: 0.3}\n"
        "  q: {kind: table, mechanism: laplace, columns: [c3, c4, c5], share: 0.3}\n"
        "  r: {kind: table, mechanism: laplace, columns: [c6], share: 0.4",
        epsilon="0.2",
    )
    with pytest.raises(MostlyNoiseError, match=r"'p' would be mostly noise") as caught:
        check_verdicts(release, plan)
    assert caught.value.where == "v.yaml:20:3: products.p"
    assert [each.where for each in caught.value.also] == ["v.yaml:21:3: products.q"]
    stated = plan_facts(release, plan, None)
    assert stated["products"]["p"]["verdict"]["name"] == "mostly_noise"
    assert stated["products"]["r"]["verdict"]["name"] == "usable"
    assert len(stated["warnings"]) == 3  # and that nothing is registered

    accepting = release.config.model_copy(deep=True)
    for name in ("p", "q"):
        object.__setattr__(accepting.products[name], "accept", ("mostly_noise",))
    object.__setattr__(release, "config", accepting)
    said = check_verdicts(release, plan)
    assert len(said) == 2 and all("The config accepts that" in each for each in said)


def test_what_is_accepted_is_one_verdict_or_a_list(tmp_path: Path) -> None:
    both = "[mostly_noise, mostly_independent]"
    for product, name in ((f"kind: microdata, {WIDE}", "mostly_independent"),
                          ("kind: table, mechanism: laplace, columns: [c0, c1, c2, c3]",
                           "mostly_noise")):  # fmt: skip
        other = {"mostly_noise": "mostly_independent"}.get(name, "mostly_noise")
        for accepting in (name, both):
            release, plan = planned(tmp_path, f"{product}, accept: {accepting}")
            assert [each.endswith("The config accepts that.") for each in warnings(release, plan)]
            assert check_verdicts(release, plan) == warnings(release, plan)
        for refusing in (other, "[]", "null"):
            release, plan = planned(tmp_path, f"{product}, accept: {refusing}")
            with pytest.raises(ConfigError, match=name.replace("_", " ")) as caught:
                check_verdicts(release, plan)
            assert f"accept: {name}" in caught.value.next_step
            assert plan_facts(release, plan, None)["products"]["p"]["verdict"]["accepted"] is False
    with pytest.raises(ConfigError, match="accept"):
        planned(tmp_path, f"kind: microdata, {WIDE}, accept: [usable]")


def test_a_config_that_was_charged_before_is_only_warned_of_lost_relations(tmp_path: Path) -> None:
    release, plan = planned(tmp_path, f"kind: microdata, {WIDE}")
    (mechanism,) = plan.describe()
    mu = Fraction(str(mechanism["mu"]))
    charge = {"config_sha256": "", "mechanisms": [mechanism]}
    allowed = [
        charge | {"config_sha256": release.sha256, "mechanisms": []},
        charge,
        charge | {"mechanisms": [mechanism | {"mu": str(mu * Fraction(9, 10))}]},
    ]
    for each in allowed:
        (said,) = check_verdicts(release, plan, [each])
        assert "until the next version" in said
    refused = [
        charge | {"mechanisms": []},
        charge | {"mechanisms": [mechanism | {"product": "q"}]},
        charge | {"mechanisms": [mechanism | {"sizes": "10 10"}]},
        charge | {"mechanisms": [mechanism | {"mu": str(mu * Fraction(11, 10))}]},  # had more
        charge | {"mechanisms": [{"product": "p", "mechanism": "laplace", "scale": "1"}]},
    ]
    with pytest.raises(MostlyIndependentError):
        check_verdicts(release, plan, refused)
    # What would be mostly noise never had leave.
    release, plan = planned(tmp_path, f"kind: microdata, {WIDE}", n=300)
    with pytest.raises(MostlyNoiseError):
        check_verdicts(release, plan, [charge | {"config_sha256": release.sha256}])


def test_shares_that_are_left_out_divide_what_the_others_leave(tmp_path: Path) -> None:
    table = "kind: table, mechanism: laplace, columns: "
    release = loaded(
        tmp_path,
        f"{table}[c0], share: 0.4}}\n  q: {{{table}[c1]}}\n  r: {{{table}[c2]}}\n"
        f"  s: {{{table}[c3]",
    )
    shares = [request.share for request in release.requests]
    assert sum(shares) == 1
    assert shares == [Decimal("0.4"), Decimal("0.2"), Decimal("0.2"), Decimal("0.2")]
    assert release.config.publish.formats == ["parquet", "csv"]
    thirds = loaded(tmp_path, f"{table}[c0]}}\n  q: {{{table}[c1]}}\n  r: {{{table}[c2]")
    assert sum(request.share for request in thirds.requests) == 1
    assert len({round(float(request.share), 9) for request in thirds.requests}) == 1


def test_many_products_that_stop_a_run_share_one_warning(tmp_path: Path) -> None:
    one = "kind: table, mechanism: laplace, columns: [c0, c1, c2], share: 0.2"
    product = one + "".join(f"}}\n  p{k}: {{{one}" for k in range(4))
    release, plan = planned(tmp_path, product, epsilon="0.2")
    assert len(warnings(release, plan)) == 5
    (said,) = warnings(release, plan, apart=3)
    assert said.startswith("5 products would be mostly noise: p, p0, p1, p2, p3. A run stops")
