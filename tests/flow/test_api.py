"""What a program gets of ``import statpress``, in a folder that is not the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from signed_bundles import FOREIGN, PUBLISHER, make_bundle

import statpress
from statpress.mechanisms.errors import (
    BundleVerificationError,
    ConfigError,
    SignatureError,
)
from statpress.tasks.bundle.manifest import FACTS, MANIFEST_NAME, seal

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "census2000.yaml"
RELEASE = "release"
PROGRAM = """
import sys
before = set(sys.modules)
import statpress
print(statpress.__version__, *sorted(set(sys.modules) - before))
plan = statpress.plan(sys.argv[1])
statpress.verify(sys.argv[2])
print(type(plan).__name__, *(m for m in ("prefect", "sqlalchemy", "rich") if m in sys.modules))
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def public_key(path: Path, key: object) -> Path:
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.write_bytes(pem)
    return path


def test_it_is_light_and_needs_no_orchestrator(tmp_path: Path) -> None:
    make_bundle(tmp_path / "wages")
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(CONFIG), "wages"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    stated, *imported = first.split()
    assert stated == version("statpress") == statpress.__version__
    # The version is read with the standard library.
    assert [name for name in imported if name.split(".")[0] not in sys.stdlib_module_names] == [
        "statpress"
    ]
    assert second == "Plan"


def test_a_plan_says_what_a_release_costs() -> None:
    plan = statpress.plan(CONFIG, overrides=["budget.epsilon=0.5"])
    assert Decimal("0.49") < plan.epsilon <= Decimal("0.5")
    names = [product.request.name for product in plan.products]
    assert names == [product.request.name for product in statpress.plan(str(CONFIG)).products]
    with pytest.raises(ConfigError, match="no key 'epsilom'"):
        statpress.plan(CONFIG, overrides=["budget.epsilom=0.5"])


def test_the_environment_changes_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = statpress.plan(CONFIG)
    monkeypatch.setenv("STATPRESS__BUDGET__EPSILON", "0.25")
    assert statpress.plan(CONFIG).epsilon == plan.epsilon


def test_a_bundle_verifies_until_a_byte_changes(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "wages")
    ours = public_key(tmp_path / "ours.pem", PUBLISHER)
    foreign = public_key(tmp_path / "foreign.pem", FOREIGN)
    manifest = statpress.verify("wages")
    assert manifest["dataset"] == "census" and manifest["files"]
    assert statpress.verify(bundle, keys=[foreign, str(ours)]) == manifest
    with pytest.raises(SignatureError, match="None of the given keys"):
        statpress.verify(bundle, keys=[foreign])
    (bundle / "data" / "ages.csv").write_text("age,raw\n1,3\n")
    with pytest.raises(BundleVerificationError, match=r"ages\.csv was changed"):
        statpress.verify(bundle)


def test_a_reprint_must_follow_from_its_original(
    tmp_path: Path,
) -> None:
    """A change of its files, sealed anew, is found; one of the original's files is not derived."""
    with tarfile.open(ROOT / "tests/golden/first_version/bundles.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    bundle = tmp_path / "releases" / "ages-reprint-1"
    assert statpress.verify(bundle)["reprint_of"]
    for each in (bundle, bundle.with_name("ages")):
        path = each / "data" / "ages.csv"
        head, first, *rest = path.read_text().splitlines()
        age, raw, *others = first.split(",")
        changed = ",".join([age, str(int(raw) + 1), *others])
        path.write_text("\n".join([head, changed, *rest]) + "\n")
        facts = json.loads((each / MANIFEST_NAME).read_text())
        seal(each, {name: facts[name] for name in FACTS if name in facts})
    statpress.verify(bundle.with_name("ages"))
    with pytest.raises(BundleVerificationError, match=r"not (what follows|those that were drawn)"):
        statpress.verify(bundle)


def test_it_is_documented_and_typed() -> None:
    for name in ("plan", "verify"):
        function = getattr(statpress, name)
        for section in ("Args:", "Returns:", "Raises:"):
            assert section in function.__doc__, name
        assert all(isinstance(hint, str) for hint in function.__annotations__.values())
    with pytest.raises(AttributeError, match="no attribute 'release'"):
        getattr(statpress, RELEASE)
