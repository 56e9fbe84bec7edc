"""Two officers who decide at one moment, on either database: one decision, and both know it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.mechanisms.errors import ApprovalError
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger

pytestmark = pytest.mark.system
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2)]
TERMS = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 9}
WORK: Any = {"mechanisms": [], "config_sha256": "c" * 64, "insecure_seed": False, "version": "1"}
LOSS = {"epsilon": "0.01", "delta": "0", "rho": "0.00005", "rho_delta": "0"}
SEAL = {"manifest_sha256": "b" * 64}


def prepare(ledger: Ledger, run_id: str) -> dict[str, str]:
    names = {"dataset": "census", "run_id": run_id}
    ledger.charge(**names, **LOSS, **TERMS, **WORK)
    ledger.draw(**names)
    ledger.prepare(**names, bundle="releases/one", **SEAL)
    return names


def test_opposite_decisions_at_one_moment(location: str) -> None:
    with Ledger.open(location) as ledger:
        ledger.register(dataset="census", epsilon=1, delta=0, **TERMS)
        ledger.set_approvers(dataset="census", approvers=[public_text(key) for key in KEYS])
        runs = [prepare(ledger, f"run-{number}") for number in range(8)]
    gate = Barrier(2)

    def decide(officer: int) -> list[str]:
        told = []
        with Ledger.open(location, create=False) as own:
            for names in runs:
                charge = own.charged(**names)
                words = {"decision": ("approve", "reject")[officer], "reason": "so"}
                gate.wait(600)
                try:
                    entry = own.decide(charge=charge, key=KEYS[officer], **words, **SEAL)
                    told.append(entry.body["decision"])
                except ApprovalError:
                    told.append("refused")
        return told

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(decide, (0, 1))
    with Ledger.open(location, create=False) as ledger:
        assert ledger.verify().entries == 2 + 4 * len(runs)
        charges = ledger.account("census").charges
        for names, approved, rejected in zip(runs, first, second, strict=True):
            won = {("approve", "refused"): "approved", ("refused", "reject"): "rejected"}
            assert charges[names["run_id"]].status == won[approved, rejected]
            if (approved, rejected) == ("approve", "refused"):
                assert ledger.publish(**names, bundle="releases/one", **SEAL).kind == "publish"
            else:
                with pytest.raises(ApprovalError):
                    ledger.publish(**names, bundle="releases/one", **SEAL)
