"""A release of a column in which many records have the same value, through the whole flow."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.query import Question, ask

N, ZEROS, UNKNOWN, CODE = 5_000, 680, 200, 99_999
DOMAIN = """\
domain:
  gain: {type: numeric, lower: 0, upper: 20000, bins: 10, special: [0, 99999]}
  sex: {type: categorical, categories: [f, m]}
structural_zeros:
  - {gain: [99999], sex: [f]}
products:
  people: {kind: microdata, mechanism: marginals, columns: [gain, sex], copies: 2, share: 0.4}
  gains: {kind: table, columns: [gain], share: 0.2}
  usual: {kind: estimate, statistic: mean, columns: [gain], share: 0.2}
  middle: {kind: estimate, statistic: median, mechanism: noisy_quantile, columns: [gain]}
"""


def amounts() -> np.ndarray:
    """13.6 % zeros, codes of the unknown, and amounts that fall off."""
    rng = np.random.default_rng(7)
    drawn = np.minimum(rng.exponential(4000.0, N - ZEROS - UNKNOWN) + 1.0, 19_999.0)
    return np.concatenate([np.zeros(ZEROS), np.full(UNKNOWN, CODE), drawn])


@pytest.fixture(scope="module")
def bundle(
    founded: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Any:
    """A bundle with values in the middle of cells or by their slope, which nobody changes."""
    agency = founded(tmp_path_factory.mktemp("gains"))
    text = DOMAIN.replace("share: 0.4", f"share: 0.4, within_cells: {request.param}")
    start, end = agency.text.index("domain:"), agency.text.index("publish:")
    agency.replace(agency.text[start:end], text)
    agency.replace("n_records: 400", f"n_records: {N}")
    agency.replace("dataset: testdata", "dataset: gains")
    agency.replace("epsilon: 1.0", "epsilon: 2.0")
    agency.register(dataset="gains", n_records=N)
    sexes = ["m"] * N
    sexes[ZEROS + UNKNOWN : N // 2] = ["f"] * (N // 2 - ZEROS - UNKNOWN)
    agency.write_source(pa.table({"gain": amounts(), "sex": sexes}))
    made = agency.run(insecure_seed=3).bundle
    check_bundle(agency.home, made, verify_bundle(made))
    return made


def column(bundle: Any, stem: str, name: str) -> list[str]:
    with (bundle / "data" / f"{stem}.csv").open(encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


@pytest.mark.parametrize("bundle", ["middle", "slope"], indirect=True)
def test_point_masses_stay(bundle: Any) -> None:
    private = amounts()
    gains = np.array(column(bundle, "people", "gain"), np.float64)
    answer = ask(bundle, Question(columns=("gain",), conditions={"gain": ("0", "99999")}))
    for value, true, cell in zip((0, CODE), (ZEROS, UNKNOWN), answer["cells"], strict=True):
        assert list(cell["values"].values()) == [str(value)]
        error = cell["standard_error"]
        assert 0 < error < 50
        assert abs(cell["estimate"] - true) < 5 * error
        assert abs(np.count_nonzero(gains == value) - true) < 5 * error + 1
    own = (gains > 0) & (gains < CODE)
    middles = set(range(1000, 20_000, 2000))
    inside = private[(private > 0) & (private < CODE)]
    if "within_cells: middle" in (bundle / "config.yaml").read_text(encoding="utf-8"):
        assert set(gains[own]) <= middles
    else:
        assert not middles & set(gains[own])
        in_first = [x[x < 2000].mean() for x in (gains[own], inside)]
        assert in_first[0] < 990 and abs(in_first[0] - in_first[1]) < abs(1000 - in_first[1])
    table = dict(zip(column(bundle, "gains", "gain"), column(bundle, "gains", "raw"), strict=True))
    assert len(table) == 12
    assert list(map(float, table)) == sorted(map(float, table))


@pytest.mark.parametrize("bundle", ["slope"], indirect=True)
def test_statistics_leave_out_what_is_no_amount(bundle: Any) -> None:
    private = amounts()
    inside = private[private < CODE]
    (mean,), (lower,), (upper,) = (
        [float(v) for v in column(bundle, "usual", name)] for name in ("estimate", "lower", "upper")
    )
    assert abs(mean - inside.mean()) < 400
    assert lower < mean < upper < 8000
    (low,), (high,) = (
        [float(v) for v in column(bundle, "middle", name)] for name in ("lower", "upper")
    )
    assert low <= np.median(inside) <= high <= 8000


@pytest.mark.parametrize("bundle", ["slope"], indirect=True)
def test_the_bundle_says_where_values_lie(bundle: Any) -> None:
    words = " ".join((bundle / "codebook.md").read_text(encoding="utf-8").split())
    assert "each of the special values 0, 99999" in words
    assert "in `people`, `people_copies` as a value drawn within the cell by the slope" in words
    package = json.loads((bundle / "datapackage.json").read_text(encoding="utf-8"))
    people = next(r for r in package["resources"] if r["path"] == "data/people.csv")
    gain = people["schema"]["fields"][0]
    assert gain["constraints"] == {"minimum": 0.0, "maximum": 99999.0, "required": True}
    assert gain["declared"]["special"] == [0.0, 99999.0]
    assert people["schema"]["fields"][1].get("within") is None
