"""The peak of memory of what a release does with one product, each in a process of its own.

Linux only: peaks are read from, and set back in, ``/proc/self``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

STATISTIC = {
    "joint_moments": "mean",
    "pair_moments": "correlation",
    "regression_moments": "regression",
    "noisy_quantile": "median",
    "dp_bootstrap": "mean",
    "subsample_split": "mean",
}
"""Of mechanisms for estimates."""
SMALL = "laplace", "table", (10, 10), 1000, ["parquet", "csv"]
"""A case that has everything imported."""


def product_of(name: str, kind: str, domain: Any, n: int, knobs: Any = None) -> Any:
    """A planned product of these columns by a mechanism, with the knobs that it needs."""
    from contract_cases import KNOBS

    from statpress.mechanisms.domain.domain import Privacy
    from statpress.mechanisms.planning.choice import Budget, ProductRequest
    from statpress.mechanisms.planning.planner import plan_release
    from statpress.mechanisms.registry import KINDS, REGISTRY

    request = ProductRequest(
        name="p", kind=KINDS[kind], mechanism=name, columns=domain.names, share=Decimal(1),
        knobs=knobs or KNOBS.get(name) or REGISTRY[name].knobs(),
    )  # fmt: skip
    plan = plan_release(
        [request],
        domain=domain,
        privacy=Privacy(adjacency="replace_one", unit="record", n_records=n),
        budget=Budget(epsilon=Decimal(1), delta=Decimal("1e-9")),
    )
    return plan.products[0]


def foreseen(product: Any) -> dict[str, int]:
    """The most bytes that each stage of a product may take, by its forecast."""
    from statpress.tasks.products.product_kind import kind_of

    need = kind_of(product).working_memory(product)
    write = need.kept + need.write
    return {"draw": need.draw, "derive": need.derive, "write": write, "check": write}


def measured(
    name: str, kind: str, sizes: tuple[int, ...], n: int, formats: list[str]
) -> dict[str, dict[str, int]]:
    """Bytes that each stage takes beyond what the process has before it, and the forecast.

    Without formats nothing is written.
    """
    from coded import CodesInMemory, domain_of

    from statpress.configs.release_config import PublishConfig
    from statpress.mechanisms.domain.contingency_table import ContingencyTable
    from statpress.mechanisms.registry import REGISTRY
    from statpress.tasks.products.product_kind import kind_of
    from statpress.tasks.release.entropy import SystemRandomness

    domain = domain_of(tuple(sizes))
    knobs = REGISTRY[name].knobs(statistic=STATISTIC[name]) if name in STATISTIC else None
    product = product_of(name, kind, domain, n, knobs)
    rng = np.random.default_rng(1)
    private: Any
    if product.mechanism.needs == "columns":
        columns = tuple(rng.integers(0, k, n).astype(np.uint8) for k in sizes)
        private = CodesInMemory(domain, n, columns)
    else:
        cells, counts = np.unique(rng.integers(0, domain.n_cells, n), return_counts=True)
        private = ContingencyTable(domain, cells, counts)
    kinds = kind_of(product)
    publish = PublishConfig(directory="x", formats=formats or ["csv"], plots=False)
    found: dict[str, int] = {}
    before = _high("VmRSS")

    def stage(title: str) -> None:
        found[title] = _high("VmHWM") - before
        Path("/proc/self/clear_refs").write_text("5")

    Path("/proc/self/clear_refs").write_text("5")
    from randomgen import AESCounter

    raw = product.mechanism.release(private, SystemRandomness(AESCounter(key=1)), lambda _: None)
    stage("draw")
    derived = kinds.postprocess(product, raw, n)
    stage("derive")
    if formats:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "data").mkdir()
            files = kinds.publication(product, derived)
            files.write(Path(folder), publish, lambda _: None)
            stage("write")
            files.profile(Path(folder), publish)
            stage("check")
    return {"measured": found, "foreseen": foreseen(product)}


def _high(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    line = next(each for each in text.splitlines() if each.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def apart(*cases: Any) -> list[Any]:
    """The same of each case, in processes of their own, forked from one that did the imports."""
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, sys.path)])
    found = subprocess.run(
        [sys.executable, "-m", "peaks"], input=json.dumps(cases), check=True,
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    return list(json.loads(found.stdout))


def _main() -> None:
    measured(*SMALL)
    cases = json.load(sys.stdin)
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps([pool.apply(measured, case) for case in cases]))


if __name__ == "__main__":
    _main()
