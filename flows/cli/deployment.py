"""The command that sets up deployments: parses, calls, returns the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flows.cli.options import Json
from flows.cli.result import Result


def deploy(file: Path = Path("deploy/prefect.yaml"), *, json: Json = False) -> Result:
    """Put work pools and deployments on the Prefect server that PREFECT_API_URL names.

    A pool that exists stays as it is; applying a file again changes nothing.

    Args:
        file: Deployments as 'prefect deploy' reads them, and the pools they need.
    """
    from dataclasses import asdict

    from tasks.orchestration.deployment import apply

    applied = apply(file)

    def report() -> Iterator[str]:
        yield f"Server {applied.api}"
        for kind, found in (("work pool", applied.pools), ("deployment", applied.deployments)):
            for name, change in found.items():
                yield f"  {kind} {name}: {change}"

    return Result(json=json, facts=lambda: asdict(applied), report=report)
