"""An installation: its files, the image, Compose, Kubernetes, and how browsers find the API."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from installation import DEPLOY, IMAGE, QUIET, ROOT, load_all, program
from requirements import lacking, needed
from ruamel.yaml import YAML

pytestmark = pytest.mark.system  # its schemas and linters come with the group of that name


def test_every_yaml_file_loads() -> None:
    files = list(DEPLOY.rglob("*.yaml"))
    assert len(files) >= 10
    for path in files:
        assert all(load_all(path)), path


def secrets_in(text: str) -> list[str]:
    """Values that stand where a password would; a place or a name of one is none."""
    found = re.findall(r"(?im)^\s*-?\s*[\w-]*(?:password|auth_string)[\w-]*\s*[:=]\s*(\S+)", text)
    found += re.findall(r"(?i)name: [\w-]*(?:password|auth_string)[\w-]*, value: ([^}]+)", text)
    found += re.findall(r"\w+://[^/\s]*:([^/\s]+)@", text)
    return [value for value in found if not value.startswith(("/run/secrets/", "{file:"))]


def test_no_file_holds_a_secret_or_a_moving_tag() -> None:
    for leak in (
        "  POSTGRES_PASSWORD: hunter2",
        "Environment=X\nPREFECT_API_AUTH_STRING=a:b",
        "- {name: POSTGRES_PASSWORD, value: hunter2}",
        "STATPRESS_LEDGER: postgresql://me:hunter2@host/ledger",
    ):
        assert secrets_in(leak), leak
    checked = 0
    for path in DEPLOY.rglob("*"):
        if path.suffix in {".yaml", ".service", ".sh", ".json", ".sql"} or "Docker" in path.name:
            text = path.read_text()
            assert not secrets_in(text), path
            assert "kind: Secret" not in text, path
            assert not re.search(r"(?m)image\S* \S+:latest|FROM \S+:latest", text), path
            checked += 1
    assert checked >= 18


def test_templates_are_what_prefect_reads() -> None:
    template = json.loads((DEPLOY / "work-pools" / "docker.json").read_text())
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used == set(template["variables"]["properties"])
    job = template["job_configuration"]
    assert job["privileged"] is False and job["stream_output"] is False
    assert "/srv/statpress/source:/srv/source:ro" in job["volumes"]
    assert not any("docker.sock" in volume for volume in job["volumes"])


def test_both_pools_charge_one_ledger() -> None:
    (described,) = load_all(DEPLOY / "prefect.yaml")
    (compose,) = load_all(DEPLOY / "compose.yaml")
    worker = compose["services"]["worker"]
    pools = {each["work_pool"]["name"]: each["work_pool"] for each in described["deployments"]}
    inside = pools["statpress-docker"]["job_variables"]["env"]
    assert inside.items() <= worker["environment"].items()
    assert "STATPRESS_LEDGER" in inside and "job_variables" not in pools["statpress-process"]
    job = json.loads((DEPLOY / "work-pools" / "docker.json").read_text())["job_configuration"]
    assert job["networks"] == [f"{compose['name']}_{network}" for network in worker["networks"]]
    assert f":{inside['PGSERVICEFILE']}:ro" in "".join(job["volumes"])


# Browsers find the API behind a proxy, and estimates find what they draw with


RUNBOOK = (DEPLOY / "README.md").read_text()
SETTING = "PREFECT_SERVER_UI_API_URL"


def test_the_address_of_the_api_can_be_set_everywhere() -> None:
    (compose,) = load_all(DEPLOY / "compose.yaml")
    in_compose = compose["services"]["prefect-server"]["environment"][SETTING]
    name = re.fullmatch(r"\$\{(\w+):-http://127\.0\.0\.1:4200/api\}", in_compose)
    assert name and f"`{name[1]}`" in RUNBOOK
    (settings,) = (
        each["data"]
        for each in load_all(DEPLOY / "kubernetes" / "settings.yaml")
        if each["metadata"]["name"] == "prefect-settings"
    )
    assert settings[SETTING].startswith("https://")
    assert re.search(rf"(?m)^    printf '{SETTING}=https://\S+/api\\n'", RUNBOOK)
    assert f"{SETTING}=" in (DEPLOY / "systemd" / "statpress-server.service").read_text()


def test_charts_have_a_place_for_the_list_of_fonts() -> None:
    for file in ("Dockerfile", "systemd/statpress-worker.service"):
        assert "MPLCONFIGDIR=" in (DEPLOY / file).read_text()


def test_the_runbook_makes_the_database_and_checks_the_python() -> None:
    assert "createdb --owner statpress-server prefect" in RUNBOOK
    assert "psql --dbname prefect < deploy/postgres/prefect.sql" in RUNBOOK
    assert re.search(r"uv sync .*--python /usr/bin/python3\n", RUNBOOK)
    assert "runuser -u statpress -- /opt/statpress/bin/statpress --version" in RUNBOOK
    for listing in re.findall(r"`(prefect (?:block|flow-run) ls[^`]*)`", RUNBOOK):
        assert "--output json" in listing or "--state" in listing, listing


# The image: hadolint's rules, and what it must and must not hold


@cache
def dockerfile() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile in order, with their arguments on one line."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Dockerfile").read_text()).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def lint(text: str) -> subprocess.CompletedProcess[str]:
    found = program("hadolint")
    if not found:
        lacking("The program hadolint is not installed.")
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
    wanted = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    text = (DEPLOY / "Dockerfile").read_text()
    versions = set(re.findall(r"python:(\d+\.\d+\.\d+)-slim", text))
    assert wanted and len(versions) == 1
    (version,) = versions
    assert tuple(map(int, version.split(".")))[:2] >= (int(wanted[1]), int(wanted[2]))
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


# The Compose file: the specification, and what it must hold


@cache
def compose() -> dict[str, Any]:
    """The Compose file with its merges and the defaults of its variables."""
    text = (DEPLOY / "compose.yaml").read_text()
    found: dict[str, Any] = YAML(typ="safe").load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    return found


def check_compose(found: dict[str, Any]) -> None:
    needed("compose_spec").PyCompose.from_json(json.dumps(found)).validate()


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


# The manifests for Kubernetes: their schemas, and how they hang together


KUBERNETES = "1.32"
"""The version whose schemas the manifests meet."""


@cache
def manifests() -> list[dict[str, Any]]:
    found = [
        each for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for each in load_all(path)
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
        needed("kubernetes_validate").validate(each, KUBERNETES, strict=True)
        assert each["kind"] == "Namespace" or each["metadata"]["namespace"] == "statpress"
    broken = json.loads(json.dumps(of_kind("NetworkPolicy")["worker"]))
    broken["spec"]["egres"] = broken["spec"].pop("egress")
    kubernetes_validate = needed("kubernetes_validate")
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
