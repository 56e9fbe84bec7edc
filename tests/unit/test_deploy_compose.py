"""The Compose file: the specification, and what it must hold."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from installation import DEPLOY, IMAGE, QUIET
from requirements import needed
from ruamel.yaml import YAML

PyCompose = needed("compose_spec").PyCompose


@cache
def compose() -> dict[str, Any]:
    """The Compose file with its merges and the defaults of its variables."""
    text = (DEPLOY / "compose.yaml").read_text()
    found: dict[str, Any] = YAML(typ="safe").load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    return found


def check_compose(found: dict[str, Any]) -> None:
    PyCompose.from_json(json.dumps(found)).validate()


def test_compose_meets_the_specification() -> None:
    check_compose(compose())
    flaws = ("pids_limits", 3), ("networks", ["nowhere"]), ("secrets", ["nothing"])
    for key, value in flaws:
        broken = json.loads(json.dumps(compose()))
        broken["services"]["worker"][key] = value
        with pytest.raises(ValueError, match=key[:-1]):
            check_compose(broken)


@pytest.mark.parametrize("name", sorted(compose()["services"]))
def test_service_is_hardened(name: str) -> None:
    service = compose()["services"][name]
    assert IMAGE.fullmatch(service["image"])
    assert int(service["user"].split(":")[0]) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"] == {"core": 0}
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    assert "privileged" not in service
    if service["restart"] == "unless-stopped":
        assert set(service["healthcheck"]) >= {"test", "interval", "timeout", "retries"}
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")
    for variable in service["environment"]:
        assert "PASSWORD" not in variable or variable.endswith("_FILE")
        assert "AUTH_STRING" not in variable
    for volume in service.get("volumes", []):
        assert "docker.sock" not in volume


def test_server_of_compose_is_quiet_asks_for_a_password_and_uses_postgres() -> None:
    server = compose()["services"]["prefect-server"]
    assert server["environment"].items() >= QUIET.items()
    assert "prefect_server_api_auth_string" in server["secrets"]
    assert server["environment"]["PREFECT_SERVER_DATABASE_DRIVER"] == "postgresql+asyncpg"
    script = (DEPLOY / "entrypoint.sh").read_text()
    for secret in server["secrets"] + compose()["services"]["deployments"]["secrets"]:
        assert secret.upper() in script
    assert "pg_trgm" in (DEPLOY / "postgres" / "prefect.sql").read_text()
    volumes = compose()["services"]["prefect-database"]["volumes"]
    assert "./postgres/prefect.sql:/docker-entrypoint-initdb.d/prefect.sql:ro" in volumes


def test_compose_lets_the_worker_alone_reach_ledger_and_source() -> None:
    services, networks = compose()["services"], compose()["networks"]
    assert {n for n, s in services.items() if "ledger" in s["networks"]} == {
        "ledger-database",
        "worker",
    }
    assert all(networks[name].get("internal") for name in ("ledger", "jobs", "prefect-database"))
    assert services["worker"]["networks"] == ["jobs", "ledger"]
    for name, service in services.items():
        private = [v for v in service.get("volumes", []) if "/srv/source" in v]
        assert private == (["/srv/statpress/source:/srv/source:ro"] if name == "worker" else [])
