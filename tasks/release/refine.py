"""Refined tables from a published bundle: free post-processing, without data or ledger.

What is written depends on the bundle, the options and the version only; there is no clock
and no randomness in it. The folder appears in one step.

A published bundle is opened here for whatever else is derived from it, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.configs.formats import Format
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import BundleExistsError, OutputNotWritableError, RefinementError
from statpress.mechanisms.marginals.marginals import Marginals
from statpress.mechanisms.postprocessing.consistency import (
    Floats,
    NoisyTable,
    disagreement,
    project_consistently,
)
from statpress.mechanisms.postprocessing.covariance import reconcile
from statpress.mechanisms.postprocessing.rounding import round_table, round_to_total
from statpress.tasks.bundle.manifest import MANIFEST_NAME as MANIFEST
from statpress.tasks.bundle.manifest import understood, verify_bundle
from statpress.tasks.bundle.rows import cell_rows, write_rows
from statpress.tasks.private_zone.folders import sync
from statpress.tasks.products.product_kind import KINDS, kind_named
from statpress.tasks.products.publication import not_in_it, size_stated, unlisted_in_words
from statpress.tasks.products.published_counts import PublishedProduct, figures_of


@dataclass(frozen=True)
class PublishedBundle:
    """A verified bundle.

    Attributes:
        folder: Where it lies.
        manifest: As verified.
        n_records: The public number of records.
        products: By name, those whose counts are published.
        without_counts: Names of the others.
        by_marginals: Names of those of them that are microdata by marginals.
        adjacency: The neighbouring relation.
    """

    folder: Path
    manifest: Mapping[str, Any]
    n_records: int
    products: Mapping[str, PublishedProduct]
    without_counts: tuple[str, ...]
    by_marginals: tuple[str, ...]
    adjacency: Adjacency


def open_bundle(folder: Path) -> PublishedBundle:
    """Verify a bundle and rebuild its domain and mechanisms; reads no data file but to hash it.

    Raises:
        BundleVerificationError: The bundle is not whole, or not as this version writes it.
    """
    manifest = verify_bundle(folder)
    with understood(folder):
        stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
        package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        resources = {resource["path"]: resource for resource in package["resources"]}
        n_records = size_stated(stated)
        if type(n_records) is not int or n_records < 1:
            raise ValueError("its number of records is not a positive integer")
        products, without = {}, []
        for name, description in stated["products"].items():
            for frame in ("n_records", "unit_records"):
                if description[frame] != stated[frame]:
                    raise ValueError(f"its {frame} is stated in two ways")
            product = None
            stated_kind = description.get("kind") or _kind_by_files(name, resources)
            if stated_kind in KINDS:
                kind = kind_named(stated_kind, description["mechanism"])
                product = kind.published(folder, name, description, resources)
            if product is None:
                without.append(name)
            else:
                products[name] = product
        wide = [n for n in without if stated["products"][n].get("mechanism") == Marginals.name]
    return PublishedBundle(
        folder, manifest, n_records, products, tuple(without), by_marginals=tuple(wide),
        adjacency=Adjacency(stated["adjacency"]),
    )  # fmt: skip


def _kind_by_files(name: str, resources: Mapping[str, Any]) -> str:
    """The kind of a product of a version that did not state kinds: a table has a column ``raw``."""
    files = [file for path, file in resources.items() if path.startswith(f"data/{name}.")]
    raw = any(field["name"] == "raw" for file in files for field in file["schema"]["fields"])
    return "table" if raw else "microdata"


PROVENANCE = "refinement.json"
ROUNDED = (
    "integer",
    "The projected counts rounded to integers that add up to the public number of records; each "
    "differs from the projected one by less than 1.",
)
ROUNDED_LISTED = (
    "integer",
    "The projected counts rounded to integers that add up to the one nearest to their sum; each "
    "differs from the projected one by less than 1.",
)
CONSISTENT = {
    "estimate": (
        "number",
        "Unbiased estimate of the count, pooled with the other tables of this folder so that all "
        "agree on every marginal they share; may be negative.",
    ),
    "projected": (
        "number",
        "The nearest counts to the estimates that are not negative, agree with the other tables "
        "and add up to the public number of records; for use as a table, not for intervals.",
    ),
}


@dataclass(frozen=True)
class RefinedTable:
    """A refined table: a row per listed cell.

    Attributes:
        product: What it was made of.
        cells: int64[K], ascending.
        figures: Per column beside the domain's its values, array[K].
        rounding: What the rounded figures keep, if there are any.
    """

    product: PublishedProduct
    cells: Codes
    figures: dict[str, NDArray[Any]]
    rounding: str | None = None

    @property
    def domain(self) -> Domain:
        """The product's columns."""
        return self.product.domain

    def dense(self, name: str) -> Floats:
        """A figure on all axes; only of tables that list every cell."""
        return self.figures[name].astype(np.float64).reshape([c.size for c in self.domain.columns])


def write_refined(
    building: Path, tables: Sequence[RefinedTable], facts: Mapping[str, Any], form: str
) -> None:
    """Write data files, their data package and the statement of what was done."""
    (building / "data").mkdir()
    resources = []
    for table in tables:
        rounded = ROUNDED_LISTED if table.domain.absent else ROUNDED
        described = figures_of(table.product.mechanism) | {"rounded": rounded}
        if facts["options"]["consistent"]:
            described |= CONSISTENT
        relative = f"data/{table.product.name}.{form}"
        path = building / relative
        write_rows(cell_rows(table.domain, table.cells, table.figures), path)
        figures = [
            {"name": name, "type": described[name][0], "description": described[name][1]}
            for name in table.figures
        ]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        resources.append(
            {
                "name": f"{table.product.name}-{form}".lower(),
                "path": relative,
                "format": form,
                **({"description": words} if (words := not_in_it(table.domain)) else {}),
                "bytes": path.stat().st_size,
                "hash": f"sha256:{digest}",
                "schema": {"fields": [*table.product.fields, *figures]},
            }
        )
    package = {
        "profile": "data-package",
        "name": f"refined-{facts['source']['seal'][:12]}",
        "title": f"Refined tables of: {facts['source']['title']}",
        "resources": resources,
    }
    for name, value in ((PROVENANCE, facts), ("datapackage.json", package)):
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        (building / name).write_text(text + "\n", encoding="utf-8")


def check_place(output: Path, option: str = "--output") -> None:
    """Refuse a place that is taken, or inside a bundle, which would no longer verify."""
    if os.path.lexists(output):
        raise BundleExistsError(
            "There is something at this place.",
            where=str(output),
            next_step=f"Choose another {option}; nothing is ever overwritten.",
        )
    real = output.resolve()
    if any((part / MANIFEST).exists() for part in real.parents):
        raise OutputNotWritableError(
            "The output lies inside a bundle, which would no longer verify.",
            where=str(output),
            next_step=f"Choose an {option} beside the bundle.",
        )


@contextmanager
def appearing(output: Path, option: str = "--output") -> Iterator[Path]:
    """A hidden folder beside the output that takes its place once it is whole."""
    next_step = f"Choose another {option}, or mend its permissions or free space."
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".refining-", dir=output.parent))
        try:
            yield building
            for path in (*building.rglob("*"), building):
                path.chmod(0o755 if path.is_dir() else 0o644)
                sync(path)
            check_place(output, option)
            building.rename(output)
            sync(output.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise OutputNotWritableError(
            f"The output cannot be written ({error.strerror}).",
            where=str(output),
            next_step=next_step,
        ) from None


FORMAT = "statpress-refinement/1"
_TWO_WAY_CELLS = 100_000
_SOURCE = ("seal", "dataset", "title", "run_id", "created", "publishable", "config_sha256")
_PACKAGES = ("statpress", "numpy", "pyarrow", "scipy")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked of the tables.

    Attributes:
        consistent: Make them agree on the marginals they share.
        integers: Round them to integers.
        products: Which ones; by default all whose counts are published.
        format: Of the files.
    """

    consistent: bool = False
    integers: bool = False
    products: tuple[str, ...] | None = None
    format: Format = "parquet"


def refine(
    folder: Path,
    output: Path,
    options: Options,
    announce: Callable[[str], None] = lambda title: None,
) -> dict[str, Any]:
    """Write refined tables of a bundle into a new folder, in one step.

    Returns:
        What was done, as written to ``refinement.json``.

    Raises:
        BundleVerificationError: The bundle is not whole, or not readable by this version.
        BundleExistsError: There is something at the output's place.
        OutputNotWritableError: The output cannot be written, or lies inside a bundle.
        RefinementError: The tables cannot be refined as asked.
    """
    check_place(output)
    announce("verify bundle")
    bundle = open_bundle(folder)
    names = _chosen(bundle, options)
    products = [bundle.products[name] for name in names]
    facts: dict[str, Any] = {
        "format": FORMAT,
        "source": {name: bundle.manifest[name] for name in _SOURCE},
        "options": {
            "consistent": options.consistent,
            "integers": options.integers,
            "products": names,
            "format": options.format,
        },
        "n_records": bundle.n_records,
        "budget": "none; post-processing of what was published",
    }
    announce("refine tables")
    try:
        if options.consistent:
            tables, gaps = _consistent(products, bundle.n_records, bundle.adjacency)
            facts["largest_disagreement_in_records"] = gaps
        else:
            tables = [_alone(product, bundle.n_records) for product in products]
        if options.integers:
            tables = [_rounded(table, bundle.n_records) for table in tables]
            if options.consistent:
                gaps["rounded"] = _gap(tables, "rounded")
    except (ValueError, ArithmeticError) as error:
        raise RefinementError(str(error), where=str(folder)) from None
    facts["products"] = {table.product.name: _statement(table) for table in tables}
    facts["without_counts"] = list(bundle.without_counts)
    facts["notes"] = _notes(options, tables)
    facts["versions"] = {package: version(package) for package in _PACKAGES}
    announce("write tables")
    with appearing(output) as building:
        write_refined(building, tables, facts, options.format)
    return facts


def _chosen(bundle: PublishedBundle, options: Options) -> list[str]:
    """Names of the products, each once, in the bundle's order."""
    asked = bundle.products if options.products is None else options.products
    for name in asked:
        if name not in bundle.products:
            if name in bundle.by_marginals:
                raise _by_marginals(bundle, name)
            known = ", ".join(bundle.products) or "none"
            reason = "has no published counts" if name in bundle.without_counts else "is not there"
            raise RefinementError(
                f"The product '{name}' {reason}.",
                where=str(bundle.folder),
                next_step=f"Products with counts: {known}.",
            )
    if not asked and bundle.by_marginals and options.products is None:
        raise _by_marginals(bundle, *bundle.by_marginals)
    if not asked:
        raise RefinementError(
            "No product with counts is in this bundle."
            if options.products is None
            else "No product with counts is chosen.",
            where=str(bundle.folder),
            next_step="Read its files in data/, or choose among the products with counts.",
        )
    names = [name for name in bundle.products if name in asked]
    for name in names:
        if options.integers and "rounded" in bundle.products[name].domain.names:
            raise RefinementError(
                f"The product '{name}' has a column of the name 'rounded' already.",
                where=str(bundle.folder),
            )
    return names


def _by_marginals(bundle: PublishedBundle, *names: str) -> RefinementError:
    """Why such products are not refined, and what to do with them."""
    return RefinementError(
        f"Microdata by marginals ({', '.join(names)}) are not refined.",
        where=str(bundle.folder),
        next_step="Ask them with 'statpress query'.",
    )


def _alone(product: PublishedProduct, n_records: int) -> RefinedTable:
    """The table that the bundle holds, derived anew."""
    counts = product.counts()
    derived = product.kind.postprocess(product, counts, n_records)
    return RefinedTable(product, counts.cells[: derived.listed], dict(derived.figures))


def _consistent(
    products: Sequence[PublishedProduct], n_records: int, adjacency: Adjacency
) -> tuple[list[RefinedTable], dict[str, float]]:
    """Tables of all cells that agree, and by how much they disagree before and after."""
    released = []
    if adjacency is not Adjacency.REPLACE_ONE:
        raise RefinementError(
            "The tables agree by their total, which is private here and known with noise only.",
            next_step="Leave out --consistent.",
        )
    for product in products:
        mechanism, unlisted = product.mechanism, unlisted_in_words(product.domain)
        if unlisted:
            raise RefinementError(
                f"The tables agree by sums over all combinations of values, and not all are in the "
                f"product '{product.name}'. Not in it: {unlisted}",
                next_step="Name products without such with --products, or leave out --consistent.",
            )
        if not mechanism.unbiased:
            raise RefinementError(
                f"The estimates of the product '{product.name}' are biased; least squares would "
                "spread that over the other tables.",
                next_step="Name the other products with --products, or leave out --consistent.",
            )
        covariance = mechanism.covariance(n_records=n_records, n_cells=product.domain.n_possible)
        if covariance.objection:
            raise RefinementError(
                f"The product '{product.name}' cannot be pooled with others. "
                f"{covariance.objection}",
                next_step="Name the other products with --products, or leave out --consistent.",
            )
        debiased = mechanism.postprocess(product.counts(), n_records=n_records)
        released.append(covariance.released(debiased))
    total = float(n_records)
    agreed = reconcile(released, total=total)
    weighted = [
        NoisyTable(table.domain, table.estimates, noise.weight)
        for table, noise in zip(agreed, released, strict=True)
    ]
    projected = project_consistently(weighted, total=total)
    tables = []
    for product, table, values in zip(products, agreed, projected, strict=True):
        figures = {
            "estimate": table.estimates.ravel(),
            "standard_error": table.standard_errors.ravel(),
            "projected": values.ravel(),
        }
        tables.append(RefinedTable(product, np.arange(product.domain.n_cells), figures))
    gaps = {
        "released": disagreement([(t.domain, t.estimates) for t in released], total=total),
        "estimate": _gap(tables, "estimate"),
        "projected": _gap(tables, "projected"),
    }
    return tables, gaps


def _gap(tables: Sequence[RefinedTable], name: str) -> float:
    return disagreement([(table.domain, table.dense(name)) for table in tables])


def _rounded(table: RefinedTable, n_records: int) -> RefinedTable:
    """With integers beside: in two ways where it can be, else the largest remainders.

    What the absent cell holds is not listed: then the total is the integer nearest to the
    listed cells' sum, and what is left of the public number of records the absent ones.
    """
    projected, domain = table.figures["projected"], table.domain
    if len(domain.columns) == 2 and domain.n_cells <= _TWO_WAY_CELLS:
        whole = np.zeros([column.size for column in domain.columns])
        whole.ravel()[table.cells] = projected
        matrix = round_table(whole, any_total=domain.absent)
        rounded, rounding = matrix.ravel()[table.cells], "rows, columns and total"
    else:
        rounded = round_to_total(projected, None if domain.absent else n_records)
        rounding = "total"
    if domain.absent:
        rounding += " of the listed cells, to the nearest integer"
    return RefinedTable(table.product, table.cells, table.figures | {"rounded": rounded}, rounding)


def _statement(table: RefinedTable) -> dict[str, Any]:
    """What was done to one product."""
    product, errors = table.product, table.figures["standard_error"]
    facts = {
        "kind": product.kind.core.name,
        "mechanism": product.mechanism.describe(),
        "columns": list(product.domain.names),
        "rows": len(table.cells),
        "cells": str(product.domain.n_listed),
        "root_mean_square_standard_error": math.sqrt(float(np.mean(np.square(errors))))
        if len(errors)
        else None,
    }
    if product.domain.absent:  # else both are the public number of records
        sums = {"projected": float(table.figures["projected"].sum())}
        if table.rounding:
            sums["rounded"] = int(table.figures["rounded"].sum())
        facts["listed_records"] = sums
    return facts | ({"rounding_keeps": table.rounding} if table.rounding else {})


def _notes(options: Options, tables: Sequence[RefinedTable]) -> list[str]:
    """What a reader has to know."""
    notes = ["'projected' is for use as a table; intervals need 'estimate' and its error."]
    if any(table.domain.absent for table in tables):
        notes.append(
            "Counts add up to 'listed_records', product by product. What that leaves of the "
            "public number of records are absent ones, which units do not have: they have no "
            "values and are not listed."
        )
    if options.consistent:
        notes += [
            "Each table was weighted by one variance that is known without data, so that the "
            "estimates stay unbiased; the errors are propagated from the noise of every cell, of "
            "records drawn with their negative correlation.",
            "Estimates and projected counts agree between tables. Rounded ones are made table by "
            "table and agree on the total; elsewhere they may differ as stated.",
            "Estimates of one table, and of two that share a column, are correlated: do not add "
            "up squared errors.",
        ]
    return notes
