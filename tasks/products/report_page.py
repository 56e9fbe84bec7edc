"""``report.html``: a bundle on one page, for reading; made from its public files alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from mechanisms.base.parameters import shown
from mechanisms.planning.registry import kinds
from mechanisms.planning.verdict import Verdict
from tasks.products.kind import Excerpt
from tasks.products.registry import kind_named

NAME = "report.html"
_NOT_ERRORS = ("one_way_share", "screen_share", "memory", "quantities")
_LABELS = {
    "cell_sd_empty": "expected sd of an empty cell",
    "cell_sd_most": "expected sd of a cell, at most",
    "total_variation": "expected total variation unprojected, at most",
    "uniform_share": "share of records that are uniform",
    "one_way_total_variation": "expected total variation, one column",
    "bound_95": "largest error with 95 %, at most",
    "least_error": "no release errs less for all data",
    "noise_sd_middle": "sd of the noise in the middle",
    "confidence": "level of the bands",
    "cell_band_records": "band of all cells, half width in records",
    "cell_band_share": "band of all cells, half width in shares of the law",
    "cumulative_band_records": "band of the cumulative counts, half width in records",
    "cumulative_band_share": "band of the distribution function, half width",
}
"""Of the expected errors that two plans are not compared by."""
_PARAMETERS = (
    "scale", "pseudocount", "records", "blocks", "uniform", "degree", "order", "quantity_1",
    "step_bits",
)  # fmt: skip
"""What the page shows of a mechanism, as far as it is for people."""


def write_report(folder: Path) -> Path:
    """Write the page of a bundle, from its ``privacy.json``, ``datapackage.json`` and plots.

    The page asks no other host for anything, and holds no script.
    """
    from jinja2 import Environment, StrictUndefined

    stated = _json(folder / "privacy.json")
    package = _json(folder / "datapackage.json")
    # Every value is escaped: titles and names are words of whoever wrote the config.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        files("tasks.products").joinpath("report.html.jinja").read_text(encoding="utf-8")
    )
    page = template.render(
        title=package["title"],
        stated=stated,
        columns=package.get("columns", []),
        products=[
            {
                "name": name,
                "facts": product,
                "expected": _expected(product["expected_error"]),
                "verdict": _verdict(product),
                "noise": product.get("verdict", {}).get("name") == "mostly_noise",
                "parameters": dict(shown({k: v for k, v in product.items() if k in _PARAMETERS})),
                "files": [
                    resource["path"]
                    for resource in package["resources"]
                    if _belongs(resource["path"], name, stated["products"])
                ],
                "excerpts": _excerpts(folder, name, product),
                "plot": _plot(folder / "plots" / f"{name}.png"),
            }
            for name, product in stated["products"].items()
        ],
    )
    path = folder / NAME
    path.write_text(page, encoding="utf-8")
    return path


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _excerpts(folder: Path, name: str, product: Mapping[str, Any]) -> list[Excerpt]:
    """What its kind shows of a product."""
    found = kind_named(product["kind"], product["mechanism"]).excerpt(folder, name)
    return [] if found is None else [found, *found.following]


def _belongs(path: str, name: str, names: Mapping[str, Any]) -> bool:
    """Whether a file is the product's: the longest name that its own begins with."""
    stem = Path(path).stem
    owners = [each for each in names if stem == each or stem.startswith(f"{each}_")]
    return bool(owners) and max(owners, key=len) == name


def _expected(error: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Expected errors in words and short numbers; those that are not known are left out."""
    found = []
    labels = {**_LABELS, **{k: v for kind in kinds().values() for k, v in kind.compared.items()}}
    for name, value in error.items():
        if value is None or name in _NOT_ERRORS:
            continue
        label = labels.get(name, f"expected {name.replace('_', ' ')}")
        values = value if isinstance(value, list) else [value]
        shown = ", ".join(
            f"{v:.4g}" if isinstance(v, float | int) else str(v) for v in values if v is not None
        )
        if not shown:
            continue
        found.append((label, shown))
    return found


def _verdict(product: Mapping[str, Any]) -> str:
    """The verdict in words, if the bundle states one."""
    stated = Verdict.stated(product)
    return "" if stated is None else stated.words


def _plot(path: Path) -> str | None:
    """A picture as a data address, None without one."""
    if not path.is_file():
        return None
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
