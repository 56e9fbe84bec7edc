"""Agencies whose gates are in the tests' process, but in files that are about gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from victims import InProcess

WITH_THE_QUALITY_PROCESS = frozenset(
    ("test_attacks", "test_bad_input", "test_noisy_checks", "test_refusals", "test_release")
)
"""Files whose runs ask the quality process, as every run does that is not a test's."""


@pytest.fixture(scope="module")
def founded(request: pytest.FixtureRequest, founded: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an agency as everywhere; one question to the quality process costs 0.1 seconds."""
    if request.path.stem in WITH_THE_QUALITY_PROCESS:
        return founded

    def found(folder: Path, dataset: str = "testdata") -> Any:
        made = founded(folder, dataset)
        made.inspector = InProcess(made.inspector.log)
        return made

    return found
