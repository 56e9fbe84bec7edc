"""Where the products of a release are drawn: in its own process, in others, on a Dask cluster.

A worker gets the run's id and the path of its home, and says a word (tasks.release.drawing).
Prefect's task runners would send it more: with every task they pickle the flow and the task
around it, in whose closures the signing key and the counts are, and all settings with the
server's password. So no Prefect task is sent: ``DaskTaskRunner`` makes the connection, and what
goes over it is the name of a function with public words. The orchestrator sees the step "draw
records" as it always does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self, TypeVar

from statpress.mechanisms.errors import DependencyError, WorkerError
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.private_zone.guards import CuratorLog, as_text
from statpress.tasks.private_zone.workers import (
    LocalProcesses,
    Parallel,
    Task,
    Workers,
    usable_processors,
)
from statpress.tasks.release import drawing
from statpress.tasks.release.runs import Run

T = TypeVar("T")

LONG = 10**6
"""So many records and noisy cells are worth the start of other processes, a second of each."""

_PATIENCE_SECONDS = 5.0


@contextmanager
def open_workers(run: Run, plan: Plan) -> Iterator[Workers | None]:
    """Start or reach the workers that the run is to have; None if it draws by itself.

    Raises:
        WorkerError: The Dask cluster cannot be reached, or has no workers.
        DependencyError: The extra ``dask`` is not installed.
    """
    parallel = run.context.parallel
    home, number = str(run.home.root.absolute()), processes_for(parallel, plan)
    if parallel.dask is not None:
        with DaskWorkers(parallel.dask, home, run.context.log) as cluster:
            yield cluster
    elif number > 1:
        module = drawing.__name__
        with LocalProcesses(number, module, (home, run.run_id), run.context.log) as processes:
            yield processes
    else:
        yield None


def processes_for(parallel: Parallel, plan: Plan) -> int:
    """How many processes of this machine draw; from the plan only, never from data."""
    most = len(plan.products)
    if parallel.processes != "auto":
        return min(parallel.processes, most)
    if sum(product.draws for product in plan.products) < LONG:
        return 1
    return min(usable_processors(), most)


class DaskWorkers:
    """The workers that a Dask cluster has when the run begins; those that come later get nothing.

    Args:
        address: Of the scheduler.
        home: Root of the run's home, at the same path for all workers.
        log: Curator log, which names the run.
    """

    def __init__(self, address: str, home: str, log: CuratorLog) -> None:
        self.place = f"Dask cluster {address}"
        self._address, self._whose, self._log = address, (home, log.run_id), log

    def __enter__(self) -> Self:
        if find_spec("prefect_dask") is None:
            raise DependencyError(
                "Dask is not installed.", next_step="Install it with: pip install 'statpress[dask]'"
            )
        from prefect_dask.task_runners import DaskTaskRunner

        untyped: Any = DaskTaskRunner
        self._runner = untyped(address=self._address).__enter__()
        try:
            self._client = self._asked(lambda: self._runner.client)
            self._names = sorted(self._asked(lambda: self._client.nthreads()))
            if not self._names:
                raise WorkerError(
                    "The cluster has no workers. Nothing was charged.",
                    where=self.place,
                    next_step="Start some with 'dask worker', then run again.",
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.__exit__(kind, error, trace)

    def everywhere(self, task: Task) -> list[str]:
        """Have each of them perform a task; what they said."""
        said = self._asked(
            lambda: self._client.run(
                drawing.perform, *self._whose, task, workers=self._names, on_error="return"
            )
        )
        return [_word(each) for each in said.values()]

    def each(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, str]]:
        """Have each task performed by one of them; what was said of which, as it is said.

        If a worker ends, Dask gives its task to another one, which says that it was claimed.
        """
        pending = self._asked(lambda: {self._given(task): n for n, task in tasks.items()})
        try:
            while pending:
                self._asked(lambda: self._wait(list(pending)))
                done = [future for future in pending if future.done()]
                if not done and not {*self._names} & {*self._asked(self._client.nthreads)}:
                    raise WorkerError("All workers ended before they were done.", where=self.place)
                for future in done:
                    yield pending.pop(future), self._asked(future.result)
        finally:
            if pending:
                with suppress(WorkerError):  # what ended the run is told
                    self._asked(lambda: self._client.cancel(list(pending), force=True))

    def _given(self, task: Task) -> Any:
        """The future of a task, which none but the known workers may perform."""
        return self._client.submit(
            drawing.perform,
            *self._whose,
            task,
            key=f"statpress-{self._whose[1]}-{'-'.join(task)}",
            workers=self._names,
            allow_other_workers=False,
            retries=0,
            pure=False,
        )

    def _wait(self, futures: list[Any]) -> None:
        """Wait until one of them is done, for some seconds."""
        import distributed

        untyped: Any = distributed
        with self._client.as_current(), suppress(untyped.TimeoutError):
            untyped.wait(futures, timeout=_PATIENCE_SECONDS, return_when="FIRST_COMPLETED")

    def _asked(self, ask: Callable[[], T]) -> T:
        """What the cluster answers."""
        try:
            return ask()
        except Exception as error:
            kind = type(error).__name__
            self._log.write(as_text(error, trace=True))
        raise WorkerError(
            f"The cluster does not answer, or lost a worker ({kind}).",
            where=self.place,
            next_step="Look at its scheduler and workers, then run again, or with --workers 1.",
        )


def _word(said: object) -> str:
    """What a worker said, or what it means that it could not."""
    if isinstance(said, str):
        return said
    return drawing.FOREIGN if isinstance(said, ImportError | AttributeError) else drawing.FAILED
