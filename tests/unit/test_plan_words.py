"""What a plan, a comparison with a bundle and a bundle's page call the parameters of mechanisms."""

from __future__ import annotations

from pathlib import Path

import pytest

from statpress.configs.loading import load
from statpress.flows.cli.plan_command import plan_report
from statpress.mechanisms.mechanism import figure, label, shown
from statpress.tasks.report.report import PARAMETERS

CONFIGS = Path(__file__).parents[2] / "configs"


SHIPPED = sorted(CONFIGS.glob("*.yaml"))
ESTIMATES = CONFIGS / "census2000_estimates.yaml"
POSTGRES = CONFIGS / "postgres_example.yaml"  # needs an extra
MEAN = "  mean: {kind: estimate, statistic: mean, columns: [lweekinc]}\n"


@pytest.mark.parametrize(
    ("path", "products"),
    [
        (ESTIMATES, MEAN),
        pytest.param(ESTIMATES, None, marks=pytest.mark.nightly),
        *(
            pytest.param(path, None, marks=[pytest.mark.system] * (path == POSTGRES))
            for path in SHIPPED
            if path != ESTIMATES
        ),
    ],
    ids=lambda each: each.stem if isinstance(each, Path) else "",
)
def test_names_for_programs_and_large_fractions_reach_no_person(
    path: Path, products: str | None, tmp_path: Path
) -> None:
    """In the plans of the configs that are shipped; in CI of one estimate only."""
    if products is not None:
        text = path.read_text()
        own = text[text.index("  pay:") : text.index("checks:")]
        path = tmp_path / path.name
        path.write_text(text.replace(own, products))
    release = load(path)
    plan = release.plan()
    table = next(part for part in plan_report(release, plan, None) if not isinstance(part, str))
    assert not table.show_header
    labels = [str(cell) for cell in table.columns[0].cells]
    values = [str(cell) for cell in table.columns[1].cells]
    assert "  verdict" in labels
    names = {product.name for product in plan.products}
    assert [each for each in labels if "_" in each and each not in names] == []
    assert not {"  origin", "  shift 1", "  factor 1", "  quantity 1"} & set(labels)
    for product in plan.products:
        raw = product.mechanism.describe()
        told = dict(shown(raw))
        long = {str(value) for value in raw.values() if "/" in str(value) and len(str(value)) > 5}
        assert not long & {*told.values(), *values}
        if product.kind.name == "estimate":  # the steps of its grid mean nothing to a person
            assert set(told) == {"level of the intervals"} | (
                {"epsilon for each record"} if "epsilon_per_record" in raw else set()
            )


def test_a_parameter_is_named_in_words_or_not_at_all() -> None:
    assert label("pseudocount") == "pseudocount of every cell"
    assert label("own_knob") == "own knob"
    assert [label(name) for name in ("shift_1", "factor_12", "origin", "sizes")] == [None] * 4
    described = {"mechanism": "x", "published_records": 0, "uniform": "123/456", "records": 29501}
    assert dict(shown(described)) == {
        "records to publish": "as many as there are",
        "share of draws that are uniform": "0.269737",
        "records to draw": "29,501",
    }
    assert figure("1/3") == "1/3"  # as a person writes it
    assert set(PARAMETERS) >= {"pseudocount", "records", "degree"}
