"""Releases in processes of their own, held at a step until the test has done its worst.

They are forked from a server of processes that has imported everything and started no
thread, so that each costs a second and not ten.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.release.quality_gates import Inspector

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["victims_ready"])
"""Processes forked from a server, which imports everything first (``warm``)."""
PATIENCE = 600.0
"""Seconds for what takes one on an idle machine."""


class InProcess(Inspector):
    """The gates without their own process, which takes seconds to start."""

    def __init__(self, log: Any) -> None:
        self.log = log

    def _stop(self) -> None:
        """Nothing was started."""

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        rows = request["rows"]
        success = all(row["least"] <= row["observed"] <= row["most"] for row in rows)
        return {"success": success, "judged": len(rows)}


def warm() -> None:
    """Have the server of processes import everything, before anybody waits for it."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), before or ""])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@dataclass(frozen=True)
class Order:
    """What a victim is to do.

    Attributes:
        config: The release config.
        home: Root of the home.
        folder: Where the victim and the test leave signs for one another.
        address: Of the ledger, if not in the home.
        run_id: Of the run, and of the flow run, if it is to be a given one.
        period: Of the config's series, if it has one.
        hold: Step before which it waits for the test.
        before: Called at that step, after the wait.
        fuse: Seconds that it lives once it goes to charge the ledger, at most.
        environment: Changes of it; with PREFECT_API_URL the run is orchestrated.
    """

    config: str
    home: str
    folder: str
    address: str | None = None
    run_id: str | None = None
    period: str | None = None
    hold: str | None = None
    before: Callable[[], None] | None = None
    fuse: float | None = None
    environment: dict[str, str] = field(default_factory=dict)


class Victim:
    """A release at work in another process."""

    def __init__(self, order: Order) -> None:
        self.folder = Path(order.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        warm()
        self.process: BaseProcess = FORKS.Process(target=_live, args=(order,), daemon=True)
        self.process.start()

    @property
    def said(self) -> str:
        """All it printed so far."""
        return (self.folder / "said").read_text(errors="backslashreplace")

    def held(self) -> Victim:
        """Wait until it waits."""
        until = time.monotonic() + PATIENCE
        while not (self.folder / "reached").exists():
            assert self.process.is_alive(), (self.process.exitcode, self.said)
            assert time.monotonic() < until, self.said
            time.sleep(0.01)
        return self

    def go(self) -> Victim:
        """Let it go on."""
        (self.folder / "go").touch()
        return self

    def end(self, number: int | None = None) -> int:
        """Its exit code, or minus the signal that it died of; a signal may be sent first."""
        if number is not None:
            assert self.process.pid is not None
            os.kill(self.process.pid, number)
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "it does not end:\n" + self.said
        return self.process.exitcode


def press(agency: Any, name: str, **order: Any) -> Victim:
    """Start a victim on an agency's config."""
    places = {"config": str(agency.config), "home": str(agency.home.root)}
    return Victim(Order(**{**places, **order}, folder=str(agency.folder / "signs" / name)))


def _live(order: Order) -> None:
    """The life of a victim."""
    folder = Path(order.folder)
    said = os.open(folder / "said", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    os.environ.update(order.environment)
    with contextlib.suppress(ValueError):
        from statpress.flows.cli import _interrupt, _interrupt_again

        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)
        sys.unraisablehook = _interrupt_again
    tell = functools.partial(_tell, os.dup(said))
    if order.hold:
        _hold(order.hold, folder, order.before)
    if order.fuse is not None:
        _light(order.fuse)
    code = 1
    try:
        code = _release(order, tell)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _tell(descriptor: int, text: str) -> None:
    """Say it past the run, which closes standard output."""
    os.write(descriptor, f"TOLD {text}\n".encode())


class _Listener(Silent):
    """Hears what a person is told."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def notify(self, text: str) -> None:
        self._tell(text)


def _release(order: Order, tell: Callable[[str], None]) -> int:
    """Press the release; the exit code that the command line would give."""
    from statpress.configs.order import Order as Ordered
    from statpress.flows.runner import run_release
    from statpress.mechanisms.errors import StatpressError
    from statpress.tasks.private_zone.folders import Home
    from statpress.tasks.private_zone.guards import CuratorLog, new_run_id, silence_core_dumps
    from statpress.tasks.private_zone.run_context import RunContext

    orchestrated = "PREFECT_API_URL" in order.environment
    if orchestrated:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()
    silence_core_dumps()
    home = Home(Path(order.home), order.address)
    log = CuratorLog(home.folder("curator"), order.run_id or new_run_id())
    context = RunContext(
        home=home,
        log=log,
        inspector=InProcess(log),
        orchestrated=orchestrated,
        listener=_Listener(tell),
    )
    try:
        ordered = Ordered(Path(order.config))
        if order.period is not None:
            ordered = ordered.at_period(order.period)
        said, code = f"PUBLISHED {run_release(context, ordered).bundle}", 0
    except StatpressError as error:
        said, code = f"ERROR {error}", error.exit_code
    except KeyboardInterrupt:
        said, code = "INTERRUPTED", 130
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    print(said)
    return code


def _hold(step: str, folder: Path, before: Callable[[], None] | None) -> None:
    """Have the flow wait before a step."""
    import statpress.flows.release

    honest = getattr(statpress.flows.release, step)

    def held(*arguments: Any, **named: Any) -> Any:
        (folder / "reached").touch()
        while not (folder / "go").exists():
            time.sleep(0.005)
        if before is not None:
            before()
        return honest(*arguments, **named)

    setattr(statpress.flows.release, step, held)


def _light(fuse: float) -> None:
    """Have the process ended by an alarm, in the midst of whatever it does."""
    import statpress.flows.release

    honest = statpress.flows.release.charge_ledger

    def lit(*arguments: Any, **named: Any) -> Any:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it as SIGKILL would
        signal.setitimer(signal.ITIMER_REAL, fuse)
        return honest(*arguments, **named)

    statpress.flows.release.charge_ledger = lit


def short_of_disk() -> None:
    """From here on no file of this process grows past some bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY))


def short_of_memory() -> None:
    """From here on this process gets no more memory, for real."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, resource.RLIM_INFINITY))


@contextlib.contextmanager
def all_ended(*victims: Victim) -> Iterator[None]:
    """See that none outlives the test."""
    try:
        yield
    finally:
        for victim in victims:
            if victim.process.is_alive():
                victim.process.kill()
