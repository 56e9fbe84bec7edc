"""Releases that follow one: which bundle may be followed, and the order for the next run."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from statpress.configs.loading import Release, load_order
from statpress.configs.order import Order, Override
from statpress.configs.yaml_text import parse
from statpress.mechanisms.errors import (
    RereleaseError,
    SourceNotFoundError,
    UnregisteredDatasetError,
)
from statpress.tasks.bundle.manifest import CONFIG, verify_bundle
from statpress.tasks.ledger.home_ledger import remaining_budget
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.release.ledger_check import check_bundle

_VINTAGE = {("privacy", "n_records"), ("privacy", "n_units")}
_RENEWED = ("title", "dataset", "source", "publish", "curator")


def predecessor(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle that a release may follow."""
    manifest = verify_bundle(folder)
    flaw, next_step = "", ""
    if not manifest["publishable"]:
        flaw = "The bundle is NOT PUBLISHABLE: it was drawn from a known seed, for tests only."
        next_step = "Press a release of its own with 'statpress run'."
    elif manifest.get("reprint_of"):
        flaw = "The bundle is a reprint, and its config not the one that was charged."
        next_step = f"Name the original, which has the seal {manifest['reprint_of']['seal']}."
    if flaw:
        raise RereleaseError(flaw, where=str(folder), next_step=next_step)
    return manifest


def renewal(
    folder: Path,
    manifest: Mapping[str, Any],
    overrides: Iterable[Override],
    paths_from: Path | None,
) -> Order:
    """The order for the same config on new data.

    Args:
        folder: The bundle.
        manifest: Of it.
        overrides: Of what a new vintage has of its own: title, dataset, source, its public
            size, and where it is published.
        paths_from: Folder that the config's paths are taken from; by default that of the
            bundle's own config where the source is there, else the current one.

    Raises:
        RereleaseError: An override changes something else.
    """
    order = Order(folder / CONFIG, tuple(overrides), paths_from or Path(), manifest["seal"])
    release = load_order(order)
    original = config_folder(folder)
    files = release.config.source.files
    if paths_from is None and original is not None and files and _has_source(original, files):
        order = replace(order, folder=original)
    for change in release.overrides:
        if change.path[0] not in _RENEWED and change.path[:2] not in _VINTAGE:
            raise RereleaseError(
                f"'{'.'.join(map(str, change.path))}' is no matter of the data's vintage.",
                where=change.override.place,
                next_step="Change it in a config, and give that with --revise.",
            )
    return order


def config_folder(bundle: Path) -> Path | None:
    """The folder that a bundle's config lay in, by where it publishes; None if that is not known.

    A config names its publishing directory from its own folder.
    """
    stated = parse((bundle / CONFIG).read_text(encoding="utf-8"), CONFIG).value
    parts = Path(os.path.normpath(stated["publish"]["directory"])).parts
    beside = bundle.resolve().parent
    if ".." in parts or beside.parts[len(beside.parts) - len(parts) :] != parts:
        return None
    return Path(*beside.parts[: len(beside.parts) - len(parts)])


def check_source(release: Release, bundle: Path) -> None:
    """Say before the charge that a renewal finds no data, and where it looked."""
    path = release.config.source.files
    if path is None or _has_source(release.folder, path):
        return
    original = config_folder(bundle)
    looked = [release.folder]
    if original is not None and original != release.folder:
        looked.append(original)
    raise SourceNotFoundError(
        f"There is no file '{path}' in {' or in '.join(map(str, looked))}.",
        where=str(bundle),
        next_step="Name the folder of the config with --folder, or the data with "
        "--set source.path=FILE. Nothing was charged.",
    )


def _has_source(folder: Path, path: str) -> bool:
    pattern = str((folder / path).absolute())
    return any(map(os.path.isfile, (pattern, *glob.iglob(pattern, recursive=True))))


def revision(manifest: Mapping[str, Any], config: Path, overrides: Iterable[Override]) -> Order:
    """The order for a changed config."""
    return Order(config, tuple(overrides), supersedes=manifest["seal"])


def check_followed(home: Home, folder: Path, manifest: Mapping[str, Any], dataset: str) -> None:
    """Raise unless the ledger has the dataset's account, and published the bundle."""
    if remaining_budget(home, dataset) is None:
        raise UnregisteredDatasetError(
            "The ledger has no account of this name.", where=f"dataset {dataset!r}"
        )
    check_bundle(home, folder, dict(manifest))
