"""The files of an installation, read by the programs that read them or by their schemas."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from compose_spec import PyCompose
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
QUIET = {
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}
IMAGE = re.compile(r"[a-z0-9./-]+:\d+(\.\d+)+(-[a-z]+)*(-[a-z]+)?")
KUBERNETES = "1.32"
"""The version whose schemas the manifests meet."""


def load_all(text: str) -> list[Any]:
    return list(YAML(typ="safe").load_all(text))


def program(name: str) -> str | None:
    """A program beside this interpreter, or on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


# --- every file ------------------------------------------------------------------


def test_every_yaml_file_loads() -> None:
    files = list(DEPLOY.rglob("*.yaml"))
    assert len(files) >= 10
    for path in files:
        assert all(load_all(path.read_text())), path


def test_no_file_holds_a_secret_or_a_moving_tag() -> None:
    for path in DEPLOY.rglob("*"):
        if path.suffix in {".yaml", ".service", ".sh", ".json", ".sql"} or "Docker" in path.name:
            text = path.read_text()
            assert ":latest" not in text.replace("prefecthq/prefect:3-latest", ""), path
            assert "kind: Secret" not in text, path
            for name in re.findall(r"(?im)^\s*-?\s*[\w-]*password[\w-]*\s*[:=]\s*(\S+)", text):
                assert name.startswith(("/run/secrets/", "`", "{file:")), (path, name)
            assert not re.search(r"AUTH_STRING\s*[:=]\s*[\"']?\w+:\w+", text), path


def test_templates_are_what_prefect_reads() -> None:
    template = json.loads((DEPLOY / "work-pools" / "docker.json").read_text())
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used == set(template["variables"]["properties"])
    job = template["job_configuration"]
    assert job["privileged"] is False and job["stream_output"] is False
    assert "/srv/statpress/source:/srv/source:ro" in job["volumes"]
    assert not any("docker.sock" in volume for volume in job["volumes"])


# --- the image -------------------------------------------------------------------


@cache
def dockerfile() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile in order, with their arguments on one line."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Dockerfile").read_text()).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def lint(text: str) -> subprocess.CompletedProcess[str]:
    found = program("hadolint")
    assert found, "hadolint is missing: install the development group"
    command = [found, "--failure-threshold", "style", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_hadolint_finds_nothing() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    done = lint(text)
    assert done.returncode == 0, done.stdout
    assert "DL3006" in lint(text.replace(":3.11.13-slim-bookworm", "")).stdout
    assert "DL3002" in lint(text.replace("USER 10001:10001", "USER root")).stdout


def test_image_is_locked_small_and_not_root() -> None:
    steps = dockerfile()
    bases = [argument for name, argument in steps if name == "FROM"]
    assert len(bases) == 3
    for base in bases:
        assert IMAGE.fullmatch(base.split()[0]), base
    last = max(i for i, (name, _) in enumerate(steps) if name == "FROM")
    final = steps[last:]
    assert " AS " not in final[0][1]
    users = [argument for name, argument in final if name == "USER"]
    assert users == ["10001:10001"]
    assert [name for name, _ in final].index("USER") < [n for n, _ in final].index("ENTRYPOINT")
    assert all(name != "ADD" for name, _ in steps)
    for name, argument in steps:
        if name == "RUN":
            assert not re.search(r"\b(curl|wget|apt-get|pip install)\b", argument)
            assert "uv sync" not in argument or {"--locked", "--no-dev"} <= set(argument.split())
    assert not any("uv" in argument.split("=") for name, argument in final if name == "COPY")
    assert [a.split()[0] for n, a in final if n == "COPY"] == ["--from=builder", "--chmod=0555"]
    environment = " ".join(argument for name, argument in final if name == "ENV")
    for name, value in QUIET.items():
        assert f"{name}={value}" in environment


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert kept[0] == "*"
    for name, argument in dockerfile():
        if name == "COPY" and "--from" not in argument:
            *sources, _ = [part for part in argument.split() if not part.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists()
                assert f"!{source}" in kept


def test_python_of_the_image_is_one_we_support() -> None:
    from packaging.specifiers import SpecifierSet

    wanted = re.search(r'requires-python = "(.+)"', (ROOT / "pyproject.toml").read_text())
    text = (DEPLOY / "Dockerfile").read_text()
    versions = set(re.findall(r"python:(\d+\.\d+\.\d+)-slim", text))
    assert wanted and len(versions) == 1
    (version,) = versions
    assert version in SpecifierSet(wanted[1])
    assert f"lib/python{version.rpartition('.')[0]}/" in text


def test_entrypoint_turns_secret_files_into_settings(tmp_path: Path) -> None:
    (tmp_path / "prefect_api_auth_string").write_text("officer:a b$c\n")
    script = (DEPLOY / "entrypoint.sh").read_text()
    assert "/run/secrets/" in script
    moved = tmp_path / "entrypoint.sh"
    moved.write_text(script.replace("/run/secrets/", f"{tmp_path}/"))
    show = "import os,resource; print(os.environ['PREFECT_API_AUTH_STRING']); "
    show += "print('PREFECT_SERVER_API_AUTH_STRING' in os.environ); print(oct(os.umask(0))); "
    show += "print(resource.getrlimit(resource.RLIMIT_CORE))"
    done = subprocess.run(
        ["/bin/sh", str(moved), sys.executable, "-c", show],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.splitlines() == ["officer:a b$c", "False", "0o77", "(0, 0)"]


# --- Compose ---------------------------------------------------------------------


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


# --- Kubernetes ------------------------------------------------------------------


@cache
def manifests() -> list[dict[str, Any]]:
    found = [
        each
        for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        for each in load_all(path.read_text())
    ]
    assert len(found) > 15
    return found


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def workloads() -> dict[str, dict[str, Any]]:
    return of_kind("Deployment") | of_kind("StatefulSet")


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in workloads().items():
        yield name, each["spec"]["template"]["spec"]


def selected(selector: dict[str, Any]) -> set[str]:
    """The workloads whose pods a selector selects."""
    chosen = set()
    for name, each in workloads().items():
        labels = each["spec"]["template"]["metadata"]["labels"]
        fits = selector.get("matchLabels", {}).items() <= labels.items()
        for rule in selector.get("matchExpressions", []):
            assert rule["operator"] == "In"
            fits = fits and labels.get(rule["key"]) in rule["values"]
        if fits:
            chosen.add(name)
    return chosen


def test_manifests_meet_their_schemas() -> None:
    for each in manifests():
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
        assert each["kind"] == "Namespace" or each["metadata"]["namespace"] == "statpress"
    broken = json.loads(json.dumps(of_kind("NetworkPolicy")["worker"]))
    broken["spec"]["egres"] = broken["spec"].pop("egress")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_kustomization_names_every_manifest() -> None:
    listed = YAML(typ="safe").load(DEPLOY / "kustomization.yaml")
    files = {f"kubernetes/{path.name}" for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert set(listed["resources"]) == files
    for generated in listed["configMapGenerator"]:
        assert all((DEPLOY / name).exists() for name in generated["files"])


def test_pods_are_hardened() -> None:
    checked = 0
    for name, pod in pods():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "hostNetwork" not in pod and "hostPID" not in pod
        for container in pod.get("initContainers", []) + pod["containers"]:
            assert IMAGE.fullmatch(container["image"])
            allowed = container["securityContext"]
            assert allowed["allowPrivilegeEscalation"] is False
            assert allowed["readOnlyRootFilesystem"] is True
            assert allowed["capabilities"] == {"drop": ["ALL"]}
            assert set(container["resources"]["limits"]) == {"cpu", "memory"}
            assert not any("hostPath" in volume for volume in pod["volumes"])
            checked += 1
        for container in pod["containers"]:
            assert "livenessProbe" in container
    assert checked == 5
    labels = of_kind("Namespace")["statpress"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert of_kind("ConfigMap")["prefect-settings"]["data"].items() >= QUIET.items()


def test_references_between_manifests_hold() -> None:
    claims = set(of_kind("PersistentVolumeClaim"))
    listed = YAML(typ="safe").load(DEPLOY / "kustomization.yaml")
    maps = set(of_kind("ConfigMap")) | {each["name"] for each in listed["configMapGenerator"]}
    maps |= {"configs"}  # made by hand, as README.md says
    for _, pod in pods():
        names = {volume["name"] for volume in pod["volumes"]} | {"data"}
        for volume in pod["volumes"]:
            assert volume.get("persistentVolumeClaim", {}).get("claimName", "home") in claims
            assert volume.get("configMap", {}).get("name", "configs") in maps
        for container in pod.get("initContainers", []) + pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= names
            for source in container.get("envFrom", []):
                assert source["configMapRef"]["name"] in maps
    for name, service in of_kind("Service").items():
        assert selected({"matchLabels": service["spec"]["selector"]}) == {name}


def test_network_lets_the_worker_alone_reach_ledger_and_source() -> None:
    policies = of_kind("NetworkPolicy")
    refuse = policies.pop("refuse-all")["spec"]
    assert refuse == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert set(policies) - {"names"} == set(workloads())
    callers: dict[str, set[str]] = {name: set() for name in workloads()}
    for name, policy in policies.items():
        chosen = selected(policy["spec"]["podSelector"])
        assert chosen == ({"worker", "prefect-server"} if name == "names" else {name})
        for rule in policy["spec"].get("ingress", []):
            assert rule["ports"] and rule["from"]
            for peer in rule["from"]:
                if "namespaceSelector" in peer:
                    callers[name].add("outside")
                else:
                    callers[name] |= selected(peer["podSelector"])
    assert callers == {
        "ledger-database": {"worker"},
        "prefect-database": {"prefect-server"},
        "prefect-server": {"worker", "outside"},
        "worker": set(),
    }
    reached = set()
    for rule in policies["worker"]["spec"]["egress"]:
        for peer in rule["to"]:
            reached |= selected(peer["podSelector"])
    assert reached == {"prefect-server", "ledger-database"}
    for name, pod in pods():
        claims = {
            v["persistentVolumeClaim"]["claimName"]
            for v in pod["volumes"]
            if "persistentVolumeClaim" in v
        }
        assert ("source" in claims) == (name == "worker")
    worker = of_kind("Deployment")["worker"]["spec"]["template"]["spec"]["containers"][0]
    mounts = {mount["name"]: mount for mount in worker["volumeMounts"]}
    assert mounts["source"]["readOnly"] is True


# --- systemd ---------------------------------------------------------------------


UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("name", UNITS)
def test_unit_is_hardened(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / name).read_text()
    lines = set(text.splitlines())
    assert lines >= {
        "NoNewPrivileges=true",
        "ProtectSystem=strict",
        "ProtectHome=true",
        "PrivateTmp=true",
        "LimitCORE=0",
        "UMask=0077",
        "CapabilityBoundingSet=",
        "StateDirectoryMode=0700",
    }
    assert not {"User=root", "User="} & lines and "\nUser=" in text
    analyse = program("systemd-analyze")
    if analyse is None:
        return
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/statpress/bin/prefect", sys.executable))
    (tmp_path / "statpress-server.service").touch()
    for command in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run(
            [analyse, *command, str(unit)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    done = subprocess.run(
        [analyse, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "NoNewPrivilege" in done.stderr


def test_units_keep_server_and_private_zone_apart() -> None:
    assert UNITS == ["statpress-server.service", "statpress-worker.service"]
    server, worker = ((DEPLOY / "systemd" / name).read_text() for name in UNITS)
    assert re.search(r"^User=(.+)$", server, re.M)[1] != re.search(r"^User=(.+)$", worker, re.M)[1]
    assert "InaccessiblePaths=-/srv/statpress -/var/lib/statpress" in server
    assert "ReadOnlyPaths=/srv/statpress/source" in worker
    for name, value in QUIET.items():
        assert f"Environment={name}={value}" in server
    assert "--host 127.0.0.1" in server
