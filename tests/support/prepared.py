"""A prepared bundle and its ledger, made by hand: no run is needed to review it."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from statpress.tasks.bundle.manifest import FACTS, REVIEWED, seal
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import Entry, public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

RUN = "ab" * 16
OFFICER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
SECOND = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
STRANGER = Ed25519PrivateKey.from_private_bytes(b"x" * 32)
TEXT = "title: Wages\n"
CONFIG = hashlib.sha256(TEXT.encode()).hexdigest()
TERMS = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 9}
DESCRIBED = {"product": "t", "mechanism": "laplace", "n_records": 9}
LOSS = {"epsilon": "0.5", "delta": "0", "rho": "0.125", "rho_delta": "0"}


@functools.cache
def _charged(
    keys: tuple[str, ...], unsigned: bool, hour: int
) -> tuple[tempfile.TemporaryDirectory[str], Entry]:
    """A home to copy, with the charge and the draw of one hour, and the charge."""
    folder = tempfile.TemporaryDirectory()
    with Ledger.open(Home(Path(folder.name)).ledger) as ledger:
        ledger.register(dataset="census", epsilon=1, delta=0, **TERMS)
        ledger.set_approvers(dataset="census", approvers=list(keys), unsigned=unsigned)
        work: Any = {"mechanisms": [DESCRIBED], "config_sha256": CONFIG, "version": "1"}
        charge = ledger.charge(
            dataset="census", run_id=RUN, insecure_seed=False, **LOSS, **TERMS, **work
        )
        ledger.draw(dataset="census", run_id=RUN)
    return folder, charge


@dataclass
class Office:
    """A home with one prepared bundle, and what may be done with it."""

    folder: Path
    approvers: tuple[Ed25519PrivateKey, ...] = (OFFICER, SECOND)
    unsigned: bool = False
    facts: ClassVar[dict[str, str]] = REVIEWED

    def __post_init__(self) -> None:
        keys = tuple(public_text(key) for key in self.approvers)
        charged, charge = _charged(keys, self.unsigned, int(time.time() // 3600))
        shutil.copytree(charged.name, self.home.root)
        (self.prepared / "data").mkdir(parents=True, mode=0o700)
        with Ledger.open(self.home.ledger) as ledger:
            (self.prepared / "data" / "t.csv").write_text("a,raw\n1,2\n")
            stated = {"products": {"t": DESCRIBED}}
            (self.prepared / "privacy.json").write_text(json.dumps(stated))
            (self.prepared / "config.yaml").write_text(TEXT)
            facts: dict[str, Any] = dict.fromkeys(FACTS, "x")
            facts |= {"dataset": "census", "title": "Wages", "reprint_of": None}
            facts |= {"run_id": RUN, "publishable": True, "config_sha256": CONFIG}
            facts["ledger_entry"] = {"sequence": charge.sequence, "hash": charge.hash}
            self.seal = seal(self.prepared, facts | self.facts)
            names = {"run_id": RUN, "dataset": "census", "bundle": str(self.target)}
            ledger.prepare(**names, manifest_sha256=self.seal)

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")

    @property
    def prepared(self) -> Path:
        return self.home.root / "prepared" / RUN

    @property
    def target(self) -> Path:
        return self.folder / "releases" / "first"

    @property
    def status(self) -> Status:
        with Ledger.open(self.home.ledger, create=False) as ledger:
            ledger.verify()
            return ledger.state().charges[RUN].status

    def kinds(self) -> list[str]:
        with Ledger.open(self.home.ledger, create=False) as ledger:
            return [entry.kind for entry in ledger.entries()]

    def published(self) -> list[str]:
        """Everything in the publishing directory, unfinished copies too."""
        folder = self.target.parent
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def write_keys(folder: Path, key: Ed25519PrivateKey, name: str) -> tuple[Path, Path]:
    """The private and the public key as PEM files."""
    private, public = folder / f"{name}.pem", folder / f"{name}-public.pem"
    private.touch(0o600, exist_ok=False)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    known = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public.write_bytes(known)
    return private, public
