"""What tests of whole flows share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from victims import InProcess


@pytest.fixture(scope="module")
def judged_here() -> Iterator[None]:
    """Commands judge their gates in this process: their own takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("statpress.flows.runner.Inspector", InProcess)
        yield


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is that for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
