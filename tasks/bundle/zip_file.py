"""A bundle in a zip file, verified without unpacking it.

Whatever reads the file afterwards should find what was verified, also a reader that goes from
entry to entry and never sees the list at the end. So names that lead out of the folder, two files
of one name or two names of one file, links, encrypted entries, anything between the entries or
behind compressed bytes, and entries that the list describes otherwise are refused; nothing is read
beyond the size that the manifest states, and no index of any length.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from mechanisms.errors import BundleVerificationError
from tasks.bundle.places import CHECK, CHUNK, NEITHER, Contents, is_plain, measured

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
        """Read the list of entries.

        Raises:
            BundleVerificationError: The file is damaged, or something that no bundle has is in it.
        """
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
        found: Contents = {}
        with self._opened() as archive:
            for name, entry in self._entries.items():
                path, inner = name.rstrip("/"), name.endswith("/") and name[:-1] in folders
                size, found[path] = 0 if inner else sizes.get(name), NEITHER
                if entry.file_size == size:
                    with suppress(*_BROKEN), archive.open(entry) as source:
                        read = measured(source, size)
                        found[path] = read if _fills(archive, entry) else NEITHER
                if inner and found[path] != NEITHER:
                    del found[path]
        return found

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        if statement in self._entries:
            return "", ""
        return f"This zip file is not a bundle: it has no {manifest}.", CHECK

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        """The archive; whatever is wrong with its form or its compression is said alike.

        Raises:
            BundleVerificationError: It cannot be read.
        """
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
    said = all(any(each) for each in zip(left, right, strict=True)) and (any(left) or not wide)
    return last[0] == b"PK\5\6" and last[5] == 0 and said


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
