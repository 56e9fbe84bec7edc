"""The command line in forks of a process that has imported everything, which cost a second less.

Their gates are in their own process, which spares the seconds that Great Expectations takes.
"""

from __future__ import annotations

import functools
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never

import victims

PRESSING = ("demo", "run", "rerelease")
"""Commands with gates."""
ENGINE = "prefect.engine"


def forked(
    *arguments: str, cwd: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """What the command says and its exit code, in a fork of this process."""
    if arguments[0] in PRESSING:
        import pressing_ready  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _become(arguments, dict(environment), cwd, Path(folder))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return _said(arguments, code, Path(folder))


def forked_with_prefect(
    *arguments: str, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The same in a fork of the server of processes, where Prefect has started no thread.

    What the command starts of Prefect's own commands is forked as well.
    """
    return _in_fork("statpress", arguments, cwd, environment)


def forked_prefect(
    *arguments: str, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What a command of Prefect says and its exit code, in a fork of the server of processes."""
    return _in_fork("prefect", arguments, cwd, environment)


def forked_engine(
    run_id: str, *, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What a process worker starts for a flow run, in a fork of the server of processes."""
    return _in_fork(ENGINE, (run_id,), cwd, {**environment, "PREFECT__FLOW_RUN_ID": run_id})


def printed_in_fork(
    function: Callable[..., object], *arguments: object, seconds: float = 900.0
) -> str:
    """What a function prints in a fork of this process, where it must succeed in so many seconds.

    What it changes there is gone with the fork, whose own forks have everything imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _call(function, arguments, Path(folder))
        until = time.monotonic() + seconds
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        said = _said((function.__name__,), os.waitstatus_to_exitcode(ended[1]), Path(folder))
    assert said.returncode == 0, said
    return said.stdout


def _call(function: Callable[..., object], arguments: tuple[object, ...], folder: Path) -> Never:
    """Call a function in this process, and end with the exit code that it asks for."""
    code: object = 1
    try:
        _speak_into(folder)
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _speak_into(folder: Path) -> None:
    """Have what this process says go to files of a folder."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    # A fork of a fork drops the first's, which must not close what the second writes to.
    sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115


def _in_fork(
    program: str, arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    victims.warm()
    with tempfile.TemporaryDirectory() as folder:
        given = (arguments, dict(environment), cwd, Path(folder), program)
        process = victims.FORKS.Process(target=_become, args=given)
        process.start()
        process.join(victims.PATIENCE)
        assert process.exitcode is not None, f"{arguments} does not end"
        return _said(arguments, process.exitcode, Path(folder))


def _said(arguments: tuple[str, ...], code: int, folder: Path) -> subprocess.CompletedProcess[str]:
    out, err = ((folder / name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(arguments, code, out, err)


def _become(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    cwd: Path,
    folder: Path,
    program: str = "statpress",
) -> Never:
    """Do in this process what the console script does, and end."""
    _call(_command, (arguments, environment, cwd, program), folder)


def _command(
    arguments: tuple[str, ...], environment: dict[str, str], cwd: Path, program: str
) -> None:
    os.environ.clear()
    os.environ |= environment
    os.chdir(cwd)
    if "prefect.context" in sys.modules:
        sys.modules["prefect.context"].refresh_global_settings_context()
    if program == ENGINE or arguments[0] in PRESSING:
        import statpress.flows.runner

        statpress.flows.runner.Inspector = victims.InProcess
    if arguments[0] == "deploy" and program == "statpress":
        subprocess.run = _run_prefect  # type: ignore[assignment]
    sys.argv = [program, *arguments]
    _main(program)()


def _main(program: str) -> Callable[[], object]:
    """What a console script calls."""
    if program == "prefect":
        from prefect.cli import app

        return app
    if program == ENGINE:
        sys.modules.pop(ENGINE, None)  # the server of processes may have imported it
        return functools.partial(runpy.run_module, ENGINE, run_name="__main__")
    from statpress.flows.cli import main

    return main


_HONEST_RUN = subprocess.run


def _run_prefect(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """``subprocess.run``, but ``python -P -m prefect`` is a fork of this process."""
    if command[1:4] != ["-P", "-m", "prefect"]:
        return _HONEST_RUN(command, **options)
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _become(tuple(command[4:]), dict(os.environ), Path.cwd(), Path(folder), "prefect")
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = _said(tuple(command), code, Path(folder))
    said.stdout += said.stderr
    return said
