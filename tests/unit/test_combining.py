"""What is fitted on copies of the records: missing values, and what copies do not know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from statpress.tasks.products.answer_words import caveats
from statpress.tasks.release.combining import complete, fitted

N, COPIES = 300, 3


def copies() -> pd.DataFrame:
    """Records of three copies: a category that is missing in all of them, and one in the first."""
    rng = np.random.default_rng(1)
    made = pd.DataFrame(
        {
            "y": rng.normal(size=N * COPIES),
            "often": pd.Categorical(rng.choice(["a", "b", None], N * COPIES), ["a", "b"]),
            "once": pd.Categorical(rng.choice(["c", "d"], N * COPIES), ["c", "d"]),
            "number": np.where(
                np.arange(N * COPIES) % 50 == 7, np.nan, rng.normal(size=N * COPIES)
            ),
            "unnamed": pd.Categorical([None] * N * COPIES, ["e"]),
            "copy": np.repeat(range(1, COPIES + 1), N),
        }
    )
    made.loc[5, "once"] = np.nan
    return made


def test_a_missing_category_is_one_where_every_copy_has_some() -> None:
    ready, notes = complete("y ~ often + once + np.abs(number)", copies())
    assert ready["often"].cat.categories.tolist() == ["a", "b", "missing"]
    assert ready["once"].cat.categories.tolist() == ["c", "d"]
    assert notes == [
        "0.1% of the records of the copies have no once and are left out.",
        "2.0% of the records of the copies have no number and are left out.",
    ]
    assert ready["unnamed"].isna().all()
    first = ready[ready["copy"] == 1].drop(columns="copy")
    found, _ = fitted("y ~ often + number", first)
    assert list(found.index) == ["Intercept", "often[T.b]", "often[T.missing]", "number"]
    there = first.dropna(subset=["number"])
    x = np.column_stack(
        [np.ones(len(there)), there["often"] == "b", there["often"] == "missing", there["number"]]
    ).astype(float)
    assert found.to_numpy() == pytest.approx(np.linalg.lstsq(x, there["y"], rcond=None)[0])


def test_a_value_that_is_called_missing_is_not_added_again() -> None:
    frame = copies()
    frame["often"] = frame["often"].cat.rename_categories({"b": "missing"})
    ready, notes = complete("y ~ often", frame)
    assert ready["often"].cat.categories.tolist() == ["a", "missing"]
    assert not ready["often"].isna().any()
    assert notes == []


def said(**facts: object) -> str:
    cells = facts.pop("cells", [{"lower": 0.0, "upper": 1.0}])
    answer = {
        "statistic": "combined", "confidence": 0.95, "of": "records", "sample": None,
        "chosen_by_noisy_scores": False, "cells": cells,
    }  # fmt: skip
    return " ".join(caveats(answer | facts))


def test_an_answer_on_copies_names_the_pairs_that_were_not_measured() -> None:
    pairs = [f"a and {other}" for other in "bcdefgh"]
    assert (
        "not measured together, and how they are related is a guess, near to not at all: a and b."
        in said(guessed=pairs[:1])
    )
    assert "a and f; and 2 more." in said(guessed=pairs)
    assert "beyond their pairs is mostly a guess" in said(guessed=[])
    assert "How columns are related that were not measured together is a guess." in said()
    assert "Copies draw relations towards none" in said(guessed=[])
    assert "Copies draw" not in said(guessed=[], columns=["a"], where={}, statistic_of=["a"])


def test_a_set_of_both_sides_of_nought_is_said_to_be_one() -> None:
    everything = {"lower": -np.inf, "upper": np.inf, "p_value": 0.01}
    assert "on either side of it" in said(cells=[everything])
    for other in ({"p_value": 0.2}, {"lower": 1.0}):
        assert "on either side of it" not in said(cells=[everything | other])
