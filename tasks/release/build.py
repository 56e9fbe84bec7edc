"""Building a bundle: data, debiased tables, codebook, config, its README and seal."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from configs.loading import Release
from mechanisms.planning.plan import Plan
from mechanisms.planning.verdict import disclosures
from tasks.bundle.manifest import REVIEWED, seal
from tasks.ledger_rules.entries import Entry
from tasks.plans.verdicts import mostly_noise
from tasks.products.codebook import codebook, with_words
from tasks.products.files import Profile, profile_product, resources_of, write_product
from tasks.products.markdown import code_span, escaped
from tasks.products.registry import families, kind_of
from tasks.products.report_page import write_report
from tasks.release.places import Run
from tasks.release.statement import charged_statement, statement

_INSECURE = (
    "**NOT PUBLISHABLE: drawn from a known seed, for tests alone. No guarantee holds: whoever "
    "knows the seed can take the noise away. What follows would hold of secret randomness.**\n\n"
)
_FORMULAS = (
    "In text columns of CSV files, a value that a spreadsheet would take for a formula (it begins "
    "with `=`, `+`, `-`, `@`, a tab or a carriage return) has an apostrophe in front."
)
_PACKAGES = ("statpress", "numpy", "opendp", "pyarrow", "python-flint", "randomgen", "scipy")


@dataclasses.dataclass(frozen=True)
class Released:
    """The products of a release, by name; public.

    Attributes:
        raw: What the mechanisms gave.
        derived: What follows from that by post-processing.
    """

    raw: Mapping[str, Any]
    derived: Mapping[str, Any]


def derive(plan: Plan, drawn: Mapping[str, Any]) -> Released:
    """What follows from the released products, by the post-processing of their kinds."""
    n_records = plan.privacy.n_records
    derived = {
        product.name: kind_of(product).postprocess(product, drawn[product.name], n_records)
        for product in plan.products
    }
    return Released(drawn, derived)


def write_bundle(
    run: Run,
    release: Release,
    plan: Plan,
    charge: Entry,
    products: Released,
) -> None:
    """Write everything but the manifest into the folder under construction.

    Args:
        run: Whose folder it is.
        release: The config.
        plan: Of that.
        charge: The ledger's entry.
        products: What was released, and what follows from it.
    """
    (run.building / "data").mkdir()
    publish = release.config.publish
    for product in plan.products:
        derived = products.derived[product.name]
        write_product(run.building, product, derived, publish, run.advance)
    _write_json(run, "privacy.json", charged_statement(run, release, plan, charge, products.raw))
    _write_json(run, "datapackage.json", _datapackage(release, plan))
    (run.building / "config.yaml").write_text(release.text, encoding="utf-8")
    (run.building / "README.md").write_text(_readme(run, release, plan), encoding="utf-8")
    write_report(run.building)


def rehearse(run: Run, release: Release, plan: Plan) -> None:
    """Write and read back of every product what can be without a draw.

    The guarantee is put into words and numbers too: composing takes its time, and whatever
    fails in it must fail before the charge.

    Raises:
        ConfigError: Something that is declared cannot be written.
    """
    _write_json(run, "privacy.json", statement(run, release, plan))
    _write_json(run, "datapackage.json", _datapackage(release, plan))
    _readme(run, release, plan)
    write_report(run.building).unlink()
    for name in ("privacy.json", "datapackage.json"):
        (run.building / name).unlink()
    for product in plan.products:
        kind_of(product).rehearse(run.building, product, release.config.publish)


def profile_bundle(run: Run, release: Release, plan: Plan, derived: Mapping[str, Any]) -> Profile:
    """Profiles of the written data files, and the number of rows each should have."""
    profiles: dict[str, dict[str, int]] = {}
    rows: dict[str, int] = {}
    for product in plan.products:
        found = profile_product(
            run.building, product, derived[product.name], release.config.publish
        )
        profiles |= found[0]
        rows |= found[1]
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
            "versions": versions(),
            "overrides": [override.describe() for override in release.overrides],
            "supersedes": release.supersedes,
            "reprint_of": None,
        },
    )


def versions() -> dict[str, str]:
    """Of Python and of the packages that a bundle depends on."""
    return {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}


def _datapackage(release: Release, plan: Plan) -> dict[str, Any]:
    """Frictionless data package: a resource per file, with schema and codebook."""
    publish = release.config.publish
    resources = [
        resource for product in plan.products for resource in resources_of(product, publish)
    ]
    words = codebook(release.config.domain, release.domain)
    used = {name for product in plan.products for name in product.request.columns}
    described = [{"name": name} | said for name, said in words.items() if name in used]
    return {
        "profile": "data-package",
        "name": _slug(release.config.dataset),
        "title": release.config.title,
        "resources": with_words(resources, words),
        **({"columns": described} if described else {}),
    }


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in text.lower())


def _readme(run: Run, release: Release, plan: Plan) -> str:
    mark = "" if run.insecure_seed is None else _INSECURE
    unit = plan.privacy.unit.removeprefix("column ")
    words = plan.privacy.words.replace(f"`{unit}`", code_span(unit))
    lines = [
        f"# {escaped(release.config.title)}",
        "",
        f"{mark}A release of the dataset {code_span(release.config.dataset)} that "
        f"satisfies ({plan.epsilon:f}, {plan.delta})-differential privacy under "
        f"{plan.privacy.adjacency}, unit: {words}.",
        "",
        "No record of the source is in `data/`: what is there was drawn, or has noise on it. "
        "The order of the rows carries no information.",
        "",
    ]
    for product in plan.products:
        lines.append(kind_of(product).advice(product, plan))
    for name, found in mostly_noise(plan).items():
        lines += [
            "",
            f"**`{name}` is {found.words}.** Its config accepts that: do not read more "
            "than its standard errors allow into any single figure.",
        ]
    for text in disclosures(plan):
        lines += ["", f"**{text}**"]
    if release.supersedes:
        lines += ["", f"It follows the release with the seal `{release.supersedes}`."]
    for kind, products in families(plan.products):
        for note in kind.notes(products):
            lines += ["", note]
    lines += [
        "",
        "`report.html` shows the release on one page. `privacy.json` states the guarantee, "
        "`datapackage.json` the columns and their codes.",
        "Check the bundle with `statpress verify`.",
        "",
    ]
    if "csv" in release.config.publish.formats:
        lines += [_FORMULAS, ""]
    return "\n".join(lines)


def _write_json(run: Run, name: str, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    (run.building / name).write_text(text + "\n", encoding="utf-8")
