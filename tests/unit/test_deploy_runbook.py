"""Every command that the runbook quotes exists, with the options it gives."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from ruamel.yaml import YAML

from statpress.flows.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RUNBOOK = (DEPLOY / "README.md").read_text()
PROGRAMS = {
    "cat", "cp", "chmod", "createdb", "createuser", "curl", "dask", "docker", "for", "install",
    "kubectl", "ln", "openssl", "pg_dump", "pg_restore", "prefect", "printf", "psql", "rm",
    "python", "python3", "sed", "ssh-keygen", "ssh-keyscan", "statpress", "systemctl",
    "tar", "umask", "useradd", "uv", "with-secrets",
}  # fmt: skip
SERVICES = set(YAML(typ="safe").load(DEPLOY / "compose.yaml")["services"])
INSIDE = re.compile(
    r"docker compose (?:exec(?: -T)?|run --rm) (\S+) (?=\w)|"
    r"kubectl --namespace statpress exec \S+ -- (?:with-secrets )?(?=\w)|"
    r"as-statpress (?=[\w/])|runuser -u \S+ -- |/opt/statpress/bin/|\.venv/bin/|"
    r"(?<!')\b[A-Z_]+=\S+ (?=\S)"
)


@cache
def fragments() -> list[str]:
    """Lines of code blocks, and code spans that look like a command."""
    blocks = re.findall(r"(?m)^(?: {4}| {7})([a-z].*|(?:[A-Z_]+=\S+ )+[a-z]+ [a-z-].*)$", RUNBOOK)
    text = re.sub(r"(?m)^(?: {4}| {7,}).*$", "", RUNBOOK)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    return blocks + [span for span in spans if span.split()[0] in PROGRAMS and " " in span]


@cache
def commands() -> list[list[str]]:
    """Quoted commands as words, without what merely says where they run."""
    found = []
    for fragment in fragments():
        bare = re.split(r" [<>] ", INSIDE.sub("", fragment))[0]
        found.append(shlex.split(bare))
    return found


def of(program: str) -> Iterator[list[str]]:
    for words in commands():
        if words[0] == program:
            yield words[1:]


def parse(words: list[str]) -> None:
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_no_unknown_program() -> None:
    assert len(commands()) > 50
    assert {words[0] for words in commands()} <= PROGRAMS


def test_commands_of_statpress_parse() -> None:
    quoted = list(of("statpress"))
    assert len(quoted) > 15
    for words in quoted:
        parse(words)
    with pytest.raises(CycloptsError):
        parse(["ledger", "verify", "--heads", "x"])
    named = {" ".join(words[:2]) for words in quoted if words[0] == "ledger"}
    assert named >= {f"ledger {x}" for x in ("export", "import", "verify", "checkpoint", "void")}


@pytest.mark.system
def test_commands_of_prefect_parse() -> None:
    quoted = list(of("prefect"))
    assert len({tuple(words[:2]) for words in quoted}) >= 6
    wrong = ["work-pool", "paus", "x"]
    assert prefect_refuses([*quoted, wrong]) == [wrong]


def prefect_refuses(quoted: list[list[str]]) -> list[list[str]]:
    """Which of these Prefect's own parser does not take, in a process of its own."""
    script = """
import json, sys
import prefect.cli
from cyclopts import CycloptsError
from prefect.cli._app import _app

refused = []
for words in json.load(sys.stdin):
    try:
        _app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError:
        refused.append(words)
print(json.dumps(refused))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, input=json.dumps(quoted), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_what_commands_name_exists() -> None:
    for service in re.findall(r"docker compose (?:exec(?: -T)?|run --rm) ([\w-]+)", RUNBOOK):
        assert service in SERVICES
    for service in re.findall(r"docker compose stop (\S+)`|force-recreate (\S+) (\S+)`", RUNBOOK):
        assert {name for name in service if name} <= SERVICES
    for path in re.findall(r"\bdeploy/[\w./-]*[\w]", RUNBOOK):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([^)#]+)\)", RUNBOOK):
        assert (DEPLOY / path).exists(), path
    text = "\n".join(path.read_text() for path in (DEPLOY / "kubernetes").glob("*.yaml"))
    workloads = set(re.findall(r"(?m)^kind: Deployment\nmetadata: \{name: ([\w-]+)", text))
    assert set(re.findall(r"deployment/([\w-]+)", RUNBOOK)) <= workloads
    assert set(re.findall(r"exec ([\w-]+)-0 ", RUNBOOK)) == {"ledger-database"}
    for unit in re.findall(r"\b(statpress-(?:server|worker|ledger-export))\b", RUNBOOK):
        assert (DEPLOY / "systemd" / f"{unit}.service").exists()


def test_secrets_that_the_runbook_makes_are_those_that_are_read() -> None:
    described = YAML(typ="safe").load(DEPLOY / "compose.yaml")
    read = {Path(each["file"]).name for each in described["secrets"].values()}
    loop = re.search(r"for name in ([\w ]+);", RUNBOOK)
    assert loop is not None
    made = set(re.findall(r"> secrets/(\w+)", RUNBOOK)) | set(loop[1].split())
    assert made == read
    text = "\n".join(path.read_text() for path in (DEPLOY / "kubernetes").glob("*.yaml"))
    wanted = {
        *re.findall(r"secretName: ([\w-]+)", text),
        *re.findall(r"secret: \{name: ([\w-]+)", text),
    }
    assert set(re.findall(r"create secret generic ([\w-]+)", RUNBOOK)) == wanted
    keys = set(re.findall(r"\{key: ([\w.-]+), path", text))
    assert set(re.findall(r"--from-file=([\w.-]+)=secrets", RUNBOOK)) == keys
