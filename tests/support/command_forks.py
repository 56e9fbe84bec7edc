"""The command line in forks of a process that has imported everything, which cost a second less.

Their gates are in their own process, which spares the seconds that Great Expectations takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Never

import victims

PRESSING = ("demo", "run", "rerelease")
"""Commands with gates."""


def forked(
    *arguments: str, cwd: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """What the command says and its exit code, in a fork of this process."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _become(arguments, dict(environment), cwd, Path(folder))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return _said(arguments, code, Path(folder))


def forked_with_prefect(
    *arguments: str, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The same in a fork of the server of processes, where Prefect has started no thread."""
    victims.warm()
    with tempfile.TemporaryDirectory() as folder:
        given = (arguments, dict(environment), cwd, Path(folder))
        process = victims.FORKS.Process(target=_become, args=given)
        process.start()
        process.join(victims.PATIENCE)
        assert process.exitcode is not None, f"{arguments} does not end"
        return _said(arguments, process.exitcode, Path(folder))


def _said(arguments: tuple[str, ...], code: int, folder: Path) -> subprocess.CompletedProcess[str]:
    out, err = ((folder / name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(arguments, code, out, err)


def _become(
    arguments: tuple[str, ...], environment: dict[str, str], cwd: Path, folder: Path
) -> Never:
    """Do in this process what the console script does, and end."""
    code: object = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.environ.clear()
        os.environ |= environment
        os.chdir(cwd)
        if "prefect.context" in sys.modules:
            sys.modules["prefect.context"].refresh_global_settings_context()
        if arguments[0] in PRESSING:
            import flows.runner

            flows.runner.Inspector = victims.InProcess
        from flows.cli import main

        sys.argv = ["statpress", *arguments]
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
