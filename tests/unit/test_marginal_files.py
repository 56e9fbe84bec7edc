"""Microdata by marginals beyond the contract: values within cells, and words of pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from coded import CodesInMemory, domain_of
from contract_cases import planned
from estimating import seeded

from statpress.configs.formats import DEFAULT
from statpress.configs.release_config import PublishConfig
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.plan import PlannedProduct
from statpress.tasks.products import marginal_product as module
from statpress.tasks.products.product_kind import kind_of, machine_memory

PUBLISH = PublishConfig(directory="releases", formats=list(DEFAULT), plots=False)
WIDTH = 10


def product_with(within: str) -> PlannedProduct[Any]:
    """A planned product of one column whose four cells hold ten whole numbers each."""
    (found,) = planned("marginals", "microdata").products
    column = Integer(name="age", lower=0, upper=4 * WIDTH - 1, width=WIDTH)
    mechanism = replace(found.mechanism, within_cells=within)
    return replace(found, domain=Domain((column,)), mechanism=mechanism)


@pytest.mark.parametrize("within", ["middle", "uniform", "slope"])
def test_values_lie_in_the_middle_of_their_cells_or_within(within: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    product = product_with(within)
    kind, n = kind_of(product), product.target.n_records
    table = ContingencyTable(product.domain, np.arange(4), np.full(4, n // 4))
    raw = product.mechanism.release(CodesInMemory.of(table), seeded(5))
    derived = kind.postprocess(product, raw, n)
    publication = kind.publication(product, derived)
    publication.rehearse(tmp_path, PUBLISH, "products.p")
    publication.write(tmp_path, PUBLISH, lambda rows: None)
    profiles, rows = publication.profile(tmp_path, PUBLISH)
    for file, profile in profiles.items():
        assert profile.pop("rows") == rows[file]
        assert not any(profile.values())
    ages = pq.read_table(tmp_path / "data" / "p.parquet")["age"].to_pylist()
    assert pyarrow.csv.read_csv(tmp_path / "data" / "p.csv")["age"].to_pylist() == ages
    codes = derived.microdata.codes[0].tolist()
    assert [int(age // WIDTH) for age in ages] == codes
    assert len({age % WIDTH for age in ages}) == (1 if within == "middle" else WIDTH)
    (field,) = kind.publication(product).tables[0].fields
    assert ("enum" in field["constraints"]) is (within == "middle")
    assert field.get("within") == ("slope" if within == "slope" else None)


def test_the_machine_has_some_memory() -> None:
    assert 2**28 < machine_memory() < 2**50


def test_relations_are_strong_weak_or_lost_by_the_measured_tables() -> None:
    n, sizes = 5000, (3, 4, 2, 5)
    rng = np.random.default_rng(7)
    codes = np.stack([rng.integers(0, k, n) for k in sizes]).astype(np.uint8)
    for column, follows in ((1, 0.5), (2, 0.1)):  # of the first column; the last is on its own
        found = rng.random(n) < follows
        codes[column, found] = codes[0, found] % sizes[column]
    domain = domain_of(sizes)
    budget = {"epsilon": 1.0, "delta": 1e-6}
    target = Target(**budget, n_records=n, n_cells=2, domain=domain)  # type: ignore[arg-type]
    mechanism = Marginals.calibrate(MarginalsKnobs(screen="no"), target)
    raw = mechanism.release(CodesInMemory(domain, n, tuple(codes)), seeded(5))
    derived = module.DerivedMicrodata(raw, mechanism.postprocess(raw))
    rows = module._pair_rows(domain, derived).batches()
    (arrays,) = rows
    names = list(module._PAIRS)
    kept = dict(
        zip(
            zip(arrays[0].to_pylist(), arrays[1].to_pylist(), strict=True),
            arrays[names.index("kept")].to_pylist(),
            strict=True,
        )
    )
    assert kept == {
        ("c0", "c1"): "strong",
        ("c0", "c2"): "weak",
        ("c1", "c2"): "weak",
        ("c0", "c3"): "lost",
        ("c1", "c3"): "lost",
        ("c2", "c3"): "lost",
    }


def test_pairs_are_counted_in_one_sentence() -> None:
    def rows(*known: tuple[str, str | None]) -> list[dict[str, str | None]]:
        return [{"relation": relation, "kept": kept} for relation, kept in known]

    every = rows(
        *[("measured", "strong")] * 2, ("measured", "weak"), *[("shrunk away", "lost")] * 3,
        ("assumed independent", None), ("known", None),
    )  # fmt: skip
    assert module.kept_in_words(every) == (
        "6 of 8 pairs of columns were measured: 2 strong (Cramér's V of 0.15 or more), 1 weak, and "
        "3 lost, whose relations, if there are any, are weaker than their noise and hardly show in "
        "the records. 1 was not measured. 1 is public and met exactly."
    )
    earlier = [{"relation": each["relation"]} for each in every]
    assert module.kept_in_words(earlier).startswith("6 of 8 pairs of columns were measured. 1 was")


def test_a_reader_is_told_how_much_too_short_naive_intervals_are() -> None:
    """In the median and at the ends, of what is known; nothing without copies."""
    rows = [
        {"shares_too_short": shares, "slope_too_short": slope}
        for shares, slope in ((1.24, None), (3.0, 2.0), (1.9, 5.06), (None, None))
    ]
    words = module.too_short_in_words(rows)
    assert "1.9 times for shares of two columns (1.2 to 3.0)" in words
    assert "3.5 times for slopes of one number on another (2.0 to 5.1)" in words
    assert "slopes" not in module.too_short_in_words(rows[:1])
    assert module.too_short_in_words(rows[3:]) == module.too_short_in_words([{}]) == ""
