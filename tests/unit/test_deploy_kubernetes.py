"""The manifests for Kubernetes: their schemas, and how they hang together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from installation import DEPLOY, IMAGE, QUIET, load_all
from requirements import needed
from ruamel.yaml import YAML

kubernetes_validate = needed("kubernetes_validate")

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
