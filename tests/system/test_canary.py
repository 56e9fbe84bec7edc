"""The canary: what occurs in the private source alone is found nowhere else, however a run fails.

All kinds of failure run once, on a real server with a database, whose settings and logs
are set up to keep as much as they can. Then everything they left is searched, and broken
twins show for each channel that a leak into it would be found.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bad_input
import numpy as np
import outbursts
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask_cluster import DaskCluster
from leaks import Search, Watch, wait_for_event
from outbursts import TWIN, Bursting, outburst, put_in_place, unsealed
from postgres_tables import write_table
from prefect_server import ask
from victims import InProcess, all_ended, press, short_of_memory, warm

import statpress.flows.release
import statpress.tasks.release.steps
from statpress.mechanisms.errors import (
    ConfigError,
    InternalError,
    QualityGateError,
    SourceAccessError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.workers import Parallel
from statpress.tasks.release.quality_gates import Inspector
from statpress.tasks.source import scanning

if TYPE_CHECKING:
    from postgres import Server

pytestmark = pytest.mark.system

CANARY, RARE = bad_input.CANARY, bad_input.RARE
COUNT = 1_928_374
"""Records of a source whose very number is private, since another is declared."""

PASSWORD = "Zyx-password-5521"
"""Of a role that may read a source's table."""

PRIVATE = Search((CANARY, PASSWORD, "48151623", "48_151_623", "48,151,623"), (RARE,), (COUNT,))
OF_TWINS = Search((TWIN,))

HOSTILE = {
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
    "PREFECT_TASKS_DEFAULT_PERSIST_RESULT": "true",
    "PREFECT_FLOWS_DEFAULT_RETRIES": "1",
    "PREFECT_TASKS_DEFAULT_RETRIES": "1",
    "PREFECT_LOGGING_LOG_PRINTS": "true",
    "PREFECT_LOGGING_LEVEL": "DEBUG",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "DEBUG",
    "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.2",
}
"""Settings of somebody who wants the orchestrator to keep everything."""

SCAN = "statpress.tasks.source.scanning.scan"
IN_STEPS = {
    "read config": "statpress.tasks.release.steps.load_order",
    "plan": "statpress.configs.loading.Release.plan",
    "check budget": "statpress.tasks.release.steps.check_covered",
    "rehearse": "statpress.tasks.release.steps.bundle.rehearse",
    "check input": SCAN,
    "count once": "statpress.tasks.release.steps.key_of_choice",
    "check counts": "statpress.tasks.release.steps.quality.check_table",
    "charge ledger": "statpress.tasks.release.steps.Ledger.charge",
    "draw records": "statpress.tasks.release.steps.generator",
    "post-process": "statpress.tasks.release.steps.bundle.derive",
    "write bundle": "statpress.tasks.release.steps.bundle.write_bundle",
    "check release": "statpress.tasks.release.steps.bundle.profile_bundle",
    "publish": "statpress.tasks.release.steps.bundle.seal_bundle",
}
BAD_INPUT = (
    "missing file", "truncated Parquet", "column absent", "text for dates", "empty source",
    "undeclared category", "budget exceeded", "ledger gone", "ledger is text", "output is a file",
)  # fmt: skip
"""What is found wrong once the source is open, what the ledger refuses, what cannot be written.

Of each error one case: ``tests/flow/test_bad_input.py`` has all, and what they say.
"""
NIGHTLY = frozenset(
    {f"in {name}" for name in IN_STEPS}
    - {f"in {name}" for name in ("read config", "check input", "charge ledger", "write bundle")}
    | set(BAD_INPUT) - {"text for dates", "ledger is text"}
    | {"from PostgreSQL", "on a Dask worker", "in hand over counts"}
)
"""Runs that the quick form leaves out: each fails, or succeeds, in much the same way as others."""


def unsealed_outburst(*_: Any, **__: Any) -> None:
    """What the broken twin says."""
    outburst(said=TWIN)


@contextlib.contextmanager
def replaced(places: Mapping[str, Any]) -> Iterator[None]:
    """Have something else at places of modules, by their names."""
    with pytest.MonkeyPatch.context() as patch:
        for place, instead in places.items():
            patch.setattr(place, instead)
        yield


@dataclass
class Ended:
    """How a run ended."""

    agency: Any
    error: BaseException | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def curator(self) -> str:
        """What the curator was told."""
        folder = self.agency.home.root / "curator"
        return "".join(path.read_text() for path in folder.glob("*.log"))


class Sweep:
    """All runs, and where they left what they left."""

    def __init__(
        self, found: Callable[..., Any], folder: Path, server: dict[str, str], left_out: Set[str]
    ) -> None:
        self.found, self.folder, self.server = found, folder, server
        self.expected = {kind: EXPECTED[kind] for kind in EXPECTED if kind not in left_out}
        self.left_out = left_out
        self.server_home = Path(server["PREFECT_HOME"])
        self.ended: dict[str, Ended] = {}
        self.said, self.said_by_twin = folder / "terminal", folder / "terminal of the twin"
        self.shown = ""

    def agency(self, name: str, dataset: str = "testdata", products: int = 1) -> Any:
        """A fresh agency; with one product, it is planned in no time."""
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        made = self.found(folder, dataset)
        births = (
            "  births: {accept: mostly_noise, kind: microdata, mechanism: bootstrap, "
            "columns: [born], share: 0.5}\n"
        )
        if products == 1:
            made.replace(births, "")
            made.replace("pay], share: 0.5}", "pay]}")
        made.replace("publish:", "curator: {report: true}\npublish:")
        made.inspector = InProcess(None)
        return made

    def run(
        self,
        name: str,
        change: Callable[[Any], object] | None = None,
        places: Mapping[str, Any] | None = None,
    ) -> None:
        """Run once under Prefect, if it is not left out; the error, if any, is kept."""
        if name in self.left_out:
            return
        agency = self.agency(name)
        if change is not None:
            change(agency)
        with replaced(places or {}):
            self.keep(name, agency, lambda: agency.run(orchestrated=True))

    def run_parallel(self, name: str, parallel: Parallel) -> None:
        """The same, with the products drawn elsewhere."""
        if name in self.left_out:
            return
        agency = self.agency(name, products=1 if parallel.dask else 2)
        self.keep(name, agency, lambda: agency.run(orchestrated=True, parallel=parallel))

    def keep(self, name: str, agency: Any, run: Callable[[], object]) -> None:
        self.ended[name] = ended = Ended(agency)
        try:
            ended.facts["result"] = run()
        except (StatpressError, KeyboardInterrupt, Exception) as error:
            ended.error = error

    @property
    def private(self) -> tuple[Path, ...]:
        """What may hold private values: sources and curator logs."""
        agencies = [ended.agency for ended in self.ended.values()]
        logs = [agency.home.root / "curator" for agency in agencies]
        return (*(agency.source for agency in agencies), *logs, self.folder / "quality-process.log")


@pytest.fixture(scope="module")
def sweep(
    full: bool,
    founded: Callable[..., Any],
    server: dict[str, str],
    postgres_server: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sweep]:
    """Every kind of run, one after the other, on the server."""
    import prefect.context
    from prefect.logging.handlers import APILogHandler

    warm()
    folder = tmp_path_factory.mktemp("canary")
    made = Sweep(founded, folder, server, frozenset() if full else NIGHTLY)
    (folder / "tmp").mkdir()
    patch = pytest.MonkeyPatch()
    ours = {name: value for name, value in server.items() if name.startswith("PREFECT_")}
    ours |= HOSTILE | {
        "PREFECT_HOME": str(folder / "client"),
        "PREFECT_LOCAL_STORAGE_PATH": str(folder / "results"),
        "TMPDIR": str(folder / "tmp"),
    }
    for name, value in ours.items():
        patch.setenv(name, value)
    patch.chdir(folder / "tmp")
    before = prefect.context.GLOBAL_SETTINGS_CONTEXT
    prefect.context.refresh_global_settings_context()
    keeps_all, root, engine = APILogHandler(), logging.getLogger(), logging.getLogger("duckdb")
    try:
        for logger in (root, engine):
            logger.addHandler(keeps_all)
        made.server = server | ours
        with replaced(AROUND):
            quality = Inspector(CuratorLog(folder, "quality-process"))
            with quality, recorded(made.said):
                _run_all(made, quality)
                _run_from_database(made, patch, postgres_server)
            _run_elsewhere(made, patch)
            with recorded(made.said_by_twin):
                made.run("broken twin", places=TWIN_IN_STEP)
                with replaced(TWIN_IN_STEP | TWIN_IN_BODY):
                    made.run("broken twin in a broken body")
                    _keeps_result(TWIN)
            with recorded(made.said):
                _settle(made)
            yield made
    finally:
        for logger in (root, engine):
            logger.removeHandler(keeps_all)
        patch.undo()
        prefect.context.GLOBAL_SETTINGS_CONTEXT = before


AROUND = {
    "tempfile.tempdir": None,
    # A thread that Prefect waits for, up to a second, at the end of every run.
    "prefect.flow_engine.BaseFlowRunEngine.heartbeat_seconds": None,
    # Each of Prefect's many clients reads all authorities for a server without TLS.
    "ssl.create_default_context": functools.cache(ssl.create_default_context),
}
"""For all runs, as a program of its own would have it, but quicker."""


def _unguarded(function: Any, *_: Any) -> Any:
    return function


TWIN_IN_STEP = {
    "statpress.tasks.private_zone.run_context.guarded": _unguarded,
    SCAN: unsealed_outburst,
}
TWIN_IN_BODY = {
    "statpress.flows.runner.guarded": _unguarded,
    "sys.unraisablehook": sys.__unraisablehook__,  # not pytest's
    "threading.excepthook": threading.__excepthook__,
}


@contextlib.contextmanager
def recorded(path: Path) -> Iterator[None]:
    """Keep all that is printed, by whatever means."""
    file = path.open("a", buffering=1)  # stays open: Prefect's handler keeps it
    kept = os.dup(1), os.dup(2)
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    try:
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            yield
    finally:
        file.flush()
        for number, original in zip((1, 2), kept, strict=True):
            os.dup2(original, number)
            os.close(original)


def _telling_names(column: Any, field: Any) -> list[str]:
    """Cells that the curator's page shows under a name of the private source."""
    del field
    return [f"{CANARY} {RARE}"] * column.size


def _interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt(CANARY)


_HONEST_CHECK, _HONEST_SCAN = statpress.flows.release.check_counts, scanning.scan


def _mis_called(run: Any, release: Any, table: Any) -> Any:
    return _HONEST_CHECK(table)


def _slow(*_: Any, **__: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01)  # the timer that Prefect set for the flow
    try:
        time.sleep(600)
    except BaseException as error:
        raise ValueError(CANARY) from error


BREAKING = {
    "nothing fails": {"statpress.tasks.products.count_errors.cell_names": _telling_names},
    "the curator's report fails": {"statpress.tasks.release.curator_report.true_errors": outburst},
    **{f"in {name}": {place: outburst} for name, place in IN_STEPS.items()},
    # Between steps the orchestrator's own loggers speak, to tell of the steps.
    "in the flow body": {
        "statpress.flows.release.open_run": functools.partial(outburst, run_logs=False)
    },
    "interrupted": {SCAN: _interrupted},
    "mis-called": {"statpress.flows.release.check_counts": _mis_called},
}
"""By kind of failure what is where in the product."""


def _run_all(sweep: Sweep, inspector: Inspector) -> None:
    """The kinds of failure, each in a fresh agency."""
    from statpress.flows import deployed

    for name, places in BREAKING.items():
        sweep.run(name, places=places)
    for name in BAD_INPUT:
        sweep.run(name, bad_input.CASES[name][0])
    for name, options in (
        ("timed out", {"timeout_seconds": 3600}),
        ("on a pool of processes", {"task_runner": _pool()}),
    ):
        agency = sweep.agency(name)
        scan = _slow if name == "timed out" else _noting_process(agency)
        flow = deployed.release.with_options(**options)
        own = {"statpress.flows.deployed.open_context": _without_quality_process, SCAN: scan}
        with replaced(own), pytest.MonkeyPatch.context() as patch:
            patch.setenv("STATPRESS_HOME", str(agency.home.root))
            sweep.keep(name, agency, lambda flow=flow, a=agency: flow(config=str(a.config)))

    agency = sweep.agency("invalid parameter")
    given = {"records": [CANARY, RARE]}
    sweep.keep("invalid parameter", agency, lambda: deployed.release(config=given))
    agency = sweep.agency("invalid parameter by the API")
    sweep.keep("invalid parameter by the API", agency, lambda: _by_api(sweep.server, given))

    _quality_fails(sweep, inspector)
    _processes_end(sweep)


def _run_from_database(sweep: Sweep, patch: pytest.MonkeyPatch, server: Server) -> None:
    """Records of a PostgreSQL: read, behind a view that fails on one, and with a wrong password."""
    variable = "STATPRESS_TEST_SOURCE"
    database, role = server.database(), server.keeper(PASSWORD)
    here = database.split("/")[3].split("?")[0]
    known = "region IS NULL OR region IN ('north', 'south')"
    age = f"CASE WHEN {known} THEN age ELSE CAST(region AS bigint) END AS age"

    def read_from(table: str) -> Callable[[Any], None]:
        def change(agency: Any) -> None:
            kept = pq.read_table(agency.source)
            server.run("DROP VIEW IF EXISTS failing", database=here)
            write_table(database, "people", kept)
            view = f"CREATE VIEW failing AS SELECT region, {age}, pay, born FROM people"
            server.run(view, f"GRANT SELECT ON people, failing TO {role}", database=here)
            given = f"{{engine: postgres, table: public.{table}, credentials: {{env: {variable}}}}}"
            agency.replace("source: {path: data/source.parquet}", f"source: {given}")

        return change

    patch.setenv(variable, server.url(here, user=role, password=PASSWORD))
    sweep.run("from PostgreSQL", read_from("people"))
    sweep.run("PostgreSQL fails on a value", read_from("failing"))
    server.run(f"ALTER ROLE {role} PASSWORD 'another'")
    sweep.run("PostgreSQL refuses the password", read_from("people"))
    patch.delenv(variable)
    server.run(f"DROP DATABASE {here}", f"DROP ROLE {role}")


def _run_elsewhere(sweep: Sweep, patch: pytest.MonkeyPatch) -> None:
    """Products drawn by other processes and Dask workers: in order, bursting, or broken."""
    patch.setenv("PYTHONPATH", str(Path(outbursts.__file__).parent), prepend=os.pathsep)
    with DaskCluster(sweep.folder / "dask") as cluster:
        dask = Parallel(dask=cluster.add().address)
        with recorded(sweep.said):
            sweep.run_parallel("on a Dask worker", dask)
            with replaced({"statpress.tasks.release.steps.save_counted": outburst}):
                sweep.run_parallel("in hand over counts", dask)
            with patch.context() as broken:
                put_in_place(broken, Bursting, sweep.folder)
                sweep.run_parallel("in a Dask worker", dask)
                sweep.run_parallel("in a worker process", Parallel(2))
        drawing = "statpress.tasks.orchestration.drawing_workers.drawing.perform"
        with recorded(sweep.said_by_twin), replaced({drawing: unsealed}):
            sweep.run_parallel("broken twin on Dask", dask)
        sweep.shown = cluster.told()
        cluster.keep(TWIN)


def _pool() -> Any:
    from prefect.task_runners import ProcessPoolTaskRunner

    return ProcessPoolTaskRunner(max_workers=1)


@contextlib.contextmanager
def _without_quality_process(home: Any, run_id: str) -> Iterator[Any]:
    """The context of a deployed flow, but for the process that takes seconds to start."""
    from statpress.flows.runner import plain_context

    context = plain_context(home, run_id=run_id)
    context.inspector = InProcess(context.log)
    yield context


def _noting_process(agency: Any) -> Callable[..., Any]:
    """Count as usual, and note in which process."""

    def noting(*arguments: Any, **named: Any) -> Any:
        (agency.folder / "counted-by").write_text(str(os.getpid()))
        return _HONEST_SCAN(*arguments, **named)

    return noting


def _by_api(server: dict[str, str], given: dict[str, Any]) -> None:
    """Ask the server for a run of a deployed flow, with a table for a path."""
    from prefect.utilities.callables import parameter_schema

    from statpress.flows.deployed import release

    flow = ask(server, "/flows/", {"name": "statpress-release"})["id"]
    schema = parameter_schema(release).model_dump_for_openapi()
    deployed = {"name": "canary", "flow_id": flow, "enforce_parameter_schema": True}
    made = ask(server, "/deployments/", deployed | {"parameter_openapi_schema": schema})["id"]
    ask(server, f"/deployments/{made}/create_flow_run", {"parameters": {"config": given}})


def _quality_fails(sweep: Sweep, inspector: Inspector) -> None:
    """A private count is refused, then passes where it is no matter, then the process breaks."""
    agency = sweep.agency("a gate fails")
    columns = {"region": pa.repeat("north", COUNT), "age": np.zeros(COUNT, np.int64)}
    columns |= {"pay": np.zeros(COUNT), "born": np.zeros(COUNT, "datetime64[D]")}
    agency.write_source(pa.table(columns))
    agency.inspector = inspector
    sweep.keep("a gate fails", agency, lambda: agency.run(orchestrated=True))

    hidden = sweep.agency("a private size")
    shutil.copyfile(agency.source, hidden.source)
    hidden.inspector = inspector
    hidden.replace("adjacency: replace_one", "adjacency: add_remove")
    hidden.replace("n_records: 400", "n_records: {about: 2000000}")
    hidden.replace("kind: microdata, mechanism: bootstrap", "kind: table, mechanism: gaussian")
    hidden.replace("epsilon: 1.0", "epsilon: 1.0e-4")  # so that noise never happens to be 0
    hidden.replace("dataset: testdata", "dataset: hidden")
    hidden.register(dataset="hidden", adjacency="add_remove", n_records=None)
    sweep.keep("a private size", hidden, lambda: hidden.run(orchestrated=True))

    agency = sweep.agency("quality process breaks")
    agency.inspector = inspector
    wrong = {"figure": CANARY, "least": RARE}  # there is no such column as 'observed'
    broken = {
        "statpress.tasks.release.quality_gates.Between.as_row": lambda self, observed: wrong,
        # Where it is started again.
        "statpress.tasks.private_zone.workers.sys.executable": "/bin/false",
    }
    with replaced(broken):
        sweep.keep("quality process breaks", agency, lambda: agency.run(orchestrated=True))


def _processes_end(sweep: Sweep) -> None:
    """Runs in processes of their own: killed, terminated, out of memory; watched meanwhile."""
    names = ("killed", "terminated", "out of memory")  # at once, so each with its own dataset
    agencies = {name: sweep.agency(name, name.replace(" ", "-")) for name in names}
    steps = {"killed": "check_counts", "terminated": "check_counts", "out of memory": "check_input"}
    victims = {
        name: press(
            agency, name, hold=steps[name], environment={k: v for k, v in sweep.server.items()
            if k.startswith("PREFECT_") or k == "TMPDIR"},
            before=short_of_memory if name == "out of memory" else None,
        )
        for name, agency in agencies.items()
    }  # fmt: skip
    with all_ended(*victims.values()):
        for victim in victims.values():
            victim.held()
        codes = {
            "killed": victims["killed"].end(signal.SIGKILL),
            "terminated": victims["terminated"].end(signal.SIGTERM),
            "out of memory": victims["out of memory"].go().end(),
        }
    for name, victim in victims.items():
        print(victim.said)
        facts = {"code": codes[name], "said": victim.said}
        sweep.ended[name] = Ended(agencies[name], None, facts)


def _keeps_result(value: str) -> None:
    """What a flow would leave whose result is kept."""
    from prefect import flow

    flow(lambda: value, name="twin", persist_result=True)()


def _settle(sweep: Sweep) -> None:
    """Wait until the server has stored what it was sent."""
    from prefect import flow
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    @flow(name="last", flow_run_name="the-last-of-all", log_prints=False)
    def last() -> None:
        return None

    last()
    APILogWorker.drain_all()
    EventsWorker.drain_all()
    wait_for_event(sweep.server_home, "the-last-of-all")


EXPECTED: dict[str, type[BaseException] | None] = {
    "nothing fails": None,
    "the curator's report fails": None,
    **{f"in {name}": InternalError for name in (*IN_STEPS, "the flow body")},
    **{name: bad_input.CASES[name][1] for name in BAD_INPUT},
    "interrupted": KeyboardInterrupt,
    "mis-called": InternalError,
    "timed out": StatpressError,
    "on a pool of processes": None,
    "from PostgreSQL": None,
    "PostgreSQL fails on a value": SourceUnreadableError,
    "PostgreSQL refuses the password": SourceAccessError,
    "on a Dask worker": None,
    "in a Dask worker": InternalError,
    "in a worker process": InternalError,
    "in hand over counts": InternalError,
    "invalid parameter": ConfigError,
    "invalid parameter by the API": urllib.error.HTTPError,
    "a gate fails": QualityGateError,
    "a private size": None,
    "quality process breaks": InternalError,
}


def test_what_a_run_says(sweep: Sweep) -> None:
    """Its error is the one of its kind, and neither it nor its traceback holds a value."""
    for kind, expected in sweep.expected.items():
        error = sweep.ended[kind].error
        assert (type(error) if error else None) is expected or (
            expected is StatpressError and isinstance(error, StatpressError)
        ), (kind, error)
        if error is not None:
            told = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
            assert PRIVATE.in_text(told) == [], kind


@pytest.mark.parametrize("place", ["Dask worker", "worker process"])
def test_the_curator_learns_what_a_worker_said(sweep: Sweep, place: str) -> None:
    told = sweep.ended[f"in a {place}"].curator
    assert "warning: RuntimeWarning: Zyx" in told
    assert "in a thread" in told and "in a destructor" in told and "KeyError" in told
    assert told.count(f"value {CANARY}") == 3


def test_nothing_private_is_in_what_dask_keeps_and_shows(sweep: Sweep) -> None:
    """Logs of scheduler and workers, and the folder where every result was put on disk."""
    folder = sweep.folder / "dask"
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    assert "draw" in logs and "worker" in sweep.shown
    assert PRIVATE.in_files(folder) == [] and PRIVATE.in_text(sweep.shown) == []
    hits = [Path(hit.split(": ")[0]) for hit in OF_TWINS.in_files(folder)]
    found = {path.relative_to(folder).parts[0] for path in hits}
    assert {"worker-1.log", "worker-1"} <= found  # its log, and what it put on disk


def test_the_curator_learns_all_of_it(sweep: Sweep) -> None:
    """What was closed off was said: every way of saying it arrived in the curator log."""
    steps = [f"in {step}" for step in IN_STEPS if f"in {step}" in sweep.expected]
    assert len(steps) >= 4
    for step in steps:
        told = sweep.ended[step].curator
        assert "warning: RuntimeWarning: Zyx" in told, step
        assert "divide by zero" in told, step
        assert told.count(f"value {CANARY}") == 5, step
        assert "a record of pyarrow that cannot be put together" in told, step
        assert told.count(CANARY) >= 5 + 1 + 2 + 2 + 1 + 2 + 2, step  # also printed, and in errors
        assert "in a thread" in told and "in a destructor" in told and "KeyError" in told, step


def test_the_curators_page_holds_what_nothing_else_does(sweep: Sweep) -> None:
    """It is there for its owner only, with the canary; where it fails the bundle is there."""
    agency = sweep.ended["nothing fails"].agency
    (page,) = (agency.home.root / "curator").glob("*.html")
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.parent.stat().st_mode & 0o777 == 0o700
    assert CANARY in page.read_text()
    failed = sweep.ended["the curator's report fails"]
    assert list((failed.agency.home.root / "curator").glob("*.html")) == []
    assert (failed.agency.releases / "first" / "manifest.json").exists()
    assert f"value {CANARY}" in failed.curator and "KeyError" in failed.curator


def test_nothing_private_is_in_the_servers_database(sweep: Sweep) -> None:
    hits, rows = PRIVATE.in_database(sweep.server_home)
    assert hits == []
    assert len(rows) > 30
    runs = len(sweep.expected) - 2  # two calls were refused before there was a run
    assert rows["flow_run"] >= runs and rows["task_run"] > 5 * runs
    assert min(rows[name] for name in ("log", "events", "flow_run_state", "task_run_state")) > runs


def test_nothing_private_is_in_what_the_server_tells(sweep: Sweep) -> None:
    assert not any(PRIVATE.in_api(sweep.server).values())


def test_nothing_private_is_on_disk(sweep: Sweep) -> None:
    """Logs, temporary files, the orchestrator's folders, bundles, and what was printed."""
    folders = sweep.folder, Path(sweep.server["PREFECT_HOME"])
    server = Path(sweep.server["PREFECT_HOME"])
    assert PRIVATE.in_files(*folders, server, but=sweep.private) == []
    assert "draw records" in (
        sweep.said.read_text() + str(ask(sweep.server, "/task_runs/filter", {}))
    )
    assert PRIVATE.in_results(sweep.folder / "results") == []  # public errors of failed runs
    assert list((sweep.folder / "tmp").iterdir()) == []


def test_how_processes_ended(sweep: Sweep) -> None:
    codes = {name: sweep.ended[name].facts["code"] for name in ("killed", "terminated")}
    assert codes == {"killed": -signal.SIGKILL, "terminated": 130}
    assert sweep.ended["out of memory"].facts["code"] not in (0, None)
    for name in ("killed", "terminated", "out of memory"):
        agency = sweep.ended[name].agency
        kinds = [entry.kind for entry in agency.entries()]
        if name == "out of memory":  # where it ran out decides if it was while reading the source
            kinds = [kind for kind in kinds if kind != "refuse"]
        assert kinds == ["register", "look"]
        left = [path.name for path in (agency.home.root / "work").iterdir()]
        assert len(left) <= (name != "terminated")
        assert PRIVATE.in_text(sweep.ended[name].facts["said"]) == []


def test_a_run_is_charged_at_most_once_whatever_the_settings(sweep: Sweep) -> None:
    """Retries that the orchestrator is set to make do not happen."""
    for kind, ended in sweep.ended.items():
        if not kind.startswith(("ledger", "in charge")):
            charges = [e for e in ended.agency.entries() if e.kind == "charge"]
            assert len(charges) <= 1, kind


def test_steps_stay_in_the_runs_own_process(sweep: Sweep) -> None:
    ended = sweep.ended["on a pool of processes"]
    assert (ended.agency.folder / "counted-by").read_text() == str(os.getpid())
    assert (ended.agency.releases / "first" / "manifest.json").exists()


@pytest.mark.parametrize("channel", ["task_run_state", "log", "events"])
def test_the_broken_twin_is_found_in_the_database(sweep: Sweep, channel: str) -> None:
    hits, _ = OF_TWINS.in_database(sweep.server_home)
    assert [hit for hit in hits if hit.startswith(f"{channel}.")]


@pytest.mark.parametrize("channel", ["task_runs", "logs"])
def test_the_broken_twin_is_found_in_what_the_server_tells(sweep: Sweep, channel: str) -> None:
    assert OF_TWINS.in_api(sweep.server)[channel]


def test_the_broken_twin_is_found_elsewhere(sweep: Sweep, tmp_path: Path) -> None:
    assert OF_TWINS.in_files(sweep.folder, but=sweep.private)
    assert sweep.said_by_twin.read_text().count(TWIN) >= 4
    assert OF_TWINS.in_results(sweep.folder / "results")
    named = tmp_path / f"{TWIN}.tmp"
    named.touch()
    assert OF_TWINS.in_files(tmp_path)
    command = [sys.executable, "-c", "input()"]
    for arguments, more in (([TWIN], {}), ([], {"TWIN": TWIN})):
        process = subprocess.Popen(
            [*command, *arguments], env=os.environ | more, stdin=subprocess.PIPE
        )
        with Watch(process.pid) as shown:
            assert shown.looked.wait(600)
            process.communicate(b"\n")
        assert any(OF_TWINS.in_text(text) for text in shown.seen.values())


def test_numbers_are_found_with_and_without_separators() -> None:
    assert len(PRIVATE.in_text(f"48151623.42 48_151_623 n={COUNT}, 1{COUNT}1")) == 3
