"""What tests of whole flows share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from seeded import base_seed
from shared_bundles import shared_bundle
from victims import InProcess


@pytest.fixture(scope="session")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, first_founded: Any
) -> Callable[..., Any]:
    """Gives the agency of a name, with its ``bundle``, which is made once a run.

    Its arguments are the name and a function that makes of a new agency one whose release it is,
    with the seed of that, if it has one. Nothing of it may be changed.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def agency_of(name: str, opened: Callable[[Any], Any], **arguments: Any) -> Any:
        folder = root / "shared-bundles" / name
        agency = type(first_founded)(folder, InProcess(first_founded.inspector.log))

        def make(into: Path) -> Path:
            shutil.copytree(first_founded.folder, into, dirs_exist_ok=True)
            agency.config.write_text(agency.text)
            bundle: Path = opened(agency).run(**arguments).bundle
            return bundle

        agency.bundle = shared_bundle(folder, base_seed(request.config), make)
        agency.text = agency.config.read_text()
        return agency

    return agency_of


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
