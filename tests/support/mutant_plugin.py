"""Plugin of pytest (``-p mutant_plugin``) with which ``mutants.py`` records and runs tests.

Recording, it says which tests use each shared fixture, and gives what sets one up a context of its
own: its lines are executed for all of these tests, not only for the one that comes first. In a copy
with a mutant it runs only the tests that are asked for, and writes down which one failed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CONFIG = pytest.StashKey[pytest.Config]()
_contexts: list[str] = []
_result: Path | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shared-fixtures", help="where to write the tests that use each of them")
    parser.addoption("--only-tests", help="file with the ids of the tests to run")
    parser.addoption("--first-failure", help="where to write the test that runs or failed")


def pytest_configure(config: pytest.Config) -> None:
    global _result
    path = config.getoption("--first-failure")
    _result = Path(path) if path else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("--only-tests"):
        wanted = set(json.loads(Path(path).read_text()))
        items[:] = [item for item in items if item.nodeid in wanted]
    path = config.getoption("--shared-fixtures")
    if path and getattr(config, "workerinput", {}).get("workerid", "gw0") == "gw0":
        users = defaultdict(list)
        for item in items:
            for definitions in getattr(item, "_fixtureinfo").name2fixturedefs.values():  # noqa: B009
                for each in definitions:
                    if each.scope != "function":
                        users[_name(each)].append(item.nodeid)
        Path(path).write_text(json.dumps(users))


def _name(fixture: pytest.FixtureDef[Any]) -> str:
    return f"{fixture.baseid}::{fixture.argname}"


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[None]:
    if fixturedef.scope == "function" or not request.config.getoption("--shared-fixtures"):
        return (yield)
    from coverage import Coverage

    test, _, phase = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")
    before = _contexts[-1] if _contexts else f"{test}|{phase.strip('()').replace('call', 'run')}"
    _contexts.append(f"{_name(fixturedef)}|fixture")
    measuring: Any = Coverage.current()
    measuring.switch_context(_contexts[-1])
    try:
        return (yield)
    finally:
        _contexts.pop()
        measuring.switch_context(before)


def _write(name: str, test: str) -> None:
    """Write down which test runs, how many have begun, and which failed first."""
    if _result is not None:
        known = json.loads(_result.read_text())
        known["begun"] = known.get("begun", 0) + (name == "now")
        _result.write_text(json.dumps({**known, name: known.get("failed", test)}))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write("failed", report.nodeid)


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("now", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write("failed", report.nodeid)
