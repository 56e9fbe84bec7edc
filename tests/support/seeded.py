"""Plugin of pytest: tests draw no lots.

What a test draws follows from its id and ``--base-seed`` (``seeded_streams``), and what a fixture
of a wider scope draws from its name, whichever test asks for it first.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import seeded_streams
from hypothesis import is_hypothesis_test, register_random
from hypothesis.internal.conjecture import providers
from seeded_streams import CLOCK, STREAMS

BASE_SEED = 20261129
"""Fixed for CI; a night has others."""

NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
"""When tests with that seed begin; with another it may be any second of four years from there."""

WITH_SERVERS = "tests/system/"
"""Tests that have the machine's clock, as their servers do; so have those marked ``system``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--base-seed", type=int, default=BASE_SEED, help="what every random stream follows from"
    )


def base_seed(config: pytest.Config) -> int:
    return int(config.getoption("--base-seed"))


def clock_ahead(seed: int) -> int:
    """By how many seconds the tests' clock is ahead of the machine's."""
    begin = NOON.timestamp()
    if seed != BASE_SEED:
        begin += random.Random(seed).randrange(4 * 365 * 24 * 60 * 60)
    return int(begin - time.time())


AHEAD = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Seed this process from here on, and those that it starts: xdist's workers, too."""
    seed = base_seed(config)
    os.environ["PYTHONHASHSEED"] = str(seed % 2**32)
    os.environ[seeded_streams.VARIABLE] = f"{seed}"
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if seeded_streams.ENTRY not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([seeded_streams.ENTRY, *filter(None, path)])
    seeded_streams.install(f"{seed}")
    config.stash[AHEAD] = clock_ahead(seed)
    # Else it tries constants of all modules that happen to be imported, other tests' among them.
    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing
    register_random(STREAMS)  # type: ignore[arg-type]


def pytest_report_header(config: pytest.Config) -> str:
    return f"base seed: {base_seed(config)}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    name = f"{base_seed(item.config)}/{item.nodeid}"
    STREAMS.begin(name)
    served = item.nodeid.startswith(WITH_SERVERS) or item.get_closest_marker("system")
    CLOCK.shift(0 if served else item.config.stash[AHEAD])
    function = getattr(item, "function", None)
    if is_hypothesis_test(function):
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        function._hypothesis_internal_use_seed = number  # type: ignore[union-attr]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Draw for a shared fixture what follows from its name alone."""
    if fixturedef.scope == "function":
        return (yield)
    where = request.node.nodeid if fixturedef.scope == "module" else fixturedef.baseid
    name = f"{base_seed(request.config)}/{where}/{fixturedef.argname}/{_parameter(request)}"
    before = STREAMS.name, STREAMS.root, STREAMS.getstate()
    clock = CLOCK.ahead
    STREAMS.begin(name)
    if fixturedef.scope == "session":  # its tests' clocks are none of them behind
        CLOCK.shift(min(0, request.config.stash[AHEAD]))
    try:
        return (yield)
    finally:
        CLOCK.shift(clock)
        STREAMS.begin(*before[:2])
        STREAMS.setstate(before[2])


def _parameter(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param_index", ""))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment, misc]
    if report.failed:
        report.sections.append(("base seed", f"--base-seed {base_seed(item.config)}"))
    return report  # type: ignore[return-value]
