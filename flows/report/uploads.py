"""Uploads as JSON facts and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.release.outcome import Uploaded


def upload_facts(uploads: Sequence[Uploaded]) -> dict[str, Any]:
    """What came of uploads."""
    return {"uploads": [asdict(each) for each in uploads]}


def upload_lines(uploads: Sequence[Uploaded]) -> Iterator[str]:
    """The same for a person, a line or two for each."""
    for each in uploads:
        files = "1 file" if each.sent == 1 else f"{each.sent} files"
        there = f", {each.kept} already there" if each.kept else ""
        yield f"Uploaded to {each.place}: {files} sent{there}, all read back."
        if each.latest:
            yield f"  {each.latest}"
