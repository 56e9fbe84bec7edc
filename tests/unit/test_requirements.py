"""What a machine lacks skips a test, and fails it where ``CI=true``."""

from __future__ import annotations

import pytest
from requirements import lacking, needed


@pytest.mark.parametrize("told", [None, "", "false"])
def test_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    monkeypatch.delenv("CI", raising=False)
    if told is not None:
        monkeypatch.setenv("CI", told)
    with pytest.raises(pytest.skip.Exception, match=r"libnss3\.so is missing"):
        lacking("libnss3.so is missing")
    with pytest.raises(pytest.skip.Exception, match="'no_such_module'"):
        needed("no_such_module")


def test_an_error_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"libnss3\.so is missing"):
        lacking("libnss3.so is missing")
    with pytest.raises(pytest.fail.Exception, match="'no_such_module'"):
        needed("no_such_module")


def test_what_is_there_is_imported() -> None:
    assert needed("pytest") is pytest
