"""Patches are few, and one that does nothing fails its test."""

from __future__ import annotations

import patches
import pytest
from patches import UnusedPatchError

from statpress.tasks.private_zone import guards
from statpress.tasks.release import plan_page

MOST = 150
"""More than this and what is patched should be an argument."""


def test_patches_are_few() -> None:
    assert len(list(patches.patches())) <= MOST


def test_a_patch_of_what_nothing_reads_there_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_page, "usable_processors", lambda: 1)  # its functions read that
    monkeypatch.setattr("statpress.tasks.private_zone.guards.uuid", guards.uuid)
    with pytest.raises(UnusedPatchError, match="reads 'annotations' of"):
        monkeypatch.setattr(plan_page, "annotations", None)
    with pytest.raises(UnusedPatchError, match="Patch it where it is read"):
        monkeypatch.setattr("statpress.tasks.release.plan_page.annotations", None)
