"""Uploading a published bundle: every file, each read back, the manifest last.

A release has a place of its own in every target, named by its bundle, so that nothing of another
release is touched. Whoever takes the manifest as the sign of a whole release, or follows the
pointer that is replaced after it, sees a whole release at any moment. An upload may be cut off
anywhere and begun again: what is there with the right hash is not sent again.

Hashes are of the bytes that the target gives back. The checksums of stores differ (an ETag is no
MD5 of an object sent in parts or encrypted), CKAN has none, and readers get those bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from configs.loading import load_targets
from mechanisms.errors import DependencyError, StatpressError, UploadError, together
from tasks.audit.ledger_check import check_bundle
from tasks.bundle.approval import NAME as APPROVAL
from tasks.bundle.manifest import CONFIG, files_of, verify_bundle
from tasks.bundle.manifest import NAME as MANIFEST
from tasks.bundle.signature import NAME as SIGNATURE
from tasks.bundle.signature import SIGNER
from tasks.execution.home import Home
from tasks.execution.steps import step
from tasks.release.outcome import Uploaded
from tasks.targets.registry import check_target, store_of
from tasks.targets.store import Bundle, Store

if TYPE_CHECKING:
    from configs.models.targets import Target

_LISTED = 5


def targets_in(folder: Path) -> Sequence[Target]:
    """The targets that a bundle's own config names."""
    return load_targets(folder / CONFIG)


@step("check targets")
def check_targets(targets: Sequence[Target]) -> None:
    """Raise before anything is charged if an upload lacks an extra or its credentials.

    Raises:
        DependencyError: An extra is not installed.
        UploadError: There is no token. No connection is made.
    """
    for target in targets:
        check_target(target)


@step("read targets")
def read_targets(bundle: Path, config: Path | None) -> Sequence[Target]:
    """The targets of a config, or of a bundle's own.

    Args:
        bundle: The bundle.
        config: The config, if not the bundle's own.

    Raises:
        UploadError: It names none.
    """
    if config is None:
        verify_bundle(bundle)  # says of a wrong folder what is wrong with it
    found = targets_in(bundle) if config is None else load_targets(config)
    if not found:
        raise UploadError(
            "The config names no targets.",
            where=str(config or bundle / CONFIG),
            next_step="Write them under publish.targets; for a bundle without them name a config "
            "that has them with --config.",
        )
    return found


@step("upload")
def upload(home: Home, folder: Path, targets: Sequence[Target]) -> tuple[Uploaded, ...]:
    """Upload a published bundle to all targets; one that fails does not keep it from the others.

    Args:
        home: With the ledger that published the bundle.
        folder: The bundle.
        targets: Where to.

    Raises:
        UploadError: A target failed. The release stands, and nothing more is charged.
        DependencyError: A target needs an extra that is not installed.
        BundleError: The bundle is not whole, or not published by this ledger.
    """
    bundle = read_bundle(home, folder)
    done, failed = [], []
    for target in targets:
        try:
            done.append(send(bundle, store_of(target, bundle)))
        except (UploadError, DependencyError) as error:
            failed.append(_with_next_step(error, bundle))
    if failed:
        raise together(failed)
    return tuple(done)


def read_bundle(home: Home, folder: Path) -> Bundle:
    """A bundle that may be uploaded.

    Raises:
        UploadError: It is NOT PUBLISHABLE.
        BundleError: It is not whole, not approved, or not published by this ledger.
    """
    folder = folder.resolve()
    manifest = verify_bundle(folder)
    if not manifest["publishable"]:
        raise UploadError(
            "The bundle is NOT PUBLISHABLE: it was drawn from a known seed, for tests only.",
            where=str(folder),
            next_step="Press a release of its own with 'statpress run'.",
        )
    check_bundle(home, folder, manifest)
    files = dict(sorted(files_of(manifest).items()))
    beside = [APPROVAL] * ("review" in manifest) + [SIGNATURE] * (SIGNER in manifest)
    files |= {name: _of_file(folder / name) for name in (*beside, MANIFEST)}
    return Bundle(folder=folder, name=folder.name, manifest=manifest, files=files)


def send(bundle: Bundle, store: Store) -> Uploaded:
    """Bring one target to have the whole bundle.

    Raises:
        UploadError: It does not take it, has another release of this name, or gives back
            other bytes.
    """
    held = store.held()
    added = sorted(held.keys() - bundle.files.keys())
    if added:
        shown = ", ".join(repr(path[:100]) for path in added[:_LISTED])
        raise UploadError(
            f"There are files that the bundle does not have: {shown}"
            f"{' and more' if len(added) > _LISTED else ''}.",
            where=store.place,
            next_step="Find out whose they are and remove them: nothing is deleted for you.",
        )
    if MANIFEST in held and _digest(store.read(MANIFEST)) != bundle.files[MANIFEST]:
        raise UploadError(
            "Another release is there under this name.",
            where=store.place,
            next_step="Releases are never overwritten: upload a copy of the folder that has "
            "another name.",
        )
    sent = 0
    for path, expected in bundle.files.items():
        if path == MANIFEST and MANIFEST in held:
            continue  # it was compared above
        there = path in held and held[path] in (None, expected[0])
        if there and _digest(store.read(path)) == expected:
            continue
        store.write(path)
        if _digest(store.read(path)) != expected:
            raise UploadError(f"{path} comes back with other bytes.", where=store.place)
        sent += 1
    latest = store.show()
    return Uploaded(place=store.place, sent=sent, kept=len(bundle.files) - sent, latest=latest)


def _digest(pieces: Iterator[bytes]) -> tuple[int, str]:
    """Size and SHA-256 of what is read."""
    size, hashed = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        hashed.update(piece)
    return size, hashed.hexdigest()


def _of_file(path: Path) -> tuple[int, str]:
    text = path.read_bytes()
    return len(text), hashlib.sha256(text).hexdigest()


def _with_next_step(error: StatpressError, bundle: Bundle) -> StatpressError:
    """An error that says what stands, and how to go on."""
    if error.next_step == type(error).next_step:
        error.next_step = ""
    error.next_step = (
        f"{error.next_step} The release stands in {bundle.folder} and its budget is spent: do not "
        f"run it again. With the target in order: 'statpress upload {bundle.folder}'."
    ).strip()
    error.args = (str(error),)
    return error
