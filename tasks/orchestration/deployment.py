"""Putting work pools and deployments on a Prefect server, from one ``prefect.yaml``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from statpress.mechanisms.errors import DeploymentError
from statpress.tasks.orchestration.server import QUIET_DEFAULTS

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


T = TypeVar("T")

_COMPARED = {
    "name", "description", "entrypoint", "parameters", "parameter_openapi_schema",
    "enforce_parameter_schema", "paused", "tags", "work_pool_name", "work_queue_name",
    "job_variables", "pull_steps", "concurrency_options",
}  # fmt: skip


_PATIENCE = {"PREFECT_CLIENT_MAX_RETRIES": "2"}
_LONGEST = 400


@dataclass(frozen=True)
class Pool:
    """A work pool that a file asks for.

    Attributes:
        name: Its name.
        type: The kind of worker that serves it, such as ``process`` or ``docker``.
        template: Its base job template, a JSON file beside the file; by default Prefect's.
    """

    name: str
    type: str
    template: str | None = None


@dataclass(frozen=True)
class Applied:
    """What a server has after a file was applied to it.

    Attributes:
        api: The server's address, without any password.
        pools: What became of each work pool: ``created`` or ``present``.
        deployments: What became of each deployment: ``created``, ``updated`` or
            ``unchanged``; ``not in the file`` for others on the same pools.
    """

    api: str
    pools: dict[str, str]
    deployments: dict[str, str]


def apply(file: Path) -> Applied:
    """Create missing work pools and put every deployment of a file on the server.

    Args:
        file: A ``prefect.yaml``; ``definitions.work_pools`` lists the pools it needs.

    Raises:
        DeploymentError: There is no file, no server or no access to it.
    """
    pools, names = _read(file)
    for name, value in (QUIET_DEFAULTS | _PATIENCE).items():
        os.environ.setdefault(name, value)
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    address = get_current_settings().api.url
    if not address:
        raise DeploymentError(
            "No Prefect server is named.",
            where="PREFECT_API_URL",
            next_step="Set it to the server's address, such as http://127.0.0.1:4200/api.",
        )
    where = _without_password(address)
    with get_client(sync_client=True) as client:
        made = _on_server(where, lambda: _make_pools(client, pools, file.parent))
        before = _on_server(where, lambda: _deployments(client, made))
        _deploy(file)
        after = _on_server(where, lambda: _deployments(client, made))
    became = {}
    for key, facts in after.items():
        if facts["name"] in names:
            known = "unchanged" if before.get(key) == facts else "updated"
            became[facts["name"]] = known if key in before else "created"
        else:
            became[facts["name"]] = "not in the file"
    return Applied(where, made, dict(sorted(became.items())))


def _read(file: Path) -> tuple[list[Pool], set[str]]:
    """The work pools and the names of the deployments of a file."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    pools: list[Pool] = []
    names: list[str] = []
    flaw = ""
    try:
        found = YAML(typ="safe").load(file)
        pools = [
            Pool(str(each["name"]), str(each["type"]), each.get("base_job_template"))
            for each in found["definitions"]["work_pools"]
        ]
        names = [str(each["name"]) for each in found["deployments"]]
    except OSError as error:
        flaw = f"The file cannot be read ({error.strerror})."
    except (YAMLError, AttributeError, LookupError, TypeError):
        flaw = "The file is not YAML, or lacks 'deployments' or 'definitions: work_pools'."
    if not flaw and len(set(names)) < len(names):
        flaw = "Two deployments have one name."
    if flaw:
        raise DeploymentError(flaw, where=str(file), next_step="Start from deploy/prefect.yaml.")
    return pools, set(names)


def _on_server(where: str, ask: Callable[[], T]) -> T:
    """What the server answers.

    Raises:
        DeploymentError: It does not answer, or refuses.
    """
    import httpx

    try:
        return ask()
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
    except httpx.RequestError:
        status = 0
    if status in (401, 403):
        raise DeploymentError(
            "The server refuses these credentials.",
            where=where,
            next_step="Set PREFECT_API_AUTH_STRING to the user:password of the server.",
        )
    raise DeploymentError(
        f"The server answered with HTTP {status}." if status else "The server does not answer.",
        where=where,
    )


def _make_pools(client: SyncPrefectClient, pools: list[Pool], folder: Path) -> dict[str, str]:
    """Create the pools that are missing; one that exists stays as it is."""
    from prefect.client.schemas.actions import WorkPoolCreate

    known = {pool.name: pool.type for pool in client.read_work_pools(limit=200)}
    for pool in pools:
        if known.get(pool.name, pool.type) != pool.type:
            raise DeploymentError(
                f"The server has a work pool of this name and of type {known[pool.name]!r}.",
                where=f"work pool {pool.name!r}",
                next_step="Give the pool another name, or delete the other one.",
            )
        if pool.name not in known:
            template = _template(client, pool, folder)
            made = WorkPoolCreate(name=pool.name, type=pool.type, base_job_template=template)
            client.create_work_pool(made)
    return {pool.name: "present" if pool.name in known else "created" for pool in pools}


def _template(client: SyncPrefectClient, pool: Pool, folder: Path) -> dict[str, Any]:
    """The base job template of a pool: its own, or Prefect's for the type."""
    if pool.template is not None:
        try:
            own: dict[str, Any] = json.loads((folder / pool.template).read_text())
            return own
        except (OSError, ValueError) as error:
            flaw = type(error).__name__
        raise DeploymentError(
            f"The base job template cannot be read ({flaw}).", where=str(folder / pool.template)
        )
    for collection in client.read_worker_metadata().values():
        if pool.type in collection:
            found: dict[str, Any] = collection[pool.type]["default_base_job_configuration"]
            return found
    raise DeploymentError(
        f"Prefect has no work pools of type {pool.type!r}.",
        where=f"work pool {pool.name!r}",
        next_step="'prefect work-pool create --help' lists the types.",
    )


def _deployments(client: SyncPrefectClient, pools: Iterable[str]) -> dict[UUID, dict[str, Any]]:
    """What the server knows of the deployments on these pools, by their ids."""
    from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName

    ours = WorkPoolFilter(name=WorkPoolFilterName(any_=list(pools)))
    return {each.id: _facts(each) for each in client.read_deployments(work_pool_filter=ours)}


def _facts(deployment: DeploymentResponse) -> dict[str, Any]:
    """Those fields of a deployment that the file decides."""
    facts = deployment.model_dump(mode="json", include=_COMPARED)
    limit = deployment.global_concurrency_limit
    facts["concurrency_limit"] = limit.limit if limit else None
    facts["schedules"] = [
        each.model_dump(mode="json", include={"schedule", "active", "parameters"})
        for each in deployment.schedules
    ]
    return facts


def _deploy(file: Path) -> None:
    """Let Prefect's own command put the deployments on the server.

    Raises:
        DeploymentError: It refused; with the end of what it said.
    """
    # -P: a folder named flows where the user stands is not ours.
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all"]
    command += ["--prefect-file", str(file)]
    done = subprocess.run(  # noqa: S603 (our interpreter, no shell)
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = " ".join(done.stdout.split())
        raise DeploymentError(f"Prefect refused: …{said[-_LONGEST:]}", where=str(file))


def _without_password(address: str) -> str:
    """An address without the user and password it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
