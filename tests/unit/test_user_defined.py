"""Objects that a config names, imported: what a user's own module may do wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from statpress.configs.requests import user_defined
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
