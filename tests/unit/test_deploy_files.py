"""All files of an installation: they load, and hold no secret."""

from __future__ import annotations

import json
import re

from installation import DEPLOY, load_all


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
