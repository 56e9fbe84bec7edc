"""How near an audit's bounds come to what is claimed, and to what the ideal test would show.

Ganev, Annamalai and Kulynych (2026, arXiv 2604.18352) show .43 of a mu of .45 for MST and AIM.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order, from_options
from statpress.tasks.release.audit import Audited, audit

CONFIG = """
title: Audit
dataset: made
source: {{path: not_there.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: 5000}}
budget: {{epsilon: 3.0, delta: 1.0e-6}}
domain:
  a: {{type: categorical, categories: [p, q, r, s, t]}}
  b: {{type: integer, lower: 0, upper: 9}}
  c: {{type: categorical, categories: [x, y, z]}}
  d: {{type: integer, lower: 0, upper: 4}}
products:
  it: {}
publish: {{directory: releases}}
"""
ALL = "{kind: microdata, mechanism: marginals, columns: [a, b, c, d]}"
QUICK = (
    "{kind: table, mechanism: gaussian, columns: [a]}",
    "{kind: table, mechanism: laplace, columns: [a]}",
    "{kind: table, mechanism: bootstrap, columns: [a]}",
    "{kind: estimate, mechanism: joint_moments, statistic: mean, columns: [b]}",
)


def audited(folder: Path, product: str, runs: int) -> Audited:
    path = folder / "release.yaml"
    path.write_text(CONFIG.format(product))
    options = ["budget.delta=0"] if "laplace" in product else []
    order = PlannedOrder.of(Order(path, tuple(from_options(options))))
    (found,) = audit(
        order.release, order.plan, runs=runs, announce=lambda text: None, insecure_seed=20
    )
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("product", [*QUICK, ALL])
def test_five_thousand_releases_show_most_of_what_is_claimed(tmp_path: Path, product: str) -> None:
    found = audited(tmp_path, product, 5000)
    assert found.raw is not None
    assert found.caught
    assert not found.contradicted
    if found.ideal.delta:
        assert found.raw.mu >= 0.85 * found.ideal.mu
    else:
        assert found.raw.epsilon >= 0.85 * found.ideal.epsilon


@pytest.mark.nightly
@pytest.mark.parametrize("product", QUICK)
def test_many_releases_show_what_the_ideal_test_would(tmp_path: Path, product: str) -> None:
    """The bound varies by 2 % between audits of so many releases, of 5,000 by 4 %."""
    found = audited(tmp_path, product, 20_000)
    assert found.tightness is not None
    assert found.tightness >= 0.95
    assert not found.contradicted
