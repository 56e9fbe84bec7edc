"""A bucket of an S3-compatible store, by pyarrow's file system.

Credentials are those of the AWS SDK: ``AWS_ACCESS_KEY_ID`` and the like, ``~/.aws``, or the role of
the machine. Only reading, listing and writing are asked for; nothing is ever deleted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from statpress.mechanisms.errors import UploadError
from statpress.tasks.bundle.manifest import MANIFEST_NAME as MANIFEST
from statpress.tasks.source.lakes import ObjectStore
from statpress.tasks.uploads.upload import Bundle, media_type, replaces, said_of_pointer

if TYPE_CHECKING:
    from statpress.configs.upload_targets import S3Target


_PIECE = 2**20
_CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"
_FAULT = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))? during (\w+)")
_CREDENTIALS = frozenset(
    ("ACCESS_DENIED", "SIGNATURE_DOES_NOT_MATCH", "INVALID_ACCESS_KEY_ID", "INVALID_SIGNATURE",
     "INVALID_CLIENT_TOKEN_ID", "MISSING_AUTHENTICATION_TOKEN", "UNRECOGNIZED_CLIENT",
     "EXPIRED_TOKEN", "REQUEST_EXPIRED")
)  # fmt: skip


class S3Place:
    """A place in a bucket: reading and writing there, and what failed in words."""

    def __init__(self, target: S3Target, place: str) -> None:
        self.place = place
        with _fewer_checksums(target), self._told("connecting"):
            store = ObjectStore(target.endpoint, target.region)
            self._system = store.system(allow_delayed_open=True)  # a small file is one request

    def _sink(self, key: str) -> pa.NativeFile:
        return self._system.open_output_stream(
            key, compression=None, metadata={"Content-Type": media_type(key)}
        )

    def _put_whole(self, key: str, text: bytes) -> None:
        """Replace an object by a text, or not at all.

        An interruption comes to the main thread. Here it would close the stream, which makes an
        object of what was written so far.
        """

        def put() -> None:
            with self._sink(key) as sink:
                sink.write(text)

        with ThreadPoolExecutor(1) as thread:
            thread.submit(put).result()

    def _pieces(self, key: str, path: str) -> Iterator[bytes]:
        with (
            self._told(f"reading {path} back"),
            self._system.open_input_stream(key, compression=None) as file,
        ):
            while piece := file.read(_PIECE):
                yield piece

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """Say what failed only by its kind: the store's own text may quote a key."""
        said = ""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            said = _in_words(error)
        if said:
            raise UploadError(f"{said}, while {doing}.", where=self.place)


class S3Object(S3Place):
    """One small object that is replaced as a whole.

    Args:
        target: Its address, as that of a bucket with a prefix.
    """

    def __init__(self, target: S3Target) -> None:
        super().__init__(target, target.s3)
        self._key = target.s3.removeprefix("s3://")

    def read(self) -> bytes | None:
        """What it holds; None if there is none."""
        with self._told("looking what is there"):
            there = self._system.get_file_info(self._key).is_file
        return b"".join(self._pieces(self._key, self.place)) if there else None

    def replace(self, text: bytes) -> None:
        """Put a text in its place."""
        with self._told("replacing it"):
            self._put_whole(self._key, text)


class S3Store(S3Place):
    """The objects of one release, below a prefix with its name."""

    def __init__(self, target: S3Target, bundle: Bundle) -> None:
        self._bundle = bundle
        base = target.s3.removeprefix("s3://")
        self._root = f"{base}/{bundle.name}"
        self._pointer = f"{base}/{target.latest}" if target.latest else None
        super().__init__(target, f"s3://{self._root}")

    def held(self) -> Mapping[str, int | None]:
        chosen = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        with self._told("listing what is there"):
            found = self._system.get_file_info(chosen)
        cut = len(self._root) + 1
        return {each.path[cut:]: each.size for each in found if each.is_file}

    def read(self, path: str) -> Iterator[bytes]:
        return self._pieces(f"{self._root}/{path}", path)

    def write(self, path: str) -> None:
        key, source = f"{self._root}/{path}", self._bundle.folder / path
        with self._told(f"sending {path}"):
            if path == MANIFEST:
                self._put_whole(key, source.read_bytes())
                return
            with source.open("rb") as file, self._sink(key) as sink:
                # Cut off here, the object may be there in part: its hash says so next time.
                shutil.copyfileobj(file, sink, _PIECE)

    def show(self) -> str:
        if self._pointer is None:
            return ""
        place = f"s3://{self._pointer}"
        with self._told(f"reading {place}"):
            there = self._system.get_file_info(self._pointer).is_file
        said = _parsed(b"".join(self._pieces(self._pointer, place))) if there else None
        if not there or (replaces(self._bundle, said, place) and said != self._bundle.pointer):
            with self._told(f"replacing {place}"):
                self._put_whole(self._pointer, pointer_text(self._bundle))
            said = _parsed(b"".join(self._pieces(self._pointer, place)))
        return said_of_pointer(self._bundle, place, said if isinstance(said, dict) else {})


def pointer_text(bundle: Bundle) -> bytes:
    """The pointer as a file."""
    return (json.dumps(bundle.pointer, indent=2, ensure_ascii=True) + "\n").encode()


def check() -> None:
    """Whether there are credentials only a connection tells: the machine may have a role."""


def store_of(target: S3Target, bundle: Bundle) -> S3Store:
    """The place of a bundle in a bucket."""
    return S3Store(target, bundle)


@contextmanager
def _fewer_checksums(target: S3Target) -> Iterator[None]:
    """Keep the SDK from sending checksums as trailers, which compatible stores often refuse.

    They cannot be switched off but by the environment. Every byte is read back anyway.
    """
    chosen = target.endpoint is None or _CHECKSUMS in os.environ
    if not chosen:
        os.environ[_CHECKSUMS] = "when_required"
    try:
        yield
    finally:
        if not chosen:
            os.environ.pop(_CHECKSUMS, None)


def _in_words(error: Exception) -> str:
    """The kind of a failure."""
    found = _FAULT.search(str(error))
    if found is None:
        known = isinstance(error, OSError) and error.errno
        return os.strerror(known) if known else f"The store failed ({type(error).__name__})"
    fault, status, action = found.groups()
    kind = f"{fault}{f' {status}' if status else ''} in {action}"
    if fault == "NETWORK_CONNECTION":
        return f"The store cannot be reached ({kind})"
    if fault in _CREDENTIALS:
        return f"The store refuses the credentials, or they lack a right ({kind})"
    if status in ("400", "401", "403"):
        return f"The store refuses, perhaps for want of credentials ({kind})"
    return f"The store refuses ({kind})"


def _parsed(text: bytes) -> object:
    """What a pointer says; None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
