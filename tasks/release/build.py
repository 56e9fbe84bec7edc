"""Building a bundle: data, debiased tables, codebook, config, its README and seal."""

from __future__ import annotations

import dataclasses
import functools
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from statpress.configs.formats import STAT
from statpress.configs.loading import Release
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.planning.plan import ADVICE, Plan, disclosures
from statpress.tasks.bundle.manifest import REHEARSED, REVIEWED, seal_and_sign
from statpress.tasks.catalogues.data_package import (
    data_package,
    write_codebook,
    write_package,
)
from statpress.tasks.catalogues.metadata_files import rehearse_metadata, write_metadata
from statpress.tasks.catalogues.usage import with_publication
from statpress.tasks.ledger.entries import Entry, canonical
from statpress.tasks.pages.numbers import how_many
from statpress.tasks.pages.rendering import code_span, markdown
from statpress.tasks.products.beside import differences, with_beside
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.products.publication import Profile, codebook
from statpress.tasks.release.foreseen import accepted, rehearse_mechanism, unusable
from statpress.tasks.release.run_places import REHEARSAL, Run
from statpress.tasks.release.statement import SCHEMA, charged_statement, statement
from statpress.tasks.report.privacy_page import write_privacy_page
from statpress.tasks.report.report import NAME as REPORT
from statpress.tasks.report.report import write_report

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
    n_records = plan.size_of(drawn)
    derived = {
        product.name: kind_of(product).postprocess(
            product, with_beside(product, plan, drawn), n_records
        )
        for product in plan.products
    }
    return Released(drawn, derived)


def write_bundle(
    run: Run,
    release: Release,
    plan: Plan,
    charge: Entry | None,
    spent: Mapping[str, Any],
    products: Released,
) -> None:
    """Write everything but the manifest into the folder under construction."""
    (run.building / "data").mkdir()
    publish = release.config.publish
    words = codebook(release.config.columns, Domain(release.domain.declared))
    for product in plan.products:
        files = kind_of(product).publication(product, products.derived[product.name])
        files.write(run.building, publish, run.advance, words)
    stated = charged_statement(
        release, plan, charge, spent, products.raw, publishable=run.publishable
    )
    _write_json(run, "privacy.json", stated)
    write_schema(run.building)
    write_privacy_page(run.building)
    package = _package(run, release, plan)
    write_package(run.building, package)
    write_codebook(run.building, package)
    write_metadata(run.building, with_sdmx=publish.sdmx)
    (run.building / "config.yaml").write_text(release.text, encoding="utf-8")
    apart = differences(plan, products.raw, products.derived)
    openings = write_report(
        run.building, _manifest_facts(run, release, charge), pictures=publish.plots
    )
    n_records = plan.size_of(products.raw)
    readme = _readme(run, release, plan, package, [*openings, *apart], n_records)
    (run.building / "README.md").write_text(readme, encoding="utf-8")


def rehearse(run: Run, release: Release, plan: Plan) -> None:
    """Write and read back of every product what can be without a draw.

    The guarantee is put into words and numbers too: composing takes its time, and whatever
    fails in it must fail before the charge.

    Raises:
        ConfigError: Something that is declared cannot be written.
    """
    stated = statement(release, plan, publishable=run.publishable, rehearsal=run.rehearsal)
    _write_json(run, "privacy.json", stated)
    package = _package(run, release, plan)
    write_package(run.building, package)
    write_codebook(run.building, package).unlink()
    _readme(run, release, plan, package)
    pictures = release.config.publish.plots
    rehearse_metadata(run.building, with_sdmx=release.config.publish.sdmx)
    write_report(run.building, _manifest_facts(run, release, None), pictures=pictures)
    write_privacy_page(run.building).unlink()
    for name in ("privacy.json", "datapackage.json", REPORT):
        (run.building / name).unlink()
    for product in plan.products:
        kind, where = kind_of(product), f"products.{product.name}"
        files = kind.publication(product)
        files.check_size(release.config.publish, where)
        rehearse_mechanism(product, where)
        kind.working_memory(product).check(where)
        files.rehearse(run.building, release.config.publish, where)


def profile_bundle(run: Run, release: Release, plan: Plan, derived: Mapping[str, Any]) -> Profile:
    """Profiles of the written data files, and the number of rows each should have."""
    profiles: dict[str, dict[str, int]] = {}
    rows: dict[str, int] = {}
    for product in plan.products:
        files = kind_of(product).publication(product, derived[product.name])
        found = files.profile(run.building, release.config.publish)
        profiles |= found[0]
        rows |= found[1]
    return profiles, rows


def seal_bundle(run: Run, release: Release, charge: Entry | None) -> str:
    """Write the manifest, and sign it if the run has a key; returns its seal."""
    return seal_and_sign(run.building, _manifest_facts(run, release, charge), run.signer)


def _manifest_facts(run: Run, release: Release, charge: Entry | None) -> dict[str, Any]:
    """What the manifest says besides its files; before the charge there is no entry."""
    entry = None if charge is None else {"sequence": charge.sequence, "hash": charge.hash}
    return {
        "dataset": release.config.dataset,
        "title": release.config.title,
        "run_id": run.run_id,
        "created": run.created,
        "publishable": run.publishable,
        **(REHEARSED if run.rehearsal else {}),
        "config_sha256": release.sha256,
        **(REVIEWED if run.reviewed else {}),
        "ledger_entry": entry,
        "versions": versions(release.config.publish.formats),
        "overrides": [override.describe() for override in release.overrides],
        "supersedes": release.supersedes,
        "reprint_of": None,
    }


def versions(formats: Iterable[str] = ()) -> dict[str, str]:
    """Of Python and of the packages that a bundle with files of these formats depends on."""
    names = (*_PACKAGES, *(("pyreadstat",) if {*formats} & {*STAT} else ()))
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


@functools.cache
def _version(package: str) -> str:
    """That of an installed package, whose metadata are read once."""
    return version(package)


def _package(run: Run, release: Release, plan: Plan) -> dict[str, Any]:
    return data_package(
        release.config,
        release.domain,
        plan.products,
        run_id=run.run_id.removeprefix(REHEARSAL),
        created=run.created,
    )


def _readme(
    run: Run,
    release: Release,
    plan: Plan,
    package: Mapping[str, Any],
    openings: Sequence[str] = (),
    n_records: int | None = None,
) -> str:
    privacy = plan.privacy
    number = n_records or privacy.n_records
    config, unit = release.config, plan.privacy.unit.removeprefix("column ")
    spoken = [kind_of(product).words(product, plan) for product in plan.products]
    notes: dict[str, str] = {}
    for topic, note in (item for words in spoken for item in words.notes.items()):
        notes[topic] = max(notes.get(topic, ""), note, key=len)
    text = markdown(
        "README.md.jinja",
        title=config.title,
        description=(config.about.description or "").split("\n"),
        publishable=run.publishable,
        rehearsal=run.rehearsal,
        dataset=config.dataset,
        epsilon=canonical(plan.epsilon),
        delta=canonical(plan.delta),
        adjacency=str(plan.privacy.adjacency),
        size=how_many(-(-number // privacy.unit_records), number, privacy.size),
        unit=plan.privacy.words.replace(f"`{unit}`", code_span(unit)),
        advice=[words.item for words in spoken],
        openings=openings,
        unusable=[
            (name, each.words, ADVICE[each.name], accepted(release, name, each))
            for name, each in unusable(plan).items()
        ],
        warnings=disclosures(plan),
        supersedes=release.supersedes,
        notes=list(notes.values()),
        sdmx=config.publish.sdmx,
        csv="csv" in config.publish.formats,
    )
    return with_publication(text, package)


def write_schema(folder: Path) -> None:
    """Write the JSON Schema of ``privacy.json`` beside it."""
    (folder / SCHEMA).write_bytes(files("statpress.configs").joinpath(SCHEMA).read_bytes())


def _write_json(run: Run, name: str, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    (run.building / name).write_text(text + "\n", encoding="utf-8")
