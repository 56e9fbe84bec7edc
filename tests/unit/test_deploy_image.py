"""The image: hadolint's rules, and what it must and must not hold."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from installation import DEPLOY, IMAGE, QUIET, ROOT, program
from requirements import lacking


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
