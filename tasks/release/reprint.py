"""A bundle derived anew from what was drawn: free, without data, ledger or charge.

A reprint keeps the privacy statement of its original to the letter, with the digest of what
each mechanism gave; the raw values in its own files have that digest. Its manifest holds the
manifest of the original, whose seal the ledger has. So a reprint shows by itself that it
tells nothing but what was charged.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.configs import formats
from statpress.configs.checks import validate
from statpress.configs.order import Applied, Override, apply
from statpress.configs.release_config import PublishConfig
from statpress.configs.yaml_text import Document, parse
from statpress.mechanisms.errors import BundleExistsError, BundleVerificationError, RereleaseError
from statpress.tasks.bundle.manifest import CONFIG, STATEMENT, files_of, seal_and_sign
from statpress.tasks.catalogues.data_package import CODEBOOK_NAME as CODEBOOK
from statpress.tasks.catalogues.data_package import NAME as PACKAGE
from statpress.tasks.catalogues.data_package import (
    in_their_formats,
    with_product,
    write_codebook,
    write_package,
)
from statpress.tasks.catalogues.metadata_files import NAMES, SDMX, changed_metadata, write_metadata
from statpress.tasks.catalogues.usage import with_publication
from statpress.tasks.pages.rendering import escaped
from statpress.tasks.products.publication import DataTable
from statpress.tasks.products.published_counts import PublishedProduct, raw_digest
from statpress.tasks.release.build import versions
from statpress.tasks.release.refine import PublishedBundle, appearing, open_bundle
from statpress.tasks.report.report import NAME as REPORT
from statpress.tasks.report.report import write_report

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


MARK = "-NOT-PUBLISHABLE"


ALLOWED = (("title",), ("publish", "formats"), ("publish", "name"))
"""Places of the config that may change."""


_NUMBERED = re.compile(r"-reprint-[0-9]+$")


def resolved(folder: Path, overrides: Iterable[Override]) -> tuple[Document, tuple[Applied, ...]]:
    """The bundle's config with what changes."""
    document = parse((folder / CONFIG).read_text(encoding="utf-8"), CONFIG)
    document, applied = apply(document, overrides)
    for change in applied:
        if change.path not in ALLOWED:
            raise RereleaseError(
                f"A reprint changes title, publish.formats and publish.name, and not "
                f"'{'.'.join(map(str, change.path))}'.",
                where=change.override.place,
            )
    return document, applied


def next_place(folder: Path, name: str | None, *, publishable: bool) -> Path:
    """Where the new bundle goes: beside the old one."""
    parent, own = folder.resolve().parent, _NUMBERED.sub("", folder.resolve().name)
    if name is None:
        numbered = (parent / f"{own}-reprint-{n}" for n in itertools.count(1))
        return next(place for place in numbered if not os.path.lexists(place))
    target = parent / (name if publishable or name.endswith(MARK) else f"{name}{MARK}")
    if os.path.lexists(target):
        raise BundleExistsError("A bundle of this name is already there.", where=str(target))
    return target


_README = "README.md"
_WORDS = frozenset({CONFIG, STATEMENT, PACKAGE, CODEBOOK, _README, REPORT}) | NAMES
"""Files that say what the others are."""
_SECTION = "\n## Reprint\n"


@dataclass(frozen=True)
class Reprint:
    """What a reprint left behind; public.

    Attributes:
        bundle: The new folder.
        seal: Its seal.
        original: Manifest of the release that it derives anew.
        copied: Products whose files are those of the original, as they were.
    """

    bundle: Path
    seal: str
    original: Mapping[str, Any]
    copied: tuple[str, ...]


def reprint(
    folder: Path,
    overrides: Iterable[Override] = (),
    announce: Callable[[str], None] = lambda title: None,
    signer: Ed25519PrivateKey | None = None,
) -> Reprint:
    """Write a new bundle beside one, from what was drawn for that.

    Args:
        folder: A bundle, which may be a reprint itself.
        overrides: Of ``title``, ``publish.formats`` and ``publish.name``; by default the name
            is the bundle's with ``-reprint-`` and the first free number.
        announce: Told what is going on, for a progress bar.
        signer: Signs the new bundle; the key that the config names is the original's alone.

    Raises:
        BundleVerificationError: The bundle is not whole, or not readable by this version.
        RereleaseError: Something else is to change, or what was drawn has no digest.
        BundleExistsError: There is a bundle of the chosen name.
        OutputNotWritableError: The new one cannot be written.
    """
    announce("verify bundle")
    bundle = open_bundle(folder)
    original = bundle.manifest.get("reprint_of") or bundle.manifest
    if "review" in original:
        raise RereleaseError(
            "This release was approved as it is; nobody has reviewed what a reprint would publish.",
            where=str(folder),
            next_step="Refine its tables with 'statpress refine', or release anew with --renew.",
        )
    _check_drawn(bundle)
    document, applied = resolved(folder, overrides)
    publish = validate(document, PublishConfig, ("publish",))
    title = str(document.value["title"])
    chosen = next((a.override.value for a in applied if a.path == ALLOWED[2]), None)
    target = next_place(folder, chosen, publishable=original["publishable"])
    announce("derive products")
    with appearing(target, "--name") as building:
        _write_data(bundle, publish.formats, building / "data")
        copied = _copy_others(bundle, building)
        shutil.copyfile(folder / STATEMENT, building / STATEMENT)
        (building / CONFIG).write_text(document.text, encoding="utf-8")
        created = _now()
        package = _package(bundle, publish.formats, title, created)
        write_package(building, package)
        write_codebook(building, package)
        write_metadata(building, with_sdmx=publish.sdmx)
        facts = _facts(original, document, applied, title, created, publish.formats)
        write_report(building, facts, pictures=publish.plots)
        readme = _readme((folder / _README).read_text(encoding="utf-8"), package, original)
        (building / _README).write_text(readme, encoding="utf-8")
        digest = seal_and_sign(building, facts, signer)
    return Reprint(target, digest, original, copied)


def check_reprint(folder: Path) -> bool:
    """Check that a reprint holds what was drawn for its original, and nothing else.

    Returns:
        Whether its other figures were derived again and are the same, bit for bit; False
        for one that other versions of the packages made, whose figures may differ.

    Raises:
        BundleVerificationError: It holds something else.
    """
    bundle = open_bundle(folder)
    _check_drawn(bundle)
    files = {p: v for p, v in files_of(bundle.manifest).items() if not _is_words(p)}
    known = files_of(bundle.manifest["reprint_of"])
    ours = {p: v for p, v in files.items() if _is_derived(bundle, p)}
    strange = [p for p, v in files.items() if p not in ours and known.get(p) != v]
    made_by = bundle.manifest["versions"]
    again = bool(made_by == versions(formats.STAT if "pyreadstat" in made_by else ()))
    if again:
        with tempfile.TemporaryDirectory(prefix="statpress-") as place:
            _write_data(bundle, sorted({Path(p).suffix[1:] for p in ours}), Path(place))
            for path, (_, digest) in ours.items():
                made = Path(place) / Path(path).name
                if hashlib.sha256(made.read_bytes()).hexdigest() != digest:
                    strange.append(path)
        strange += changed_metadata(folder)
    if strange:
        raise BundleVerificationError(
            f"{'; '.join(sorted(strange))}: not what follows from the original.",
            where=str(folder),
        )
    return again


def _check_drawn(bundle: PublishedBundle) -> None:
    """Raise unless the raw values are those whose digests the privacy statement has."""
    stated = json.loads((bundle.folder / STATEMENT).read_text(encoding="utf-8"))["products"]
    for name, product in bundle.products.items():
        if "raw_sha256" not in stated[name]:
            raise RereleaseError(
                f"The bundle states no digest of what was drawn for the product '{name}'.",
                where=str(bundle.folder),
                next_step="Use 'statpress refine', or the version that made the bundle.",
            )
        for suffix in formats.FORMATS:
            path = product.path.with_suffix(f".{suffix}")
            if not path.exists():
                continue
            if raw_digest(replace(product, path=path).counts()) != stated[name]["raw_sha256"]:
                raise BundleVerificationError(
                    f"The raw values of the product '{name}' are not those that were drawn.",
                    where=str(path),
                )


def _is_words(path: str) -> bool:
    """Whether a file says what others are, or is one of the tables in SDMX."""
    return path in _WORDS or path.startswith(f"{SDMX}/")


def _is_derived(bundle: PublishedBundle, path: str) -> bool:
    """Whether a data file is one of those that are derived anew."""
    place = Path(path)
    stems = {table.stem for product in bundle.products.values() for table in _tables_of(product)}
    known = place.suffix[1:] in formats.FORMATS
    return known and place.parent == Path("data") and place.stem in stems


def _tables_of(product: PublishedProduct, derived: Any = None) -> Iterator[DataTable]:
    """A product's tables, their columns described as the bundle describes them."""
    described = [*map(dict, product.fields)]
    for table in product.kind.publication(product, derived).tables:
        yield replace(table, fields=[*described, *table.fields[len(described) :]])


def _write_data(bundle: PublishedBundle, formats: Sequence[str], folder: Path) -> None:
    """Write the files of all products whose counts are published."""
    folder.mkdir(exist_ok=True)
    for product in bundle.products.values():
        derived = product.kind.postprocess(product, product.counts(), bundle.n_records)
        for table, suffix in itertools.product(_tables_of(product, derived), formats):
            table.write(folder / f"{table.stem}.{suffix}")


def _copy_others(bundle: PublishedBundle, building: Path) -> tuple[str, ...]:
    """Copy the files of products without counts; returns the products' names."""
    for path in files_of(bundle.manifest):
        if not _is_words(path) and not _is_derived(bundle, path):
            (building / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.folder / path, building / path)
    return bundle.without_counts


def _package(
    bundle: PublishedBundle, formats: Sequence[str], title: str, created: str
) -> dict[str, Any]:
    """The data package, with the resources of what was derived anew."""
    text = (bundle.folder / PACKAGE).read_text(encoding="utf-8")
    package: dict[str, Any] = json.loads(text)
    kept = [entry for entry in package["resources"] if not _is_derived(bundle, entry["path"])]
    words = {entry["name"]: entry for entry in package.get("products", [])}
    derived = [
        with_product(table.resource(suffix), name, words.get(name, {}))
        for name, product in bundle.products.items()
        for suffix, table in itertools.product(formats, _tables_of(product))
    ]
    resources = [*in_their_formats(derived), *kept]
    return package | {"title": title, "created": created, "resources": resources}


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return now.isoformat().replace("+00:00", "Z")


def _readme(text: str, package: Mapping[str, Any], original: Mapping[str, Any]) -> str:
    """The original's, with its title, how to cite it and what was done."""
    _, _, rest = with_publication(text.partition(_SECTION)[0], package).partition("\n")
    return (
        f"# {escaped(package['title'])}\n{rest.rstrip()}\n{_SECTION}\n"
        f"Derived anew, by statpress {versions()['statpress']}, from what was drawn for the "
        f"release of {original['created']} with the seal `{original['seal']}`. No data was read "
        "and no budget spent: the privacy statement is that release's.\n"
    )


def _facts(
    original: Mapping[str, Any],
    document: Document,
    applied: Iterable[Applied],
    title: str,
    created: str,
    formats: Sequence[str],
) -> dict[str, Any]:
    """The facts of the manifest."""
    kept = ("dataset", "run_id", "publishable", "ledger_entry", "supersedes")
    return {
        **{name: original[name] for name in kept},
        "title": title,
        "created": created,
        "config_sha256": hashlib.sha256(document.text.encode()).hexdigest(),
        "versions": versions(formats),
        "overrides": [change.describe() for change in applied],
        "reprint_of": original,
    }
