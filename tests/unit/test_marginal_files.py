"""Microdata by marginals beyond the contract: values within cells, and too little memory."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from coded import CodesInMemory
from contract_cases import planned
from estimating import seeded

from statpress.configs.formats import DEFAULT, FORMATS
from statpress.configs.release_config import PublishConfig
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.planning.plan import PlannedProduct
from statpress.tasks.products import marginal_product as module
from statpress.tasks.products.product_kind import kind_of

INSTALLED = FORMATS if find_spec("pyreadstat") else DEFAULT
PUBLISH = PublishConfig(directory="releases", formats=list(INSTALLED), plots=False)
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


def test_more_memory_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    product = product_with("middle")
    needed = kind_of(product).working_memory(product).derive
    monkeypatch.setattr(module, "machine_memory", lambda: needed)
    kind_of(product).check(product)
    monkeypatch.setattr(module, "machine_memory", lambda: needed - 1)
    with pytest.raises(ConfigError, match="of memory, and this machine has") as caught:
        kind_of(product).check(product)
    assert caught.value.where == "products.p"
    assert "fewer records" in caught.value.next_step


def test_the_machine_has_some_memory() -> None:
    assert 2**28 < module.machine_memory() < 2**50
