"""Agencies whose gates are judged in the tests' process, but in files that are about gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from victims import InProcess

from statpress.tasks.release.quality_gates import Inspector

WITH_THE_QUALITY_PROCESS = frozenset(
    ("test_attacks", "test_bad_input", "test_noisy_checks", "test_refusals", "test_release")
)
"""Files whose runs ask the quality process, as every run does that is not a test's."""


class Judging(InProcess):
    """Asks itself what others ask the quality process, and says the same to the curator."""

    meets = Inspector.meets

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        rows = request["rows"]
        success = all(row["least"] <= row["observed"] <= row["most"] for row in rows)
        return {"success": success, "judged": len(rows)}


@pytest.fixture(scope="module")
def founded(request: pytest.FixtureRequest, founded: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an agency as everywhere; to ask the quality process costs a tenth of a release."""
    if request.path.stem in WITH_THE_QUALITY_PROCESS:
        return founded

    def found(folder: Path, dataset: str = "testdata") -> Any:
        made = founded(folder, dataset)
        made.inspector = Judging(made.inspector.log)
        return made

    return found
