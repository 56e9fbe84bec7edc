"""Garbage is not collected while pytest-benchmark measures."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the benchmarks, so that no other test needs the plugin for an option."""
    for item in items:
        if "benchmark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.benchmark(disable_gc=True))
