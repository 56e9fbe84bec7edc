"""Earlier bundles as priors: found, verified, compared with a plan, before anything is charged.

A bundle that the ledger charged for is an output, so that what a later release does with it is
free. One whose randomness came from a known seed is none, and is taken for tests only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from statpress.configs.loading import Release
from statpress.mechanisms.errors import ConfigError, StatpressError
from statpress.mechanisms.marginals.denoising import Model
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.prior import Prior
from statpress.mechanisms.marginals.residuals import NoisyMarginals
from statpress.mechanisms.periods import SeriesPeriod
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.tasks.bundle.manifest import MANIFEST_NAME, STATEMENT, understood, verify_bundle
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.products.noisy_tables import published_marginals, with_scores
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.series_periods import stated_manifest


def with_priors(home: Home, release: Release, plan: Plan, *, seeded: bool) -> Plan:
    """The plan with what the bundles say that its products name as their priors.

    Args:
        home: Whose ledger charged for them.
        release: The config.
        plan: Its plan.
        seeded: Whether the run is for tests only, its randomness being from a known seed.

    Raises:
        BundleVerificationError: A bundle is not whole, not readable by this version, or not one
            that this ledger charged for and noted as published.
        ConfigError: It has no such columns, or no such unit.
    """
    products = [
        product if prior is None else replace(product, mechanism=_after(product, prior))
        for product in plan.products
        for prior in [_prior(home, release, plan, product, seeded)]
    ]
    return replace(plan, products=tuple(products))


def prior_faults(release: Release, plan: Plan) -> Iterator[StatpressError]:
    """What is wrong with the bundles that products name as their priors."""
    for product in plan.products:
        try:
            _earlier(release, plan, product, seeded=False)
        except StatpressError as error:
            yield error


def _after(product: PlannedProduct[Any], prior: Prior) -> Marginals:
    mechanism: Marginals = product.mechanism
    return replace(mechanism, prior=prior)


def _prior(
    home: Home, release: Release, plan: Plan, product: PlannedProduct[Any], seeded: bool
) -> Prior | None:
    found = _earlier(release, plan, product, seeded=seeded, home=home)
    if found is None:
        return None
    released, seal = found
    prior = Model.of(released).as_prior(released, seal)
    return prior.of_columns([released.domain.names.index(name) for name in product.domain.names])


def _earlier(
    release: Release,
    plan: Plan,
    product: PlannedProduct[Any],
    *,
    seeded: bool,
    home: Home | None = None,
) -> tuple[NoisyMarginals, str] | None:
    """What the bundle that a product names holds, and its seal; None if it names none."""
    if not isinstance(product.request.knobs, MarginalsKnobs):
        return None
    named = product.request.knobs.prior
    series = release.config.series
    carried = named is None and series is not None and series.carry == "prior"
    folder = newest_before(release, seeded=seeded) if carried else named and release.located(named)
    if not folder:
        return None
    manifest = verify_bundle(folder)
    keys = ("series", "carry") if carried else ("products", product.name, "prior")
    place = f"{release.document.where(keys)}: {folder}"
    if not manifest["publishable"] and not seeded:
        raise ConfigError(
            "The bundle is NOT PUBLISHABLE: it was drawn from a known seed, so that a release which"
            " uses it would have no guarantee.",
            where=place,
            next_step="Name a bundle of 'statpress run'.",
        )
    if home is not None and manifest["publishable"]:  # else no more than its own word says so
        check_bundle(home, folder, manifest)
    with understood(folder):
        stated = json.loads((folder / STATEMENT).read_text(encoding="utf-8"))
        package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        able = [
            n for n, facts in stated["products"].items() if facts["mechanism"] == Marginals.name
        ]
        unit = stated["unit_in_words"]
    name = product.name if product.name in able else able[0] if len(able) == 1 else None
    if name is None and carried:
        return None  # the product is new
    if name is None:
        raise ConfigError(
            f"The bundle has no product '{product.name}' by '{Marginals.name}', and not one other.",
            where=place,
            next_step="Give the product the name that it has there.",
        )
    if unit != plan.privacy.words:
        raise ConfigError(
            f"The bundle protects {unit}, and this release {plan.privacy.words}.",
            where=place,
            next_step="Leave out 'prior', or declare the same unit.",
        )
    own = stated["products"][name]
    released = published_marginals(folder, name, own, package["resources"])
    for column in product.domain.columns:
        there = column.name in released.domain.names
        if not there or released.domain[column.name] != column:
            flaw = f"declares the column '{column.name}' otherwise"
            raise ConfigError(
                f"The bundle {flaw if there else f'has no column {column.name!r}'}.",
                where=place,
                next_step="Declare it as in the bundle's config.yaml, or leave out 'prior'.",
            )
    return with_scores(released, folder, name, own), manifest["seal"]


def newest_before(release: Release, *, seeded: bool) -> Path | None:
    """The newest bundle of the newest earlier period that has one; None if none has.

    Args:
        release: One of a period of a series.
        seeded: Whether bundles that are not publishable count too.
    """
    if release.period is None:
        return None
    found = []
    for manifest in release.directory.parent.glob(f"*/*/{MANIFEST_NAME}"):
        with suppress(ValueError):  # a folder that is not a period's, such as ``latest``
            period = SeriesPeriod.parse(manifest.parent.parent.name, release.period.by)
            stated = stated_manifest(manifest.parent)
            if period < release.period and (seeded or stated.get("publishable")):
                found.append((period, str(stated.get("created", "")), manifest.parent))
    return max(found)[2] if found else None
