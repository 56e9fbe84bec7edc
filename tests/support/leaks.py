"""The search for private values: in a server's database, in files, in what processes show."""

from __future__ import annotations

import base64
import contextlib
import re
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from prefect_server import ask
from sqlalchemy import create_engine, inspect, make_url

CHANNELS = {
    "flow_runs": "/flow_runs/filter",
    "task_runs": "/task_runs/filter",
    "logs": "/logs/filter",
}


class Search:
    """A search for some values, as text or as the bytes of it.

    Args:
        words: Texts that occur nowhere but in the source.
        doubles: Numbers that do, as eight bytes in either order.
        integers: The same; also as digits with no letter, digit or point beside them.
    """

    def __init__(
        self,
        words: tuple[str, ...],
        doubles: tuple[float, ...] = (),
        integers: tuple[int, ...] = (),
    ) -> None:
        alternatives = [re.escape(word) for word in words]
        alternatives += [rf"(?<![0-9A-Za-z.]){number}(?![0-9A-Za-z])" for number in integers]
        self._text = re.compile("|".join(alternatives))
        binary = [re.escape(each) for each in _as_stored(doubles, integers)]
        self._bytes = re.compile(b"|".join([each.encode() for each in alternatives] + binary))

    def in_text(self, text: str) -> list[str]:
        return [
            text[max(0, m.start() - 60) : m.end() + 60].replace("\n", " ")
            for m in self._text.finditer(text)
        ]

    def in_results(self, folder: Path) -> list[str]:
        """What the orchestrator stored of results, which are pickled and in base 64."""
        hits = []
        for path in folder.iterdir():
            stored = base64.decodebytes(path.read_bytes())
            hits += [f"{path}: {value!r}" for value in self._bytes.findall(stored)]
        return hits

    def in_files(self, *folders: Path, but: tuple[Path, ...] = ()) -> list[str]:
        """Files below the folders that hold one, or whose name does."""
        hits = []
        for path in {path for folder in folders for path in folder.rglob("*")}:
            if any(path == b or b in path.parents for b in but):
                continue
            found = self._text.findall(path.name)
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found += self._bytes.findall(path.read_bytes())
            hits += [f"{path}: {value!r}" for value in found]
        return hits

    def in_database(self, server: Path) -> tuple[list[str], dict[str, int]]:
        """Every column of every row of every table of the server: hits, and rows by table."""
        hits: list[str] = []
        rows: dict[str, int] = {}
        engine = create_engine(database_of(server))
        try:
            with engine.connect() as connection:
                for table in inspect(engine).get_table_names():
                    found = connection.exec_driver_sql(f'SELECT * FROM "{table}"')
                    columns, values = tuple(found.keys()), found.all()
                    rows[table] = len(values)
                    for row in values:
                        for column, value in zip(columns, row, strict=True):
                            raw = value if isinstance(value, bytes) else str(value).encode()
                            if self._bytes.search(raw):
                                hits.append(f"{table}.{column}: {raw[:300]!r}")
        finally:
            engine.dispose()
        return hits, rows

    def in_api(self, environment: dict[str, str]) -> dict[str, list[str]]:
        """What the server tells of all runs, by channel."""
        return {
            channel: [hit for item in _pages(environment, path) for hit in self.in_text(str(item))]
            for channel, path in CHANNELS.items()
        }


def database_of(server: Path) -> str:
    """The database of the server of a home, as its process was told, by a driver that waits."""
    place = str(server)
    given = f"sqlite:///{place}/prefect.db"
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            told = process.environ()
            if told.get("PREFECT_HOME") == place and "server" in process.cmdline():
                given = told.get("PREFECT_SERVER_DATABASE_CONNECTION_URL", given)
    kind = make_url(given).get_backend_name()
    chosen = make_url(given).set(drivername="postgresql+psycopg" if kind != "sqlite" else kind)
    return chosen.render_as_string(hide_password=False)


def wait_for_event(server: Path, text: str) -> None:
    """Wait until the server has stored an event that names this, and those before it."""
    engine = create_engine(database_of(server))
    try:
        until = time.monotonic() + 600
        while True:
            with engine.connect() as connection:
                found = connection.exec_driver_sql("SELECT resource FROM events").scalars()
                if any(text in str(resource) for resource in found):
                    return
            assert time.monotonic() < until, "the server stored no event of the last run"
            time.sleep(0.2)
    finally:
        engine.dispose()


def _pages(environment: dict[str, str], path: str) -> Iterator[Any]:
    offset = 0
    while page := ask(environment, path, {"limit": 200, "offset": offset}):
        yield from page
        offset += len(page)


def _as_stored(doubles: tuple[float, ...], integers: tuple[int, ...]) -> list[bytes]:
    """Numbers as columnar files, pickles and pages of memory hold them."""
    orders = [struct.pack(f"{order}d", number) for number in doubles for order in "<>"]
    return orders + [struct.pack(f"{order}q", number) for number in integers for order in "<>"]


class Watch:
    """Arguments and environment of a process and all its descendants, sampled meanwhile."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._stop = threading.Event()
        self.looked = threading.Event()
        """Set once all processes were looked at."""
        self._thread = threading.Thread(target=self._sample)
        self.seen: dict[int, str] = {}
        self.closed: set[int] = set()
        """Processes whose environment nobody of this user may read."""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.1):
            with contextlib.suppress(psutil.NoSuchProcess):
                first = psutil.Process(self._process)
                for process in (first, *first.children(recursive=True)):
                    self._note(process.pid)
                self.looked.set()

    def _note(self, pid: int) -> None:
        for name in ("cmdline", "environ"):
            try:
                shown = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="backslashreplace")
            except PermissionError:
                self.closed.add(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            else:
                if shown not in self.seen.get(pid, ""):
                    self.seen[pid] = self.seen.get(pid, "") + shown
