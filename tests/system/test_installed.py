"""The wheel that 'uv build' makes: what is in it, and that it works beside a user's own folders."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_packages import FOLDERS, with_packages_of_its_own
from requirements import lacking

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a source distribution."""
    if not UV.exists():
        lacking("uv is not in this environment.")
    made = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [UV, "build", "--quiet", "--out-dir", made, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = made.glob("*.whl")
    assert len(list(made.glob("*.tar.gz"))) == 1
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment with the wheel; what it needs is taken from this one."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    scripts = place / "bin"
    install = [UV, "pip", "install", "--quiet", "--no-deps", "--offline"]
    subprocess.run([*install, "--python", scripts / "python", wheel], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # A path alone: the links of this environment, such as that to the checkout, are not followed.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_packages_of_its_own(tmp_path)


def output(folder: Path, *command: object) -> str:
    """Standard output of a command whose path of modules begins with the folder."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ".", "STATPRESS_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of_the_packages() -> Iterator[str]:
    yield from ("statpress/__init__.py", "statpress/py.typed")
    for name in FOLDERS:
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"statpress/{path.relative_to(ROOT)}"


def test_it_has_every_file_under_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set(files_of_the_packages())
    assert {"py", "yaml", "json", "jinja", "css", "typed"} <= {n.rpartition(".")[2] for n in names}


@pytest.mark.nightly
def test_its_command_works_beside_folders_of_the_same_names(scripts: Path, folder: Path) -> None:
    config = ROOT / "configs" / "census2000.yaml"
    assert "valid" in output(folder, scripts / "statpress", "validate", config)
    program = "import statpress; print(statpress.__file__); statpress.plan({!r})\n"
    program += "from statpress.flows import deployed; print(deployed.release.name)"
    place, flow = output(folder, scripts / "python", "-c", program.format(str(config))).split(
        "\n", 1
    )
    assert Path(place).is_relative_to(scripts.parent)
    assert flow == "statpress-release\n", "its flows can be deployed"


def test_its_release_works_beside_folders_of_the_same_names(scripts: Path, agency: Any) -> None:
    folder = with_packages_of_its_own(agency.folder)
    run = (scripts / "statpress", "run", agency.config, "--no-orchestrator", "--json")
    output(folder, *run)
    (bundle,) = agency.bundles()
    assert "all as the manifest says" in output(folder, scripts / "statpress", "verify", bundle)
