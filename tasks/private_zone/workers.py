"""Processes that do a part of a run, and the threads that each may use.

A process is told a verb and a number, and says a word. Nothing else goes to it or comes from it, by
whatever way it is reached: what it works on and what it makes lies in the run's private folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Literal, Protocol, TextIO

from statpress.mechanisms.errors import ConfigError, WorkerError
from statpress.mechanisms.parallel import using_threads
from statpress.tasks.private_zone.guards import CuratorLog, silence_core_dumps


def usable_processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


@contextmanager
def limited_threads(declared: int | None) -> Iterator[None]:
    """Let all steps inside work with so many threads; afterwards everything is as it was.

    Args:
        declared: By the config; if it is None, our own steps use as many as there are processors,
            and the libraries what they do by themselves.
    """
    if declared is None:
        with using_threads(usable_processors()):
            yield
        return
    import pyarrow
    from threadpoolctl import threadpool_limits

    before = pyarrow.cpu_count(), pyarrow.io_thread_count()
    pyarrow.set_cpu_count(declared)
    pyarrow.set_io_thread_count(declared)
    try:
        with threadpool_limits(declared), using_threads(declared):
            yield
    finally:
        pyarrow.set_cpu_count(before[0])
        pyarrow.set_io_thread_count(before[1])


Task = tuple[str, str]
"""A verb, and what it is about; public."""

WORKERS, DASK = "STATPRESS_WORKERS", "STATPRESS_DASK"
WITH_PARENT = "--with-parent"
"""Last argument of a process whose parent's main thread started it."""

_PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Parallel:
    """In which processes the products of a release are drawn; decides nothing of what is drawn.

    Attributes:
        processes: How many on this machine; ``auto`` chooses by the plan.
        dask: Address of a Dask scheduler, whose workers do it instead.
    """

    processes: int | Literal["auto"] = 1
    dask: str | None = None

    @classmethod
    def of(
        cls, environment: Mapping[str, str], workers: str | None = None, dask: str | None = None
    ) -> Parallel:
        """What options say, or else the environment."""
        if workers is None and dask is None:
            workers, dask = environment.get(WORKERS) or None, environment.get(DASK) or None
        if workers is not None and dask is not None:
            raise ConfigError(
                "Products are drawn by processes of this machine or by a Dask cluster.",
                where=f"--workers and --dask, or {WORKERS} and {DASK}",
                next_step="Give one of the two.",
            )
        if workers is None or workers == "auto":
            return cls("auto" if workers else 1, dask)
        number = int(workers) if workers.isascii() and workers.isdigit() else 0
        if not 1 <= number <= 1024:
            raise ConfigError(
                "This is neither a number of processes nor 'auto'.",
                where=f"--workers or {WORKERS}",
                next_step="Give a whole number from 1 on, as many as there are cores.",
            )
        return cls(number)


class Workers(Protocol):
    """Processes that perform tasks.

    Attributes:
        place: Where they are, for messages.
    """

    place: str

    def everywhere(self, task: Task) -> list[str]:
        """Have each worker perform a task; their answers."""
        ...

    def each(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, str]]:
        """Have each task performed by one worker; number and answer of each, as they come."""
        ...


class LocalProcesses(AbstractContextManager["LocalProcesses"]):
    """Processes of this machine, of one module; they start at once and end with the block.

    Args:
        number: How many.
        module: Of each; it serves what ``tasks_of_parent`` gives it.
        arguments: Of each; anybody on the machine may see them.
        log: Takes what they print.
    """

    place = "a process of this machine"

    def __init__(self, number: int, module: str, arguments: Sequence[str], log: CuratorLog) -> None:
        self._processes = [started(module, arguments, log) for _ in range(number)]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            ended(process)

    def everywhere(self, task: Task) -> list[str]:
        """Have each worker perform a task; their answers."""
        for process in self._processes:
            self._tell(process, task)
        return [self._heard(process) for process in self._processes]

    def each(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, str]]:
        """Have each task performed by one worker; number and answer of each, as they come."""
        waiting, idle = deque(tasks.items()), list(self._processes)
        busy: dict[IO[str], tuple[subprocess.Popen[str], int]] = {}
        while waiting or busy:
            while waiting and idle:
                (number, task), process = waiting.popleft(), idle.pop()
                self._tell(process, task)
                busy[_there(process.stdout)] = process, number
            for stream in select.select(list(busy), [], [])[0]:
                process, number = busy.pop(stream)
                word = self._heard(process)
                idle.append(process)
                yield number, word

    @staticmethod
    def _tell(process: subprocess.Popen[str], task: Task) -> None:
        with suppress(OSError):  # that it ended is heard
            _there(process.stdin).write(json.dumps(task) + "\n")
            _there(process.stdin).flush()

    @staticmethod
    def _heard(process: subprocess.Popen[str]) -> str:
        word = _there(process.stdout).readline().rstrip("\n")
        if word:
            return word
        code = process.wait()
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        raise WorkerError(f"A worker process ended {how} before it was done.")


def started(module: str, arguments: Sequence[str], log: CuratorLog) -> subprocess.Popen[str]:
    """A process of a module of ours, which serves what ``tasks_of_parent`` gives it."""
    # -P: a folder named tasks where the user stands is not ours.
    command = [sys.executable, "-P", "-m", module, *arguments]
    if threading.current_thread() is threading.main_thread():
        command.append(WITH_PARENT)
    descriptor = log.open()
    try:
        return subprocess.Popen(  # noqa: S603 (our interpreter, no shell)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            text=True,
        )
    finally:
        os.close(descriptor)


def ended(process: subprocess.Popen[str]) -> None:
    """Kill a process that holds nothing; its own exit would take a second."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            _there(pipe).close()


def _there(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def tasks_of_parent() -> tuple[Iterator[str], TextIO]:
    """In a process that a run started: the lines it is given, and where it answers.

    It ends when its run ends, also when that is killed: a thread reads standard input and ends
    the process at its end. On Linux the kernel does it at once if the run's main thread started
    the process; the signal follows the thread, so no other may ask for it. What libraries print
    goes where standard error does.
    """
    silence_core_dumps()
    if WITH_PARENT in sys.argv[1:] and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the run decides
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def watch() -> None:
        try:
            for line in sys.stdin:
                lines.put(line)
        finally:
            os._exit(0)  # it holds nothing, and may be in the middle of an import

    threading.Thread(target=watch, daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return iter(lines.get, None), answers
