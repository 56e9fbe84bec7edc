"""Building a bundle: data, debiased tables, privacy statement, codebook, config."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from configs.loading import Release, describe_column
from mechanisms.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.losses import PrivacyLoss
from mechanisms.mechanism import RawTable
from mechanisms.planning import Plan, PlannedProduct
from mechanisms.table import ContingencyTable
from tasks.entries import Entry
from tasks.manifest import REVIEWED, seal
from tasks.products import (
    figures_of,
    file_forms,
    not_in_it,
    product_files,
    reading_advice,
    unlisted,
    unlisted_in_words,
)
from tasks.run import Run
from tasks.writing import profile_file, write_records

_LISTED_CELLS = 10_000
_INSECURE = (
    "**NOT PUBLISHABLE: drawn from a known seed, for tests alone. No guarantee holds: whoever "
    "knows the seed can take the noise away. What follows would hold of secret randomness.**\n\n"
)
_IMPOSSIBLE = (
    "One of them is that no record lies in a structural zero which the config declares: the "
    "guarantee is between sources of which this is true. "
)
_READ_UNLISTED = (
    "Each product in `privacy.json` states what no file holds. `structural_zeros`: of each "
    "pattern the codes of every column that it names, from first to last; a value's code is its "
    "place, from 0, among the column's declared cells, then `other`, then null. `absent`: how "
    "many absent records the mechanism gave, with its noise if it adds any."
)
_PACKAGES = ("statpress", "numpy", "opendp", "pyarrow", "python-flint", "randomgen")


def write_bundle(
    run: Run,
    release: Release,
    plan: Plan,
    charge: Entry,
    drawn: Mapping[str, RawTable],
) -> None:
    """Write everything but the manifest into the folder under construction."""
    data = run.building / "data"
    data.mkdir()
    for product in plan.products:
        for file in product_files(product, drawn[product.request.name], plan):
            for suffix in release.config.publish.formats:
                file.write(data / f"{file.stem}.{suffix}", run.advance)
    _write_json(run, "privacy.json", privacy_statement(run, release, plan, charge, drawn))
    _write_json(run, "datapackage.json", _datapackage(release, plan))
    (run.building / "config.yaml").write_text(release.text, encoding="utf-8")
    (run.building / "README.md").write_text(_readme(run, release, plan), encoding="utf-8")


def rehearse(run: Run, release: Release, plan: Plan) -> None:
    """Write and read back a table with every declared value of every product.

    The guarantee is put into words and numbers too: composing takes its time, and whatever
    fails in it must fail before the charge.

    Raises:
        ConfigError: A value does not come back as it was written.
    """
    _json_text(_guarantee(plan))
    for product in plan.products:
        domain = Domain(product.domain.columns)  # every value, in whatever combination
        rows = np.arange(min(max(column.size for column in domain.columns), _LISTED_CELLS))
        codes = {column.name: rows % column.size for column in domain.columns}
        cells, counts = np.unique(domain.encode(codes), return_counts=True)
        table = ContingencyTable(domain, cells, counts)
        for suffix in release.config.publish.formats:
            path = run.building / f"rehearsal.{suffix}"
            write_records(table, path)
            found = profile_file(path, domain)
            path.unlink()
            if found.pop("rows") != len(rows) or any(found.values()):
                raise ConfigError(
                    f"A declared value cannot be written to {suffix} and read back.",
                    where=f"products.{product.request.name}",
                )


def profile_bundle(
    run: Run, release: Release, plan: Plan, drawn: Mapping[str, RawTable]
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Profiles of the written data files, and the number of rows each should have."""
    profiles, rows = {}, {}
    for product in plan.products:
        for file in product_files(product, drawn[product.request.name], plan):
            for suffix in release.config.publish.formats:
                path = run.building / "data" / f"{file.stem}.{suffix}"
                profiles[path.name] = profile_file(path, product.domain, file.figures)
                rows[path.name] = file.rows
    return profiles, rows


def seal_bundle(run: Run, release: Release, charge: Entry) -> str:
    """Write the manifest; returns its seal."""
    return seal(
        run.building,
        {
            "dataset": release.config.dataset,
            "title": release.config.title,
            "run_id": run.run_id,
            "created": run.created,
            "publishable": run.insecure_seed is None,
            "config_sha256": release.sha256,
            **(REVIEWED if run.reviewed else {}),
            "ledger_entry": {"sequence": charge.sequence, "hash": charge.hash},
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in _PACKAGES},
        },
    )


def privacy_statement(
    run: Run, release: Release, plan: Plan, charge: Entry, drawn: Mapping[str, RawTable]
) -> dict[str, Any]:
    """What the release reveals at most, with everything needed to recompute it."""
    stated = _guarantee(plan)
    products = {name: fields | unlisted(drawn[name]) for name, fields in stated["products"].items()}
    return {
        "publishable": run.insecure_seed is None,
        "ledger_entry": {"sequence": charge.sequence, "hash": charge.hash},
        "outside_the_guarantee": "Quality checks on the source may stop a run before it is "
        "charged; that a release exists shows that they passed. "
        f"{_IMPOSSIBLE if release.domain.zeros else ''}How long the steps of a run take depends "
        "on the source, and is seen by whoever watches the orchestrator.",
        **stated,
        "products": products,
    }


def _guarantee(plan: Plan) -> dict[str, Any]:
    """What is known of a release's loss before it is charged."""
    privacy = plan.privacy
    return {
        "adjacency": privacy.adjacency,
        "unit": privacy.unit,
        "unit_in_words": privacy.words,
        "n_units": privacy.n_units,
        "unit_records": privacy.unit_records,
        "n_records": privacy.n_records,
        "epsilon": f"{plan.epsilon:f}",
        "delta": str(plan.delta),
        "rho": f"{plan.amounts['rho']:f}",
        "composition": "the privacy losses of the products, composed; their rho adds up (zCDP)",
        "epsilon_lower": plan.epsilon_bounds.lower,
        "epsilon_upper": plan.epsilon_bounds.upper,
        "curve": _curve(plan.loss, float(plan.epsilon)),
        "attack_advantage": plan.attack_advantage,
        "meaning": f"Someone who knows everything but {privacy.words}, and must decide between "
        "two candidates for what it is, gains at most 'attack_advantage' over guessing (true "
        "positive rate minus false positive rate).",
        "products": {p.request.name: _product_statement(p, plan) for p in plan.products},
    }


def _product_statement(product: PlannedProduct, plan: Plan) -> dict[str, Any]:
    error, choice = product.expected_error, product.choice
    chosen = {} if choice is None else {"chosen": choice.reason()}
    return {
        **product.describe(plan.privacy),
        "columns": list(product.domain.names),
        "unbiased": product.mechanism.unbiased,
        "epsilon_lower": product.epsilon_bounds.lower,
        "epsilon_upper": product.epsilon_bounds.upper,
        "attack_advantage": product.attack_advantage,
        "curve": _curve(product.loss, float(product.epsilon)),
        **chosen,
        "expected_error": {name: getattr(error, name) for name in error.__dataclass_fields__},
    }


def _curve(loss: PrivacyLoss, epsilon: float) -> list[dict[str, float]]:
    """Delta at some epsilons up to twice the one charged."""
    curve = []
    for factor in (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2):
        bounds = loss.delta(epsilon * factor)
        curve.append(
            {
                "epsilon": epsilon * factor,
                "delta_lower": bounds.lower,
                "delta_upper": bounds.upper,
            }
        )
    return curve


def _datapackage(release: Release, plan: Plan) -> dict[str, Any]:
    """Frictionless data package: a resource per file, with schema and codebook."""
    resources = []
    for product in plan.products:
        fields = [_field(product, name) for name in product.domain.names]
        for suffix in release.config.publish.formats:
            for stem, figures in file_forms(product).items():
                described = figures_of(product.mechanism)
                extra = [
                    {"name": name, "type": described[name][0], "description": described[name][1]}
                    for name in figures
                ]
                resources.append(
                    {
                        "name": f"{stem}-{suffix}".lower(),
                        "path": f"data/{stem}.{suffix}",
                        "format": suffix,
                        **not_in_it(product.domain),
                        "schema": {"fields": fields + extra},
                    }
                )
    return {
        "profile": "data-package",
        "name": _slug(release.config.dataset),
        "title": release.config.title,
        "resources": resources,
    }


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in text.lower())


def _field(product: PlannedProduct, name: str) -> dict[str, Any]:
    """A column with its declaration and, if short enough, its codebook."""
    column = product.domain[name]
    values = column.decode(np.arange(min(column.size, _LISTED_CELLS) - column.missing))
    types = {"i": "integer", "f": "number", "b": "boolean"}
    kind = types.get(np.asarray(values.tolist()).dtype.kind, "string")
    field: dict[str, Any] = {"name": name, "type": kind, "declared": describe_column(column)}
    if column.size <= _LISTED_CELLS:
        field["constraints"] = {"enum": values.tolist(), "required": not column.missing}
    return field


def _readme(run: Run, release: Release, plan: Plan) -> str:
    mark = "" if run.insecure_seed is None else _INSECURE
    lines = [
        f"# {release.config.title}",
        "",
        f"{mark}A release of the dataset `{release.config.dataset}` that satisfies "
        f"({plan.epsilon:f}, {plan.delta})-differential privacy under {plan.privacy.adjacency}, "
        f"unit: {plan.privacy.words}.",
        "",
        "No record of the source is in `data/`: what is there was drawn, or has noise on it. "
        "The order of the rows carries no information.",
        "",
    ]
    for product in plan.products:
        lines.append(reading_advice(product, plan))
    words = max((unlisted_in_words(product.domain) for product in plan.products), key=len)
    if words:
        lines += ["", f"**Not in any file.** {words} {_READ_UNLISTED}"]
    lines += [
        "",
        "`privacy.json` states the guarantee, `datapackage.json` the columns and their codes.",
        "Check the bundle with `statpress verify`.",
        "",
    ]
    return "\n".join(lines)


def _write_json(run: Run, name: str, value: Any) -> None:
    (run.building / name).write_text(_json_text(value), encoding="utf-8")


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
