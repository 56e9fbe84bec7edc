"""A home with published bundles, made by hand: no run is needed to upload them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statpress.tasks.bundle.manifest import FACTS, seal
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

TERMS = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 9}
LOSS = {"epsilon": "0.1", "delta": "0", "rho": "0.005", "rho_delta": "0"}
ABOUT = {
    "title": "Wages",
    "description": "Wages by region.",
    "id": "urn:uuid:1",
    "homepage": "https://example.org/wages",
    "keywords": ["wages", "pay & prices", "x"],
    "licenses": [{"name": "CC-BY-4.0", "path": "https://creativecommons.org/licenses/by/4.0/"}],
    "contributors": [
        {"title": "Agency", "role": "publisher", "path": "https://example.org"},
        {"title": "Desk", "role": "contact", "email": "desk@example.org"},
    ],
    "temporal": {"start": "2000", "end": "2001"},
}


@dataclass
class Publisher:
    """One account of a ledger, and the bundles that it published."""

    folder: Path
    bundles: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.folder("")
        with Ledger.open(self.home.ledger) as ledger:
            ledger.register(dataset="census", epsilon=5, delta=0, **TERMS)

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")

    def publish(self, name: str, targets: str = "", **changes: Any) -> Path:
        """A bundle in the publishing directory that the ledger has noted."""
        number = len(self.bundles) + 1
        run, place = f"{number:032x}", self.folder / "releases" / name
        described = {"product": "t", "mechanism": "laplace", "n_records": 9}
        text = f"title: Wages\npublish: {{directory: releases{targets}}}\n"
        config = hashlib.sha256(text.encode()).hexdigest()
        work: Any = {"mechanisms": [described], "config_sha256": config, "version": "1"}
        with Ledger.open(self.home.ledger, create=False) as ledger:
            seeded = not changes.get("publishable", True)
            charge = ledger.charge(
                dataset="census", run_id=run, insecure_seed=seeded, **LOSS, **TERMS, **work
            )
            ledger.draw(dataset="census", run_id=run)
            (place / "data").mkdir(parents=True)
            (place / "data" / "t.csv").write_text(f"a,raw\n1,{number}\n")
            (place / "datapackage.json").write_text(json.dumps(ABOUT))
            (place / "privacy.json").write_text(json.dumps({"products": {"t": described}}))
            (place / "config.yaml").write_text(text)
            for path, held in changes.pop("files", {}).items():
                (place / path).write_bytes(held)
            facts: dict[str, Any] = dict.fromkeys(FACTS, "x")
            facts |= {"dataset": "census", "title": "Wages", "reprint_of": None}
            facts |= {"created": f"2026-01-{number:02}T00:00:00Z", "config_sha256": config}
            facts |= {"run_id": run, "publishable": True}
            facts["ledger_entry"] = {"sequence": charge.sequence, "hash": charge.hash}
            noted = {"run_id": run, "dataset": "census", "bundle": str(place)}
            ledger.publish(**noted, manifest_sha256=seal(place, facts | changes))
        self.bundles.append(place)
        return place
