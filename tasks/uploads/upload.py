"""The order of an upload: every file, each read back, the manifest last.

A release has a place of its own in every target, named by its bundle, so that nothing of another
release is touched. Whoever takes the manifest as the sign of a whole release, or follows the
pointer that is replaced after it, sees a whole release at any moment. An upload may be cut off
anywhere and begun again: what is there with the right hash is not sent again.

Each kind of target moves its pointer ``latest`` itself: ``show`` in ``s3`` and in ``ckan``.

Hashes are of the bytes that the target gives back. The checksums of stores differ (an ETag is no
MD5 of an object sent in parts or encrypted), CKAN has none, and readers get those bytes.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, cast

from statpress.configs.checks import validate
from statpress.configs.series import dated
from statpress.configs.upload_targets import PublishTargets, Target
from statpress.configs.yaml_text import Findings, parse, read_text
from statpress.mechanisms.errors import DependencyError, StatpressError, UploadError, together
from statpress.tasks.bundle.manifest import APPROVAL_NAME as APPROVAL
from statpress.tasks.bundle.manifest import CONFIG, SIGNER, files_of, verify_bundle
from statpress.tasks.bundle.manifest import MANIFEST_NAME as MANIFEST
from statpress.tasks.bundle.manifest import SIGNATURE_NAME as SIGNATURE
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.run_context import step
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.runs import Uploaded

if TYPE_CHECKING:
    from statpress.configs.upload_targets import Target


POINTER = "statpress-latest/1"
_MEDIA = {
    ".csv": "text/csv",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A published bundle as it is uploaded.

    Attributes:
        folder: Where it lies.
        name: That of its folder, under which a target has it.
        manifest: Verified.
        files: Size in bytes and SHA-256 by path, in the order of the upload: the manifest last.
    """

    folder: Path
    name: str
    manifest: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]

    @property
    def pointer(self) -> dict[str, Any]:
        """What a pointer to the newest release says, as JSON."""
        stated = {key: self.manifest[key] for key in ("dataset", "created", "run_id", "seal")}
        return {"format": POINTER, "name": self.name, **stated}


class TargetStore(Protocol):
    """A target with the place of one release; every method raises ``UploadError``."""

    place: str
    """Address of the release there, for people."""

    def held(self) -> Mapping[str, int | None]:
        """Sizes in bytes, where known, of the release's files that are there, by path."""

    def read(self, path: str) -> Iterator[bytes]:
        """A file as the target gives it back, in pieces."""

    def write(self, path: str) -> None:
        """Send a file of the bundle, in place of one that is there."""

    def show(self) -> str:
        """Once all files are there: let people see them, and replace the pointer if asked.

        Returns:
            What the pointer says now, in words; nothing where there is none.
        """


def replaces(bundle: Bundle, there: object, place: str) -> bool:
    """Whether a bundle takes the place of what a pointer says: never of a newer release.

    Raises:
        UploadError: What is there is not a pointer of ours, or another dataset's.
    """
    known = there if isinstance(there, dict) and there.get("format") == POINTER else {}
    if known.get("dataset") != bundle.manifest["dataset"]:
        raise UploadError(
            "What is there belongs to another dataset, or is not a pointer to a release."
            if known
            else "What is there is not a pointer to a release.",
            where=place,
            next_step="Give each dataset another name under 'latest'; nothing was replaced.",
        )
    return str(known.get("created")) <= str(bundle.manifest["created"])


def said_of_pointer(bundle: Bundle, name: str, there: Mapping[str, Any]) -> str:
    """What a pointer says, in words."""
    if there == bundle.pointer:
        return f"{name} names this release."
    return f"{name} stays with {there.get('name')}, which is newer."


def media_type(path: str) -> str:
    """The media type of a file by its suffix."""
    suffix = PurePosixPath(path).suffix
    return _MEDIA.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"


def check_target(target: Target) -> None:
    """Raise if an upload to a target could not begin on this machine; no connection is made.

    Raises:
        DependencyError: The target needs an extra that is not installed.
        UploadError: There are no credentials for it.
    """
    import_module(f"{__package__}.{target.key}").check()


def store_of(target: Target, bundle: Bundle) -> TargetStore:
    """The place of a bundle in a target; nothing is sent yet.

    Raises:
        DependencyError: The target needs an extra that is not installed.
        UploadError: There are no credentials for it.
    """
    return cast(
        "TargetStore", import_module(f"{__package__}.{target.key}").store_of(target, bundle)
    )


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


def send(bundle: Bundle, store: TargetStore) -> Uploaded:
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


def load_targets(path: Path) -> Sequence[Target]:
    """The targets that a config names, whatever else it says; none where it names none.

    Args:
        path: Of the config, such as that of a bundle.

    Raises:
        ConfigError: A target is not in order.
    """
    document = parse(read_text(path, str(path)), path.name)
    document = dated(document, Findings())
    said = document.value.get("publish") if isinstance(document.value, dict) else None
    if not isinstance(said, dict) or "targets" not in said:
        return ()
    return validate(document, PublishTargets, ("publish",)).targets
