"""Putting work pools and deployments on a Prefect server, from one ``prefect.yaml``.

The first version's packages were imported without ``statpress.``: a file or a stored deployment
that names one of their flows is taken to name what that flow is today.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
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


_OLD_ENTRYPOINT = re.compile(r"^flows\.(?:deployed|ledger_verification)\.(\w+)$")
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
            ``unchanged``. Of others on the same pools ``not in the file``, or ``renewed`` where
            their entrypoint was one of the first version's.
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
    content = _File.read(file)
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
        made = _on_server(where, lambda: _make_pools(client, content.pools, file.parent))
        before = _on_server(where, lambda: _deployments(client, made))
        content.deploy()
        others = {key: facts for key, facts in before.items() if facts["name"] not in content.names}
        renewed = _on_server(where, lambda: _renew_entrypoints(client, others))
        after = _on_server(where, lambda: _deployments(client, made))
    became = {}
    for key, facts in after.items():
        if facts["name"] in content.names:
            known = "unchanged" if before.get(key) == facts else "updated"
            became[facts["name"]] = known if key in before else "created"
        else:
            became[facts["name"]] = "renewed" if key in renewed else "not in the file"
    return Applied(where, made, dict(sorted(became.items())))


@dataclass(frozen=True)
class _File:
    """A ``prefect.yaml``; ``renewed`` is its content where it named an old entrypoint."""

    path: Path
    pools: list[Pool]
    names: set[str]
    renewed: dict[str, Any] | None

    @classmethod
    def read(cls, path: Path) -> _File:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        pools: list[Pool] = []
        names: list[str] = []
        content: Any = None
        flaw, old = "", False
        try:
            content = YAML(typ="safe").load(path)
            pools = [
                Pool(str(pool["name"]), str(pool["type"]), pool.get("base_job_template"))
                for pool in content["definitions"]["work_pools"]
            ]
            names = [str(deployment["name"]) for deployment in content["deployments"]]
            for deployment in content["deployments"]:
                written = deployment.get("entrypoint")
                if isinstance(written, str) and _present_entrypoint(written) != written:
                    deployment["entrypoint"], old = _present_entrypoint(written), True
        except OSError as error:
            flaw = f"The file cannot be read ({error.strerror})."
        except (YAMLError, AttributeError, LookupError, TypeError):
            flaw = "The file is not YAML, or lacks 'deployments' or 'definitions: work_pools'."
        if not flaw and len(set(names)) < len(names):
            flaw = "Two deployments have one name."
        if flaw:
            raise DeploymentError(
                flaw, where=str(path), next_step="Start from deploy/prefect.yaml."
            )
        return cls(path, pools, set(names), content if old else None)

    def deploy(self) -> None:
        """Let Prefect's own command put the deployments on the server."""
        if self.renewed is None:
            _deploy(self.path, self.path)
            return
        from ruamel.yaml import YAML

        with tempfile.TemporaryDirectory(prefix="statpress-") as folder:
            copy = Path(folder) / "prefect.yaml"
            YAML(typ="safe").dump(self.renewed, copy)
            _deploy(copy, self.path)


def _on_server(where: str, ask: Callable[[], T]) -> T:
    """What the server answers."""
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


def _present_entrypoint(entrypoint: str) -> str:
    """What an entrypoint, perhaps of the first version, is called today.

    >>> _present_entrypoint("flows.ledger_verification.verify")
    'statpress.flows.deployed.verify'
    """
    return _OLD_ENTRYPOINT.sub(r"statpress.flows.deployed.\1", entrypoint)


def _renew_entrypoints(
    client: SyncPrefectClient, deployments: dict[UUID, dict[str, Any]]
) -> set[UUID]:
    """Renew stored entrypoints of the first version; everything else of a deployment is kept."""
    from prefect.client.schemas.actions import DeploymentUpdate

    renewed = set()
    for key, facts in deployments.items():
        stored = facts["entrypoint"] or ""
        entrypoint = _present_entrypoint(stored)
        if entrypoint != stored:
            client.update_deployment(key, DeploymentUpdate(entrypoint=entrypoint))
            renewed.add(key)
    return renewed


def _deploy(file: Path, shown: Path) -> None:
    """Run 'prefect deploy' on a file.

    Raises:
        DeploymentError: It refused; with the end of what it said. It names the file ``shown``.
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
        raise DeploymentError(f"Prefect refused: …{said[-_LONGEST:]}", where=str(shown))


def _without_password(address: str) -> str:
    """An address without the user and password it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
