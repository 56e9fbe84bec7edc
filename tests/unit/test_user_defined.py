"""Objects that a config names, imported: what a user's own module may do wrong."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from statpress.configs.requests import _MERGED, _present_name, user_defined
from statpress.mechanisms.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("not_there:mean", "ModuleNotFoundError"),
        ("own_statistics:not_there", "AttributeError"),
        (":mean", "ValueError"),
        ("fails_on_import:mean", "ZeroDivisionError"),
        ("cannot_be_parsed:mean", "SyntaxError"),
    ],
)
def test_what_cannot_be_imported_is_an_error_of_the_config(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_on_import.py").write_text("mean = 1 / 0\n")
    (tmp_path / "cannot_be_parsed.py").write_text("mean = (\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=reason) as caught:
        user_defined(name, "statistic")
    assert "module:name" in caught.value.next_step


@pytest.mark.parametrize(
    ("importing", "now"),
    [
        (
            "from mechanisms.inference.statistics import Mean",
            "Write 'statpress.mechanisms.estimates.statistics' in place of "
            "'mechanisms.inference.statistics'",
        ),
        (
            "from mechanisms.estimates.statistics.named_statistic import (\n    NamedStatistic,\n)",
            "Write 'statpress.mechanisms.estimates.statistics' in place of ",
        ),
        ("import mechanisms.base.citation as cited", "Write 'statpress.mechanisms.mechanism' in"),
        ("from mechanisms.errors.config import ConfigError", "Write 'statpress.mechanisms.errors'"),
        ("import json, tasks.products.kind", "Write 'statpress.tasks.products.product_kind' in"),
        ("from configs import loading", "Write 'statpress.configs' in place of 'configs'"),
        ("import flows.nothing_of_this_name", "Write 'statpress.flows' in place of 'flows.nothing"),
        ("def late():\n    import tasks\nlate()", "Write 'statpress.tasks' in place of 'tasks'"),
    ],
)
def test_an_import_by_a_name_of_the_first_version_names_the_new_place(
    importing: str, now: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_the_first_version.py").write_text(f"{importing}\nmean = 1\n")
    monkeypatch.chdir(tmp_path)  # not the checkout, whose folders have these names
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="ModuleNotFoundError") as caught:
        user_defined("of_the_first_version:mean", "statistic")
    assert now in caught.value.next_step


def test_a_config_that_names_a_module_of_the_first_version_is_told_the_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        user_defined("mechanisms.inference.statistics:Mean", "statistic")
    assert "statpress.mechanisms.estimates.statistics" in caught.value.next_step


def test_what_a_users_own_folder_of_that_name_lacks_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imports_another.py").write_text("import tasks_of_mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("imports_another:mean", "tasks.of_mine:mean", "tasks:mean"):
        with pytest.raises(ConfigError) as caught:
            user_defined(name, "statistic")
        assert "module:name" in caught.value.next_step, name


def test_the_handbook_lists_what_has_moved() -> None:
    handbook = (Path(__file__).parents[2] / "deploy" / "README.md").read_text()
    listed = dict(re.findall(r"(?m)^\| `([\w.]+)` \| `(statpress[\w.]+)` \|$", handbook))
    for old, new in listed.items():
        assert find_spec(new), f"{old}: {new} is not there"
    for old, new in _MERGED.items():
        assert {listed[name] for name in listed if f"{name}.".startswith(f"{old}.")} == {
            f"statpress.{new}"
        }, old
        assert _present_name(old) == f"statpress.{new}"
