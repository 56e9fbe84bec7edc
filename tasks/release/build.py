"""Building a bundle: data, debiased tables, codebook, config, its README and seal.

``privacy.json`` has the guarantee of a release, with everything needed to recompute it. With the
charge come the sums of the dataset's account as they stand in the ledger right after it,
whatever follows. What the guarantee does not cover is in the template ``not_covered.md.jinja``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from statpress.configs.formats import STAT
from statpress.configs.loading import Release
from statpress.configs.privacy_statement import FORMAT
from statpress.mechanisms.accounting.balls import Bounds
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.panel_design import Panel
from statpress.mechanisms.domain.domain import Adjacency, Domain, Size
from statpress.mechanisms.mechanism import PROOF
from statpress.mechanisms.planning.plan import ADVICE, Plan, PlannedProduct, disclosures
from statpress.tasks.bundle.manifest import REHEARSED, REVIEWED, seal_and_sign
from statpress.tasks.catalogues.data_package import data_package, write_codebook, write_package
from statpress.tasks.catalogues.metadata_files import rehearse_metadata, write_metadata
from statpress.tasks.catalogues.usage import with_publication
from statpress.tasks.ledger.account_rules import panel_after
from statpress.tasks.ledger.accounts import Account, limit_of
from statpress.tasks.ledger.entries import Entry, Loss, canonical
from statpress.tasks.pages.numbers import at_most, how_many
from statpress.tasks.pages.rendering import code_span, markdown
from statpress.tasks.products.beside import differences, with_beside
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.products.publication import Profile, codebook
from statpress.tasks.release.foreseen import accepted, rehearse_mechanism, unusable, verdict_facts
from statpress.tasks.release.runs import REHEARSAL, Run
from statpress.tasks.report.privacy_page import EXPLANATIONS, write_privacy_page
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


def lifetime(account: Account, charge: Entry) -> dict[str, Any]:
    """Policy, limit and sums right after a charge, whatever followed it; public.

    Args:
        account: Of the dataset, with its registration and amendments.
        charge: The ledger's entry, which states the sum of all charges up to it that were not
            given back.

    Returns:
        Amounts as decimal texts by measure: ``limit`` and ``remaining`` in the measures of the
        policy that was in force, ``spent_before`` and ``spent`` in all. Under a design these are
        the largest loss of one person who takes part in the period, in the policy's measures.
    """
    entries = (account.registration, *account.amendments)
    before = [entry.body for entry in entries if entry.sequence < charge.sequence]
    terms = before[-1]
    limit, body = limit_of(terms), charge.body
    if "design" in body:
        spent = Loss.sums(body["spent_by_one"], limit.amounts)
        panel = functools.reduce(panel_after, before, Panel())
        stated = {"design": body["design"], "design_in_words": panel.words}
    else:
        spent, stated = Loss.sums(body["spent"]), {}
    return {
        "dataset": account.dataset,
        "policy": terms["policy"],
        **stated,
        **({"period": body["period"]} if "period" in body else {}),
        "limit": limit.texts(),
        "spent_before": (spent - Loss.of(body)).texts(),
        "spent": spent.texts(),
        "remaining": (limit - spent).texts(),
        **_shared(account, charge),
    }


def _shared(account: Account, charge: Entry) -> dict[str, Any]:
    """Which other accounts are about the same sources, as it was said before the charge."""
    binding = account.binding
    if binding is None or binding.sequence > charge.sequence or not binding.body["also_in"]:
        return {}
    return {"also_in": binding.body["also_in"], "reason": binding.body["reason"]}


def not_covered(
    release: Release, plan: Plan, *, publishable: bool, rehearsal: bool = False
) -> list[str]:
    """What the guarantee does not cover, in sentences, from the config only."""
    unit = plan.privacy.unit
    text = markdown(
        "not_covered.md.jinja",
        noisy=plan.gate is not None,
        publishable=publishable,
        rehearsal=rehearsal,
        zeros=release.domain.zeros,
        curator=release.config.curator.report,
        weight="" if release.config.weight is None else release.config.weight.column,
        column=unit.removeprefix("column ") if unit.startswith("column ") else "",
        privacy=plan.privacy,
    )
    return text.strip().split("\n\n")


SCHEMA = "privacy.schema.json"
"""The JSON Schema of the statement: a file of ``configs``, and of every bundle."""
FALSE_POSITIVE_RATES = (Fraction(1, 100), Fraction(1, 20))
"""At which the trade-off is stated."""


def statement(
    release: Release, plan: Plan, *, publishable: bool, rehearsal: bool = False
) -> dict[str, Any]:
    """What the release reveals at most, as far as it is known before the charge."""
    sentences = not_covered(release, plan, publishable=publishable, rehearsal=rehearsal)
    return {
        "publishable": publishable,
        **(REHEARSED if rehearsal else {}),
        "outside_the_guarantee": " ".join(sentences),
        "not_covered": sentences,
        **_guarantee(release, plan),
    }


def charged_statement(
    release: Release,
    plan: Plan,
    charge: Entry | None,
    spent: Mapping[str, Any],
    drawn: Mapping[str, Any],
    *,
    publishable: bool,
) -> dict[str, Any]:
    """The statement with its charge, and with what is known of the products once they are drawn.

    A rehearsal has no charge.
    """
    stated = statement(release, plan, publishable=publishable, rehearsal=charge is None)
    total = plan.estimated_total(drawn)
    estimated = {} if total is None else {"estimated_records": total.records}
    products = {
        product.request.name: stated["products"][product.request.name]
        | kind_of(product).stated(product, drawn[product.request.name])
        | estimated
        for product in plan.products
    }
    if total is not None:
        stated |= {**estimated, "estimated_records_sd": math.sqrt(total.variance)}
    charged = {} if charge is None else {
        "$schema": SCHEMA,
        "format": FORMAT,
        "ledger_entry": {"sequence": charge.sequence, "hash": charge.hash},
        "lifetime": dict(spent),
        "source": release.config.source.kind,
    }  # fmt: skip
    return charged | stated | {"products": products}


_PROVEN = {
    Adjacency.REPLACE_ONE: (),
    Adjacency.ADD_REMOVE: (PROOF.at("Theorems 3.5 and 5.8, section 11"),),
}
_DECIDED = {
    Adjacency.REPLACE_ONE: "between two candidates for what it is",
    Adjacency.ADD_REMOVE: "whether it is there",
}


def _guarantee(release: Release, plan: Plan) -> dict[str, Any]:
    """What is known of a release's loss before it is charged."""
    privacy = plan.privacy
    return {
        "adjacency": privacy.adjacency,
        "unit": privacy.unit,
        "unit_in_words": privacy.words,
        "n_units": privacy.n_units,
        "unit_records": privacy.unit_records,
        "n_records": privacy.n_records,
        **({} if privacy.size is Size.DECLARED else {"size": privacy.size}),
        "epsilon": f"{plan.epsilon:f}",
        "delta": str(plan.delta),
        "rho": f"{plan.amounts['rho']:f}",
        **({"rho_delta": str(least)} if (least := plan.amounts["rho_delta"]) else {}),
        "composition": "the privacy losses of the products, composed; rho and its delta add up",
        "epsilon_lower": plan.epsilon_bounds.lower,
        "epsilon_upper": plan.epsilon_bounds.upper,
        "curve": _curve(plan.loss, float(plan.epsilon)),
        "attack_advantage": plan.attack_advantage,
        "meaning": f"Someone who knows everything but {privacy.words}, and must decide "
        f"{_DECIDED[privacy.adjacency]}, gains at most {at_most(plan.attack_advantage)} over "
        "guessing (true positive rate minus false positive rate).",
        "trade_off": _trade_off(plan.loss, float(plan.epsilon)),
        "warnings": disclosures(plan),
        "explanations": EXPLANATIONS,
        "citations": {
            product.mechanism.name: [
                each.describe()
                for each in (*product.mechanism.citations, *_PROVEN[privacy.adjacency])
            ]
            for product in plan.charged
        },
        **_checks(plan),
        "products": {p.request.name: _product_statement(release, p, plan) for p in plan.products},
    }


def _checks(plan: Plan) -> dict[str, Any]:
    """What noisy checks of the input cost; nothing where they are exact."""
    if plan.gate is None:
        return {}
    return {
        "checks": {
            **plan.gate.describe(plan.privacy),
            "attack_advantage": plan.gate.attack_advantage,
            "expected_error": dataclasses.asdict(plan.gate.expected_error),
        }
    }


def _product_statement(
    release: Release, product: PlannedProduct[Any], plan: Plan
) -> dict[str, Any]:
    choice = product.choice
    chosen = {} if choice is None else {"chosen": choice.reason()}
    return {
        **product.describe(plan.privacy),
        "columns": list(product.domain.names),
        "epsilon_lower": product.epsilon_bounds.lower,
        "epsilon_upper": product.epsilon_bounds.upper,
        "attack_advantage": product.attack_advantage,
        "curve": _curve(product.loss, float(product.epsilon)),
        "trade_off": _trade_off(product.loss, float(product.epsilon)),
        **chosen,
        "kind": product.kind.name,
        "expected_error": dataclasses.asdict(product.expected_error),
        "verdict": verdict_facts(release, product),
    }


@functools.lru_cache(maxsize=64)  # a run asks twice: before the charge, and after it
def _missed(loss: PrivacyLoss, epsilon: float) -> tuple[float, ...]:
    return loss.missed_at_least(FALSE_POSITIVE_RATES, epsilon)


def _trade_off(loss: PrivacyLoss, epsilon: float) -> list[dict[str, float]]:
    """What every attack misses at some false-positive rates, at least."""
    return [
        {"false_positive_rate": float(rate), "false_negative_rate_at_least": missed}
        for rate, missed in zip(FALSE_POSITIVE_RATES, _missed(loss, epsilon), strict=True)
    ]


@functools.lru_cache(maxsize=64)  # as above
def _deltas(loss: PrivacyLoss, epsilon: float) -> tuple[tuple[float, Bounds], ...]:
    factors = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)
    return tuple((epsilon * factor, loss.delta(epsilon * factor)) for factor in factors)


def _curve(loss: PrivacyLoss, epsilon: float) -> list[dict[str, float]]:
    """Delta at some epsilons up to twice the one charged."""
    return [
        {"epsilon": at, "delta_lower": bounds.lower, "delta_upper": bounds.upper}
        for at, bounds in _deltas(loss, epsilon)
    ]
