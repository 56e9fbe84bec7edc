"""Where a bundle may lie, and how its files are read there for verifying.

A bundle is a folder; for verifying it may also be a zip file, which is never unpacked, or a prefix
of addresses on a web server.

Whatever reads a zip file afterwards should find what was verified, also a reader that goes from
entry to entry and never sees the list at the end. So names that lead out of the folder, two files
of one name or two names of one file, links, encrypted entries, anything between the entries or
behind compressed bytes, and entries that the list describes otherwise are refused; nothing is read
beyond the size that the manifest states, and no index of any length.

A web server does not list what it has. So the files of the manifest are fetched, each no further
than its stated size, and none of it is kept; whether there are others stays unknown. Only http and
https are spoken, and redirects followed only on the same host.

A server has to keep a pace, so that a slow one does not hold a reader: a socket's timeout begins
anew with every byte. So waiting has a balance as well: it begins with a minute, which all that is
waited for takes from, and to which every file that is answered and every byte of one that arrives
add a little, never above a minute. What else a server sends adds nothing: endless headers end with
the minute. Nor does one that keeps the pace hold a reader for ever: a manifest that states more
bytes than are to be fetched is refused before the first of them, and all requests together have an
hour. Both bounds are the reader's to choose.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import math
import os
import re
import stat
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from io import BufferedReader, FileIO
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Protocol, cast

from statpress.mechanisms.errors import BundleFetchError, BundleVerificationError

Contents = dict[str, tuple[int, str]]
"""Size and SHA-256 of files, by path; size -1 of what is not such a file."""

NEITHER = (-1, "")
"""What stands for anything that is not a file as it should be."""

CHUNK = 1 << 20
CHECK = "Check the path of the bundle."


class Source(Protocol):
    """What can be read to its end."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class Location(Protocol):
    """A bundle to be verified.

    Attributes:
        where: For messages.
        lists: Whether it can say which files there are besides those that are asked for.
    """

    where: str
    lists: bool

    def text(self, name: str, most: int) -> bytes | None:
        """A small file; None if it is missing or not a plain file, empty if it is too large.

        Args:
            name: Its path in the bundle.
            most: Bytes that it may have.
        """

    def contents(self, sizes: Mapping[str, int]) -> Contents:
        """What the files hold, all but the manifest; in bounded memory.

        Args:
            sizes: By path the bytes that a file should have. One with others need not be read.
        """

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        """What is wrong where no manifest is, and the next step; or two blanks.

        Args:
            manifest: The file that is missing.
            statement: The one that would tell a bundle which lost it from something else.
        """


class Folder:
    """A bundle as it is published."""

    lists = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = str(folder)

    def text(self, name: str, most: int) -> bytes | None:
        path = self._folder / name
        if path.is_symlink() or not path.is_file():
            return None
        return path.read_bytes() if path.stat().st_size <= most else b""

    def contents(self, sizes: Mapping[str, int]) -> Contents:
        """All files; an empty folder counts as one, so that none can be slipped in."""
        return contents_of(self._folder)

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        if not os.path.lexists(self._folder):
            return "There is no such folder or file.", CHECK
        if not self._folder.is_dir():
            return "This is neither a folder nor a zip file.", CHECK
        if not any(os.path.lexists(self._folder / name) for name in (manifest, statement)):
            return f"This folder is not a bundle: it has no {manifest}.", CHECK
        return "", ""


def contents_of(folder: Path) -> Contents:
    """Size and SHA-256 of every file in a folder, by its path there.

    Anything that is neither a file nor a folder counts as a file of size -1, and so
    does an empty folder, so that neither can be slipped in.
    """
    contents: Contents = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                contents[relative] = (path.stat().st_size, digest)
            elif not stat.S_ISDIR(mode) or not any(path.iterdir()):
                contents[relative] = NEITHER
    return contents


def measured(source: Source, size: int) -> tuple[int, str]:
    """Bytes and SHA-256 of what is read, or ``NEITHER`` unless it ends after so many bytes."""
    digest, received = hashlib.sha256(), 0
    while part := source.read(CHUNK):
        received += len(part)
        if received > size:
            return NEITHER
        digest.update(part)
    return received, digest.hexdigest()


def is_plain(path: str) -> bool:
    """Whether a path leads to one place below a folder, on every system."""
    parts = path.split("/")
    return (
        path.isprintable()
        and not set(path) & set('\\:*?"<>|')
        and all(part not in ("", ".", "..") for part in parts)
    )


_INDEX = 16 * 2**20
"""Bytes that the list of entries may have."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_LOCAL, _END, _LOCATOR, _WIDE_END = 30, 22, 20, 56
_DESCRIPTORS: dict[bool, tuple[int, ...]] = {False: (0,), True: (12, 16, 20, 24)}
_FLAGS = 0x2849  # encrypted, sizes behind the bytes, strongly encrypted, name in UTF-8, masked
_WIDE, _OTHER_NAME = 0x0001, 0x7075  # extra fields: sizes of 64 bits, Info-ZIP's second name


class _Bounded(BufferedReader):
    """A file of which nobody reads more than the longest list of entries at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = os.fstat(self.fileno()).st_size - self.tell()
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > _INDEX:
            raise zipfile.BadZipFile("the list of entries is too long")
        return super().read(wanted)


class ZipFile:
    """A bundle in a zip file, whose files lie at its top or in its only folder."""

    lists = True

    def __init__(self, path: Path) -> None:
        """Read the list of entries."""
        self.where = str(path)
        self._path = path
        with self._opened() as archive:
            flaw = next(_flaws(archive), "")
            entries = archive.infolist()
        if flaw:
            raise BundleVerificationError(flaw, where=self.where)
        tops = {entry.filename.partition("/")[0] for entry in entries}
        inside = len(tops) == 1 and all("/" in entry.filename for entry in entries)
        below = len(f"{tops.pop()}/") if inside else 0
        self._entries = {e.filename[below:]: e for e in entries if e.filename[below:]}

    def text(self, name: str, most: int) -> bytes | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.file_size > most:
            return b""
        try:
            with self._opened() as archive, archive.open(entry) as source:
                content = source.read(most + 1)
                return content if _fills(archive, entry) else b""
        except BundleVerificationError:
            return b""

    def contents(self, sizes: Mapping[str, int]) -> Contents:
        folders = {str(parent) for name in self._entries for parent in PurePosixPath(name).parents}
        contents: Contents = {}
        with self._opened() as archive:
            for name, entry in self._entries.items():
                path, inner = name.rstrip("/"), name.endswith("/") and name[:-1] in folders
                size, contents[path] = 0 if inner else sizes.get(name), NEITHER
                if entry.file_size == size:
                    with suppress(*_BROKEN), archive.open(entry) as source:
                        read = measured(source, size)
                        contents[path] = read if _fills(archive, entry) else NEITHER
                if inner and contents[path] != NEITHER:
                    del contents[path]
        return contents

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        if statement in self._entries:
            return "", ""
        return f"This zip file is not a bundle: it has no {manifest}.", CHECK

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        """The archive; whatever is wrong with its form or its compression raises the same error."""
        flaw = ""
        try:
            with _Bounded(FileIO(self._path)) as file, zipfile.ZipFile(file) as archive:
                yield archive
        except OSError as error:
            flaw = f"The file cannot be read ({error.strerror or type(error).__name__})."
        except _BROKEN:
            flaw = "The zip file is damaged."
        if flaw:
            raise BundleVerificationError(flaw, where=self.where)


def _flaws(archive: zipfile.ZipFile) -> Iterator[str]:
    """What is in an archive that no bundle has."""
    names = set()
    for entry in archive.infolist():
        name, kind = entry.filename.rstrip("/"), stat.S_IFMT(entry.external_attr >> 16)
        shown = repr(entry.orig_filename[:100])
        if entry.orig_filename != entry.filename or not is_plain(name):
            yield f"The zip file has an entry with the name {shown}, which no bundle has."
        if name in names:
            yield f"The zip file has two entries with the name {shown}."
        names.add(name)
        if kind not in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG):
            yield f"The entry {shown} of the zip file is a link or another special file."
        if _OTHER_NAME in _extra_fields(entry.extra):
            yield f"The entry {shown} of the zip file has a second name."
        if entry.flag_bits & 0x41 or entry.compress_type not in _METHODS:
            yield f"The entry {shown} of the zip file is encrypted, or compressed in another way."
    if _has_gaps(archive):
        yield "The zip file holds something besides its entries."


def _has_gaps(archive: zipfile.ZipFile) -> bool:
    """Whether entries overlap, anything lies beside them, or they are not as the list has them."""
    file, end, spaces = cast("BinaryIO", archive.fp), 0, _DESCRIPTORS[False]
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        if entry.header_offset - end not in spaces:
            return True
        file.seek(entry.header_offset)
        head = file.read(_LOCAL)
        if len(head) < _LOCAL or _says_otherwise(entry, head, file):
            return True
        end = _start(entry, head) + entry.compress_size
        spaces = _DESCRIPTORS[bool(entry.flag_bits & 8)]
    if archive.start_dir - end not in spaces:
        return True
    return not _ends_plainly(file, len(archive.infolist()), archive.start_dir)


def _ends_plainly(file: BinaryIO, entries: int, start: int) -> bool:
    """Whether the end of a file leads every reader to the same list of entries, and has no comment.

    Of two ends, one with numbers of 64 bits, some readers go by the other: so the first may only
    be there where the second leaves numbers to it, and the second's others are right.
    """
    end = file.seek(-_END, os.SEEK_END)
    last = struct.unpack("<4s4x2H2LH", file.read(_END))
    file.seek(max(end - _LOCATOR, 0))
    wide = file.read(4) == b"PK\6\7"
    listed = end - start - (_LOCATOR + _WIDE_END if wide else 0)
    numbers, limits = (entries, entries, listed, start), (0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1)
    left = [one == limit for one, limit in zip(last[1:5], limits, strict=True)]
    right = [one == number for one, number in zip(last[1:5], numbers, strict=True)]
    consistent = all(any(pair) for pair in zip(left, right, strict=True))
    consistent = consistent and (any(left) or not wide)
    return last[0] == b"PK\5\6" and last[5] == 0 and consistent


def _start(entry: zipfile.ZipInfo, head: bytes) -> int:
    """Where the bytes of an entry begin, by what stands before them."""
    name, extra = struct.unpack_from("<2H", head, 26)
    return entry.header_offset + _LOCAL + int(name + extra)


def _says_otherwise(entry: zipfile.ZipInfo, head: bytes, file: BinaryIO) -> bool:
    """Whether what stands before an entry's bytes is not what the list says of it.

    The file is where its name begins. Sizes may stand behind the bytes instead.
    """
    flags, method, crc, packed, size, name, extra = struct.unpack("<6xHH4xLLLHH", head)
    file.seek(name, os.SEEK_CUR)
    fields = _extra_fields(file.read(extra))
    if 0xFFFFFFFF in (packed, size) and len(fields.get(_WIDE, b"")) >= 16:
        size, packed = struct.unpack_from("<2Q", fields[_WIDE])
    stated, listed = (crc, packed, size), (entry.CRC, entry.compress_size, entry.file_size)
    behind = (0,) * bool(flags & 8)
    return (
        _OTHER_NAME in fields
        or (flags ^ entry.flag_bits) & _FLAGS != 0
        or method != entry.compress_type
        or (method == zipfile.ZIP_STORED and entry.compress_size != entry.file_size)
        or any(one not in (other, *behind) for one, other in zip(stated, listed, strict=True))
    )


def _extra_fields(extra: bytes) -> dict[int, bytes]:
    """The extra fields of an entry by their kind; the last of each."""
    fields, at = {}, 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        fields[kind] = extra[at + 4 : at + 4 + length]
        at += 4 + length
    return fields


def _fills(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Whether an entry's compressed bytes end with it, so that nothing is hidden behind them."""
    if entry.compress_type == zipfile.ZIP_STORED:
        return True
    file, inflater = cast("BinaryIO", archive.fp), zlib.decompressobj(-zlib.MAX_WBITS)
    file.seek(entry.header_offset)
    file.seek(_start(entry, file.read(_LOCAL)))
    left = entry.compress_size
    while left and not inflater.eof and (part := file.read(min(left, CHUNK))):
        left -= len(part)
        while part and not inflater.eof:
            inflater.decompress(part, CHUNK)
            part = inflater.unconsumed_tail
    while not inflater.eof and inflater.decompress(b"", CHUNK):
        pass
    return inflater.eof and not left and not inflater.unused_data


RATE = 1000.0
"""Bytes that a server has to send in a second, averaged over ``SECONDS``."""
SECONDS = 60.0
MOST_BYTES = 10 * 10**9
"""Bytes that the files of a bundle may have together for it to be fetched."""
MOST_SECONDS = 3600.0
"""That fetching a bundle may take in all."""
_ANSWER = 1.0


class TooSlowError(TimeoutError):
    """A server sends less than it has to, or has taken as long as it may."""


class Pace:
    """The balance of one fetch, over all its requests.

    Args:
        rate: Bytes a second.
        seconds: That the average is taken over.
        total: Seconds that everything may take.
        clock: Seconds from any point in time.
    """

    def __init__(
        self,
        rate: float = RATE,
        seconds: float = SECONDS,
        total: float = math.inf,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._most, self._total, self._clock = rate, seconds, total, clock
        self._left, self._since = seconds, clock()
        self._end = self._since + total

    def ask(self) -> None:
        """A request begins; what was done since the last one was not waiting."""
        self._since = self._clock()

    def answered(self) -> None:
        """A file is answered."""
        self._left = min(self._most, self._left + _ANSWER)

    def received(self, size: int) -> None:
        """So many bytes of a file arrived."""
        self._left = min(self._most, self._left + size / self._rate)

    def waited(self) -> None:
        """Take off what was waited since the last time."""
        now = self._clock()
        self._left -= now - self._since
        self._since = now
        if self._left < 0:
            raise TooSlowError(f"the server sends less than {self._rate:,.0f} bytes a second")
        if now > self._end:
            raise TooSlowError(f"the bundle takes longer than {self._total:,.0f} seconds")


class PacedHandler(urllib.request.AbstractHTTPHandler):
    """Speaks http and https with servers that keep a pace."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Ask without encryption."""
        return self.do_open(self._connecting(http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Ask with encryption; certificates are checked as by default."""
        return self.do_open(self._connecting(http.client.HTTPSConnection), request)

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def _connecting(self, kind: type[http.client.HTTPConnection]) -> Callable[..., Any]:
        def connect(host: str, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            connection.response_class = answer  # type: ignore[assignment]
            return connection

        def answer(*given: Any, **named: Any) -> http.client.HTTPResponse:
            response = http.client.HTTPResponse(*given, **named)
            response.fp = io.BufferedReader(_Paced(response.fp, self._pace))
            return response

        return connect


class _Paced(io.RawIOBase):
    """What a socket gives, each piece by the pace."""

    def __init__(self, file: Any, pace: Pace) -> None:
        super().__init__()
        self._file, self._pace = file, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size: int = self._file.readinto1(buffer)
        self._pace.waited()
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


TIMEOUT = 30.0
"""Seconds that a server may say nothing."""
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_PIECE = 1 << 16
_PORTS = {"http": 80, "https": 443}


class WebPrefix:
    """A bundle whose files lie below an address.

    Args:
        address: With or without a slash or ``manifest.json`` at its end.
        timeout: Seconds that the server may say nothing.
        pace: That the server has to keep.
        most: Bytes that the files may have together.

    Attributes:
        pace: As given.
    """

    lists = False

    def __init__(
        self,
        address: str,
        *,
        timeout: float = TIMEOUT,
        pace: Pace | None = None,
        most: int = MOST_BYTES,
    ) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc:
            flaw = "Bundles are fetched from addresses with http:// or https:// and no password."
        elif parts.query or parts.fragment or not address.isascii() or " " in address:
            flaw = "The files of a bundle cannot lie below this address."
        else:
            flaw = ""
        if flaw:
            raise BundleVerificationError(flaw, where=parts.hostname or "", next_step=CHECK)
        self.where = f"{address.removesuffix('manifest.json').rstrip('/')}/"
        self._timeout, self._most = timeout, most
        self.pace = pace or Pace(total=MOST_SECONDS)
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            *(urllib.request.ProxyHandler(), PacedHandler(self.pace), _SameHost()),
            *(urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor()),
        ):
            self._opener.add_handler(handler)

    def text(self, name: str, most: int) -> bytes | None:
        with _Answer(self, name) as answer:
            if not answer.found:
                return None
            content = answer.read(most + 1)
            return content if len(content) <= most else b""

    def contents(self, sizes: Mapping[str, int]) -> Contents:
        total = sum(sizes.values())
        if total > self._most:
            raise BundleFetchError(
                f"The manifest states {total:,} bytes, and {self._most:,} are fetched at most.",
                where=self.where,
                next_step="If you expect so much of the publisher, give --max-bytes.",
            )
        contents: Contents = {}
        for name, size in sizes.items():
            if not is_plain(name):
                continue
            with _Answer(self, name) as answer:
                if answer.found:
                    contents[name] = measured(answer, size) if answer.may_have(size) else NEITHER
        return contents

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        with _Answer(self, statement) as answer:
            if answer.found:
                return "", ""
        return f"There is no {manifest} below this address (HTTP 404).", CHECK

    def opened(self, name: str) -> Any:
        """The server's answer to a request for a file."""
        request = urllib.request.Request(  # noqa: S310 - the opener speaks only http and https
            self.where + urllib.parse.quote(name),
            headers={"Accept-Encoding": "identity", "User-Agent": "statpress"},
        )
        return self._opener.open(request, timeout=self._timeout)


class _Answer:
    """A file as a server sends it; a failure says which file and why.

    Attributes:
        found: Whether the server has the file.
    """

    def __init__(self, prefix: WebPrefix, name: str) -> None:
        self.found = False
        self._prefix, self._name, self._read = prefix, name, 0
        self._response: Any = None

    def __enter__(self) -> _Answer:
        self._prefix.pace.ask()
        try:
            self._response = self._prefix.opened(self._name)
            self.found = True
            self._prefix.pace.answered()
        except urllib.error.HTTPError as error:
            with closing(error):
                if error.code not in _MISSING:
                    raise self._failure(f"HTTP {error.code} {_phrase(error.code)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._failure(_reason(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.close()

    def may_have(self, size: int) -> bool:
        """Whether the server states this number of bytes, or none."""
        stated = self._response.headers.get("Content-Length")
        return stated is None or stated == str(size)

    def read(self, size: int, /) -> bytes:
        """At most so many bytes."""
        parts, wanted = [], size
        try:
            while wanted and (part := self._response.read1(min(wanted, _PIECE))):
                parts.append(part)
                self._prefix.pace.received(len(part))
                wanted -= len(part)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._failure(_reason(error)) from None
        self._read += size - wanted
        if wanted and self._response.length:
            raise self._failure(f"the connection ended after {self._read} bytes")
        return b"".join(parts)

    def _failure(self, reason: str) -> BundleFetchError:
        return BundleFetchError(
            f"{self._name} cannot be fetched: {reason}.", where=self._prefix.where
        )


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects that stay on the host, and do not give encryption up."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = map(urllib.parse.urlsplit, (req.full_url, newurl))
        moved = (_PORTS.get(new.scheme), new.port or _PORTS.get(new.scheme))
        stays = (_PORTS[old.scheme], old.port or _PORTS[old.scheme])
        safer = (stays, moved) == ((80, 80), (443, 443))
        if new.hostname != old.hostname or not (moved == stays or safer) or "@" in new.netloc:
            raise urllib.error.URLError("the server redirects to another host")
        fp.close()  # its body, which may never end, would be read
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _phrase(code: int) -> str:
    """What a status means, and what else it may."""
    try:
        phrase = HTTPStatus(code).phrase
    except ValueError:
        return "(a status that HTTP does not define)"
    forbidden = " (some servers answer so for a file that is missing)"
    return phrase + forbidden * (code == HTTPStatus.FORBIDDEN)


def _reason(error: Exception) -> str:
    """Why there is no answer."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TooSlowError):
        return str(reason)
    if isinstance(reason, TimeoutError):
        return "the server did not answer in time"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    if isinstance(reason, str) and reason:
        return reason
    return f"no valid answer ({type(error).__name__})"


def location_of(bundle: str, *, most: int = MOST_BYTES, seconds: float = MOST_SECONDS) -> Location:
    """Where a bundle lies: a folder, a zip file, or the files below a web address.

    Args:
        bundle: Path or address.
        most: Bytes that are fetched at most from an address.
        seconds: That fetching them may take.
    """
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", bundle):
        return WebPrefix(bundle, pace=Pace(total=seconds), most=most)
    path = Path(bundle)
    if path.is_file() and _begins_as_zip(path):
        return ZipFile(path)
    return Folder(path)


def _begins_as_zip(path: Path) -> bool:
    """Whether a file is meant as a zip file."""
    with path.open("rb") as file:
        return file.read(2) == b"PK" or path.suffix.lower() == ".zip"
