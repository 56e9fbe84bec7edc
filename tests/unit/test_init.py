"""The command that drafts a config, in this process: what it writes and prints."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statpress.configs.descriptions.description_files import read_description
from statpress.configs.loading import load
from statpress.flows.cli import app
from statpress.mechanisms.errors import DescriptionError, OutputNotWritableError, StatpressError

LIST = """\
name,type,categories,lower,upper,label
sex,categorical,f|m,,,Sex
age,integer,,0,99,
pay,numeric,,0,,
"""
GIVEN = ("--n-records=400", "--epsilon=1", "--delta=1e-6", "--dataset=panel", "--source=data/p.csv")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let somebody type a text, at a terminal or not."""

    class Typed(io.StringIO):
        terminal = True

        def isatty(self) -> bool:
            return self.terminal

    def type_in(text: str, terminal: bool = True) -> None:
        monkeypatch.setattr("sys.stdin", stdin := Typed(text))
        stdin.terminal = terminal

    return type_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "columns.csv").write_text(LIST)
    return tmp_path


def say(*words: str) -> None:
    app(list(words), exit_on_error=False)


def test_a_config_is_written_and_what_is_missing_is_told(folder: Path, capsys: Any) -> None:
    say("init", "columns.csv", *GIVEN)
    told = capsys.readouterr().out
    lines = (folder / "release.yaml").read_text().splitlines()
    assert "Wrote release.yaml: 3 columns from a list of columns. No data was read." in told
    (at,) = (i for i, line in enumerate(lines, 1) if "upper:  # FILL IN" in line)
    assert f"release.yaml:{at}: domain.pay.upper: the largest possible value" in told
    (title,) = (i for i, line in enumerate(lines, 1) if line.startswith("title:  # FILL IN"))
    assert f"release.yaml:{title}: title" in told
    assert "statpress validate release.yaml" in told
    lines[at - 1] = "    upper: 100"
    lines[title - 1] = "title: Panel"
    (folder / "release.yaml").write_text("\n".join(lines))
    release = load(folder / "release.yaml")
    assert release.config.source.path == "data/p.csv"
    assert release.config.domain["sex"].label == "Sex"
    assert not (folder / "data").exists()  # only written down


def test_the_same_as_json(folder: Path, capsys: Any) -> None:
    say("init", "columns.csv", "--output", "other.yaml", "--json", *GIVEN)
    facts = json.loads(capsys.readouterr().out)
    assert facts["columns"] == ["sex", "age", "pay"] and facts["left_out"] == {}
    assert [blank["key"] for blank in facts["blanks"]] == ["title", "domain.pay.upper"]
    assert (folder / "other.yaml").exists()


def test_paths_go_from_the_folder_of_the_config(folder: Path, capsys: Any) -> None:
    schema = {"fields": [{"name": "a", "type": "boolean"}]}
    package = {"resources": [{"name": "p", "path": "data/p.csv", "schema": schema}]}
    (folder / "public").mkdir()
    (folder / "made").mkdir()
    described = folder / "public" / "datapackage.json"
    described.write_text(json.dumps(package))
    say("init", str(described), "--output", "made/r.yaml")
    assert 'source: {path: "../public/data/p.csv"}' in (folder / "made" / "r.yaml").read_text()
    package["resources"][0]["path"] = "p.dat"
    described.write_text(json.dumps(package))
    say("init", str(described), "--output", "made/s.yaml")
    assert "  path:  # FILL IN" in (folder / "made" / "s.yaml").read_text()


def test_nothing_is_overwritten_or_half_written(folder: Path) -> None:
    (folder / "release.yaml").write_text("mine")
    with pytest.raises(OutputNotWritableError, match="something at this place"):
        say("init", "columns.csv")
    assert (folder / "release.yaml").read_text() == "mine"
    with pytest.raises(OutputNotWritableError, match="cannot be written"):
        say("init", "columns.csv", "--output", "nowhere/r.yaml")
    with pytest.raises(DescriptionError, match="--epsilon: This is not a number"):
        say("init", "columns.csv", "--output", "r.yaml", "--epsilon", "much")
    with pytest.raises(DescriptionError):
        say("init", "p.parquet", "--output", "r.yaml")
    assert not (folder / "r.yaml").exists()


def test_somebody_at_a_terminal_is_asked(
    folder: Path, capsys: Any, typed: Callable[..., None]
) -> None:
    answers = ["Panel", "panel", "p.csv", "few", "400", "1", ""]
    answers += ["Office of Numbers", "", "CC BY", "CC-BY-4.0", "sex", "categorical", "f|m", ""]
    typed("\n".join([*answers, "yes", "Sex", "", "", ""]))
    say("init", "--json")
    said = capsys.readouterr()
    assert [blank["key"] for blank in json.loads(said.out)["blanks"]] == ["budget.delta"]
    assert "This is not a number." in said.err and "Column 2" in said.err
    text = (folder / "release.yaml").read_text()
    assert "sex: {type: categorical, categories: [f, m], missing: true, label: Sex}" in text
    assert "publisher: {name: Office of Numbers}\n  licence: CC-BY-4.0\n" in text
    typed("Panel\npanel\n")
    with pytest.raises(DescriptionError, match="ended early"):
        say("init", "--output", "r.yaml")
    typed("Panel\n", terminal=False)
    with pytest.raises(StatpressError, match="nobody is at a terminal"):
        say("init", "--output", "r.yaml")
    assert not (folder / "r.yaml").exists()


def test_a_list_of_columns_with_another_heading_names_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "columns.csv"
    path.write_text("name,type,minimum\nage,integer,0\n")
    with pytest.raises(DescriptionError, match="do not have") as caught:
        read_description(path)
    assert caught.value.where == "columns.csv:1" and "lower" in caught.value.next_step


def test_validate_names_every_blank_at_the_line_that_was_told(folder: Path, capsys: Any) -> None:
    """Until the last is filled in, and nothing besides that follows from a blank."""
    (folder / "columns.csv").write_text(LIST + "town,categorical,,,,\n")
    say("init", "columns.csv", "--json")
    blanks = json.loads(capsys.readouterr().out)["blanks"]
    assert len(blanks) == 8
    values = {"n_records": 400, "epsilon": 1, "delta": "1e-6", "upper": 9, "categories": "[a, b]"}
    path = folder / "release.yaml"
    while blanks:
        with pytest.raises(StatpressError) as caught:
            load(path)
        found = [each.where for each in (caught.value, *caught.value.also)]
        assert found == [f"release.yaml:{each['line']}:{at}: {each['key']}" for each, at in zip(
            blanks, (int(where.split(":")[2]) for where in found), strict=True)]  # fmt: skip
        filled = blanks.pop(len(blanks) // 2)
        lines, key = path.read_text().splitlines(), filled["key"].split(".")[-1]
        line = lines[filled["line"] - 1]
        lines[filled["line"] - 1] = f"{line.partition(':')[0]}: {values.get(key, key)}"
        path.write_text("\n".join(lines))
    load(path)
