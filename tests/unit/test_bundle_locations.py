"""Zip files and servers that were made to deceive or to exhaust whoever verifies a bundle."""

from __future__ import annotations

import datetime
import inspect
import io
import ipaddress
import json
import os
import stat
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from signed_bundles import make_bundle, served, zipped

from statpress.flows.cli import app
from statpress.flows.cli.bundle_commands import verify
from statpress.mechanisms.errors import BundleFetchError, BundleVerificationError, StatpressError
from statpress.tasks.bundle import locations
from statpress.tasks.bundle import manifest as manifest_module
from statpress.tasks.bundle.locations import Pace, WebPrefix, ZipFile, location_of
from statpress.tasks.bundle.manifest import (
    MANIFEST_NAME,
    seal_and_sign,
    verify_bundle,
    verify_location,
)
from statpress.tasks.bundle.manifest import SIGNATURE_NAME as SIGNATURE


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "first")


def refused(path: Path) -> str:
    """What is wrong with a zip file."""
    with pytest.raises(BundleVerificationError) as caught:
        verify_location(ZipFile(path))
    return caught.value.what


# --- zip files --------------------------------------------------------------------


@pytest.mark.parametrize("top", ["", "first/"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_files_lie_at_the_top_or_in_one_folder(bundle: Path, top: str, method: int) -> None:
    path = zipped(bundle, top, compression=method)
    assert verify_location(location_of(str(path))) == verify_bundle(bundle)


def test_a_zip_that_was_streamed_is_read(bundle: Path) -> None:
    """Its sizes follow the data, as those of a zip made in a pipe do."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, part: Any, /) -> int:
            self.content += bytes(part)
            return len(part)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        for file in sorted(bundle.rglob("*.*")):
            archive.writestr(file.relative_to(bundle).as_posix(), file.read_bytes())
    path = bundle.with_suffix(".zip")
    path.write_bytes(pipe.content)
    verify_location(ZipFile(path))
    path.write_bytes(b"x" + pipe.content)
    assert "besides its entries" in refused(path)


def _entry(
    name: str, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_STORED
) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr, entry.compress_type = mode << 16, method
    return entry


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (_entry("../evil"), "a name|with the name"),
        (_entry("/etc/passwd"), "with the name"),
        (_entry("data/../../evil"), "with the name"),
        (_entry("data//x"), "with the name"),
        (_entry("data\\x"), "with the name"),
        (_entry("C:x"), "with the name"),
        (_entry("data/\x1b[2Kx"), "with the name"),
        (_entry("data/wages.csv"), "two entries"),
        (_entry("link", stat.S_IFLNK | 0o777), "link"),
        (_entry("pipe", stat.S_IFIFO | 0o644), "link"),
        (_entry("odd", method=zipfile.ZIP_LZMA), "compressed in another way"),
        (_entry("more/", stat.S_IFDIR | 0o755), "more was added"),
        (_entry("data/more.csv"), "more.csv was added"),
        (_entry("__MACOSX/x"), "__MACOSX/x was added"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_no_bundle_has_is_refused(bundle: Path, entry: zipfile.ZipInfo, expected: str) -> None:
    path = zipped(bundle)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(entry, b"" if entry.filename.endswith("/") else b"age,raw\n1,2\n3,4\n")
    assert expected.split("|")[-1] in refused(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"MZ" + content,  # something before it
        lambda content: content + b"PK\5\6" + bytes(18),  # another, empty list at its end
        lambda content: content + b"x",
        lambda content: content[:-2] + b"\1\0x",  # a comment
        lambda content: content[: len(content) // 2],
    ],
)
def test_a_zip_of_two_readings_is_refused(bundle: Path, change: Callable[[bytes], bytes]) -> None:
    path = zipped(bundle)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BundleVerificationError):
        verify_location(location_of(str(path)))


def test_an_entry_that_the_list_leaves_out_is_found(bundle: Path) -> None:
    """A reader that goes from entry to entry would unpack it."""
    path = zipped(bundle)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("zzz", b"hidden")
        del archive.NameToInfo["zzz"], archive.filelist[-1]
    with zipfile.ZipFile(path) as archive:
        assert "zzz" not in archive.namelist()
    assert "besides its entries" in refused(path)


def test_a_list_that_only_some_readers_see_is_refused(bundle: Path) -> None:
    """An end with numbers of 64 bits leads to one list, the plain end behind it to another."""
    path = zipped(bundle)
    with zipfile.ZipFile(path) as archive:
        start, entries = archive.start_dir, len(archive.filelist)
    content = path.read_bytes()
    files, listed, last = content[:start], content[start:-22], content[-22:]

    def written(end: bytes) -> None:
        wide = struct.pack("<4sQ2H2L", b"PK\6\6", 44, 45, 45, 0, 0)
        wide += struct.pack("<4Q", entries, entries, len(listed), start)
        wide += struct.pack("<4sLQL", b"PK\6\7", 0, start + len(listed), 1)
        path.write_bytes(files + listed + wide + end)

    written(last[:8] + b"\xff" * 4 + last[12:])  # what it leaves to the other
    verify_location(ZipFile(path))
    for end in (last, last[:16] + struct.pack("<LH", start - 46, 0)):
        written(end)
        assert "besides its entries" in refused(path)
    path.write_bytes(files + listed + last[:12] + struct.pack("<2LH", len(listed) - 46, start, 0))
    assert refused(path)


def test_a_second_name_that_others_unpack_by_is_refused(bundle: Path) -> None:
    """Info-ZIP's field 0x7075: two files would be unpacked in each other's place."""
    swapped = {"data/wages.csv": "data/ages.csv", "data/ages.csv": "data/wages.csv"}
    path = bundle.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in (file for file in bundle.rglob("*") if file.is_file()):
            entry = _entry(file.relative_to(bundle).as_posix())
            if (other := swapped.get(entry.filename)) is not None:
                body = struct.pack("<BL", 1, zlib.crc32(entry.filename.encode())) + other.encode()
                entry.extra = struct.pack("<2H", 0x7075, len(body)) + body
            archive.writestr(entry, file.read_bytes())
    assert "name" in refused(path)


@pytest.mark.parametrize(("at", "size"), [(6, 2), (8, 2), (14, 4), (18, 4), (22, 4)])
def test_an_entry_that_says_otherwise_than_the_list_is_refused(
    bundle: Path, at: int, size: int
) -> None:
    """Flags, method, checksum or sizes, by which a reader from entry to entry goes."""
    path = zipped(bundle)
    with zipfile.ZipFile(path) as archive:
        at += archive.getinfo("data/wages.csv").header_offset
    content = bytearray(path.read_bytes())
    content[at : at + size] = (8).to_bytes(size, "little")
    path.write_bytes(content)
    assert "besides its entries" in refused(path)


@pytest.mark.parametrize("name", ["privacy.json", "signature.json", "manifest.json"])
def test_nothing_hides_behind_compressed_bytes(bundle: Path, name: str) -> None:
    """There a reader from entry to entry would find another entry, here another table."""
    hidden, path = io.BytesIO(), bundle.with_suffix(".zip")
    with zipfile.ZipFile(hidden, "w") as archive:
        archive.writestr("data/wages.csv", "age,raw\n9,9\n")
        end = archive.start_dir
    files = {file.relative_to(bundle).as_posix(): file for file in bundle.rglob("*.*")}

    def pack(behind: bytes) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for other in sorted(files, key=lambda other: other == name):
                archive.writestr(other, files[other].read_bytes())
            entry = archive.getinfo(name)
            archive.fp.seek(entry.header_offset)  # type: ignore[union-attr]
            packed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
            content = packed.compress(files[name].read_bytes()) + packed.flush() + behind
            entry.compress_size = len(content)
            archive.fp.write(entry.FileHeader() + content)  # type: ignore[union-attr]
            archive.start_dir = archive.fp.tell()  # type: ignore[union-attr]

    pack(b"")
    verify_location(ZipFile(path))
    pack(hidden.getvalue()[:end])
    assert unpacked(path)[name] == files[name].read_bytes()
    assert name in refused(path)


def test_a_flipped_byte_is_found_or_changes_nothing_that_is_unpacked(bundle: Path) -> None:
    path = zipped(bundle, compression=zipfile.ZIP_DEFLATED)
    content, whole = path.read_bytes(), unpacked(path)
    found = 0
    for at in range(0, len(content), 5):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        try:
            verify_location(ZipFile(path))
        except BundleVerificationError:
            found += 1
        else:
            assert unpacked(path) == whole
    assert found > len(content) / 5 / 2


def unpacked(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_bomb_is_not_unpacked(bundle: Path) -> None:
    """Neither where the size is stated and the manifest's is another, nor where it is a lie."""
    path = zipped(bundle, compression=zipfile.ZIP_DEFLATED)
    bomb = bytes(16 * 2**20)
    kept = unpacked(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in kept.items():
            archive.writestr(name, bomb if name == "data/wages.csv" else content)
    honest = path.read_bytes()
    small = struct.pack("<L", len(kept["data/wages.csv"]))
    lying = honest.replace(struct.pack("<L", len(bomb)), small)
    assert lying != honest
    for content in (honest, lying):
        path.write_bytes(content)
        tracemalloc.start()
        assert refused(path) == "data/wages.csv was changed."
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * 2**20


@pytest.mark.parametrize(("entries", "said"), [(255, "000 was added"), (257, "is damaged.")])
def test_a_list_of_entries_without_end_is_not_read(bundle: Path, entries: int, said: str) -> None:
    """Each entry has a comment of 64 KiB in the list, which may have 16 MiB."""
    path = zipped(bundle)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(entries):
            entry = _entry(f"{number:03}")
            entry.comment = bytes(2**16 - 1)
            archive.writestr(entry, b"")
    assert said in refused(path)


# --- servers ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("www") / "first")


def fetched(address: str, **how: Any) -> dict[str, Any]:
    return verify_location(WebPrefix(address, **how))


def _status(code: int, **headers: str) -> Callable[[Any], bool]:
    """Answers with a status where the data are asked for."""

    def answer(handler: Any) -> bool:
        if handler.path != "/data/wages.csv":
            return False
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value.format(port=handler.server.server_port))
        handler.end_headers()
        return True

    return answer


@pytest.mark.parametrize("ending", ["", "/", "/manifest.json"])
def test_an_address_may_end_as_it_likes(published: Path, ending: str) -> None:
    with served(published.parent) as address:
        manifest = verify_location(location_of(f"{address}first{ending}"))
    assert manifest == verify_bundle(published)


def _cut(handler: Any) -> bool:
    """Ends the connection after 3 of 16 bytes of the data."""
    if handler.path != "/data/wages.csv":
        return False
    handler.send_response(200)
    handler.send_header("Content-Length", "16")
    handler.end_headers()
    handler.wfile.write(b"age")
    return True


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_status(403), "HTTP 403 Forbidden (some servers"),
        (_status(500), "HTTP 500 Internal Server Error."),
        (_status(429), "HTTP 429 Too Many Requests"),
        (_status(599), "HTTP 599"),
        (
            _status(302, Location="http://localhost:{port}/data/ages.csv"),
            "redirects to another host",
        ),
        (_status(302, Location="http://127.0.0.1:1/x"), "redirects to another host"),
        (_status(302, Location="https://127.0.0.1:{port}/"), "redirects to another host"),
        (_status(302, Location="file:///etc/passwd"), ""),
        (_status(302, Location="ftp://127.0.0.1/x"), ""),
        (_status(302, Location="/data/wages.csv"), "HTTP 302"),
        (_cut, "the connection ended after 3 bytes"),
    ],
)
def test_an_answer_without_the_file_is_told_with_its_name(
    published: Path, answer: Callable[[Any], bool], said: str
) -> None:
    """Redirects out of the web, or to another host or port, are not followed."""
    asked = []

    def noted(handler: Any) -> bool:
        asked.append(handler.path)
        return answer(handler)

    with served(published, noted) as address, pytest.raises(BundleFetchError) as caught:
        fetched(address)
    assert "data/wages.csv cannot be fetched: " in caught.value.what and said in caught.value.what
    assert caught.value.where == address and asked[-1] == "/data/wages.csv"


@pytest.mark.parametrize("code", [404, 410])
def test_a_file_that_a_server_lacks_is_missing(published: Path, code: int) -> None:
    with (
        served(published, _status(code)) as address,
        pytest.raises(BundleVerificationError, match=r"data/wages\.csv is missing"),
    ):
        fetched(address)


def test_redirects_on_the_host_are_followed(published: Path) -> None:
    def answer(handler: Any) -> bool:
        if handler.path == "/data/wages.csv":
            return _status(302, Location="/moved/wages.csv")(handler)
        if handler.path == "/moved/wages.csv":
            handler.path = "/data/wages.csv"
        return False

    with served(published, answer) as address:
        fetched(address)


def test_a_stream_without_end_is_cut_at_the_stated_size(published: Path) -> None:
    """The server states no length, and never stops."""
    sent = []

    def answer(handler: Any) -> bool:
        if handler.path != "/data/wages.csv":
            return False
        handler.send_response(200)
        handler.end_headers()
        part = bytes(2**20)
        try:
            while len(sent) < 64:
                handler.wfile.write(part)
                sent.append(1)
        except OSError:
            pass
        return True

    with (
        served(published, answer) as address,
        pytest.raises(BundleVerificationError, match=r"data/wages\.csv was changed"),
    ):
        fetched(address)
    assert len(sent) < 64


def test_a_silent_server_is_not_waited_for(published: Path) -> None:
    def answer(handler: Any) -> bool:
        if handler.path == "/data/wages.csv":
            time.sleep(0.3)
        return False

    with (
        served(published, answer) as address,
        pytest.raises(BundleFetchError, match="did not answer in time"),
    ):
        fetched(address, timeout=0.1)
    assert 10 <= locations.TIMEOUT <= 120


DRIPS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n", b"a"),
    "body without a length": (b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
    "status": (b"", b"H"),
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: x\r\n"),
    "size of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "answers to come": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body of a redirect": (b"HTTP/1.1 302 Found\r\nLocation: /data/wages.csv\r\n\r\n", b"a"),
}


def dripping(drip: str, drops: list[int]) -> Callable[[Any], bool]:
    """Answers drop by drop where the data are asked for."""
    start, drop = DRIPS[drip]

    def answer(handler: Any) -> bool:
        if handler.path != "/data/wages.csv":
            return False
        with suppress(OSError):
            handler.connection.sendall(start)
            while len(drops) < 1000:
                handler.connection.sendall(drop)
                drops.append(1)
                time.sleep(0.05)
        handler.close_connection = True
        return True

    return answer


@pytest.mark.parametrize("drip", DRIPS)
def test_a_dripping_server_is_not_waited_for(published: Path, drip: str) -> None:
    """Every byte comes long before the silence is too long."""
    drops: list[int] = []
    slow = "the server sends less than 1,000 bytes a second"
    said = "HTTP 302" if drip == "body of a redirect" else slow
    with (
        served(published, dripping(drip, drops)) as address,
        pytest.raises(BundleFetchError) as caught,
    ):
        fetched(address, pace=Pace(1000, 0.5))
    assert f"data/wages.csv cannot be fetched: {said}" in caught.value.what
    assert caught.value.exit_code == 66
    assert len(drops) < 500


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1, signed by itself, behind its key."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.datetime(2000, 1, 1))  # whatever the clock of tests says
        .not_valid_after(datetime.datetime(2100, 1, 1))
        .add_extension(names, critical=False)
        .sign(key, None)
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.touch(0o600)
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize("drip", [None, "body", "status", "size of a chunk"])
def test_the_same_holds_of_encrypted_addresses(
    published: Path, certificate: Path, drip: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that nobody vouches for is refused."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    with served(published, certificate=certificate) as address, pytest.raises(BundleFetchError):
        fetched(address)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    if drip is None:
        with served(published, certificate=certificate) as address:
            assert address.startswith("https://")
            assert fetched(address) == verify_bundle(published)
        return
    with (
        served(published, dripping(drip, []), certificate=certificate) as address,
        pytest.raises(BundleFetchError, match=r"data/wages\.csv cannot be fetched"),
    ):
        fetched(address, pace=Pace(1000, 0.5))


def test_many_dripping_files_share_one_balance(published: Path) -> None:
    """A pace of every file's own would wait for each nearly as long as it may."""
    asked, clock = [], [0.0]

    def answer(handler: Any) -> bool:
        asked.append(handler.path)
        clock[0] += 0.2
        return False

    pace = Pace(10**9, 0.5, clock=lambda: clock[0])
    pace.answered = lambda: None  # type: ignore[method-assign]
    with served(published, answer) as address, pytest.raises(BundleFetchError, match="less than"):
        fetched(address, pace=pace)
    assert len(asked) == 3


def test_the_pace_is_an_average_over_a_minute() -> None:
    clock = [0.0]

    def fetch(size: float, seconds: float, times: int = 1000) -> None:
        pace = Pace(clock=lambda: clock[0])
        for _ in range(times):
            clock[0] += 1000
            pace.ask()
            clock[0] += seconds
            pace.waited()
            pace.received(size)

    fetch(1000, 1)
    fetch(59_000, 59)
    fetch(0, 1, times=60)
    for slow in ((990, 1), (1, 0.01), (10**9, 61)):
        with pytest.raises(TimeoutError, match="less than 1,000 bytes a second"):
            fetch(*slow, times=20_000)
    pace = Pace(clock=lambda: clock[0])
    for _ in range(1000):  # small files from far away
        pace.ask()
        clock[0] += 0.9
        pace.waited()
        pace.answered()


def resealed(bundle: Path, files: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Write the manifest of an unsigned bundle anew, with other files and a seal that is right."""
    place = bundle / MANIFEST_NAME
    manifest = json.loads(place.read_text())
    manifest["files"] = files(manifest["files"])
    del manifest["seal"]
    manifest["seal"] = manifest_module._digest_of(manifest)
    place.write_text(manifest_module._text(manifest))


def test_a_manifest_that_states_too_much_is_not_fetched(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "first", None)
    resealed(bundle, lambda files: [{**file, "bytes": 10**15} for file in files])
    asked = []

    def answer(handler: Any) -> bool:
        asked.append(handler.path)
        return False

    with served(bundle, answer) as address:
        for most in ({}, {"most": 4 * 10**15 - 1}):
            with pytest.raises(BundleFetchError, match="4,000,000,000,000,000 bytes") as caught:
                fetched(address, **most)
            assert caught.value.exit_code == 66 and "--max-bytes" in caught.value.next_step
        assert asked == ["/manifest.json"] * 2
        with pytest.raises(BundleVerificationError, match=r"wages\.csv was changed"):
            fetched(address, most=4 * 10**15)


def test_a_fetch_ends_however_fast_the_server_sends(published: Path) -> None:
    """Every answer is at once and in full; the clock goes on by 20 minutes each time."""
    clock = [0.0]
    asked = []

    def answer(handler: Any) -> bool:
        asked.append(handler.path)
        clock[0] += 1200
        return False

    pace = Pace(seconds=10**6, total=locations.MOST_SECONDS, clock=lambda: clock[0])
    with (
        served(published, answer) as address,
        pytest.raises(BundleFetchError, match=r"the bundle takes longer than 3,600 seconds"),
    ):
        fetched(address, pace=pace)
    assert len(asked) == 4


def test_the_command_bounds_what_it_fetches(published: Path) -> None:
    with served(published) as address:
        app(["verify", address], exit_on_error=False)
        for option in ("--max-bytes", "--max-seconds"):
            with pytest.raises(BundleFetchError):
                app(["verify", address, option, "0"], exit_on_error=False)
    defaults = inspect.signature(verify).parameters
    assert defaults["max_bytes"].default == locations.MOST_BYTES
    assert defaults["max_seconds"].default == locations.MOST_SECONDS


@pytest.mark.parametrize("order", [1, -1])
def test_a_path_that_a_manifest_lists_twice_is_refused(tmp_path: Path, order: int) -> None:
    """Whichever of the two is right, a reader may go by the other."""
    bundle = make_bundle(tmp_path / "first", None)

    def twice(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*files, {**files[-1], "sha256": "0" * 64}][::order]

    resealed(bundle, twice)
    with pytest.raises(BundleVerificationError, match=r"manifest\.json lists .* 2 times"):
        verify_bundle(bundle)


def test_very_many_strays_are_counted(tmp_path: Path) -> None:
    path = zipped(make_bundle(tmp_path / "first"))
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(1_000):
            archive.writestr(f"{number:06}", b"")
    said = refused(path)
    assert said.count("was added") == 20 and said.endswith("and 980 more.")
    assert "000000 was added; 000001 was added" in said and len(said) < 1000


def test_a_manifest_leads_nowhere_else(tmp_path: Path) -> None:
    """A hostile one names files above the prefix; nobody asks the server for them."""
    bundle = make_bundle(tmp_path / "first", None)
    manifest = json.loads((bundle / MANIFEST_NAME).read_text())
    facts = {k: v for k, v in manifest.items() if k not in ("format", "files", "seal")}
    (tmp_path / "secret").write_text("x")
    (bundle / "..\\secret").write_text("x")
    (bundle / MANIFEST_NAME).unlink()
    seal_and_sign(bundle, facts, None)
    asked = []

    def answer(handler: Any) -> bool:
        asked.append(handler.path)
        return False

    with (
        served(bundle, answer) as address,
        pytest.raises(BundleVerificationError, match="secret is missing"),
    ):
        fetched(address)
    assert not any("secret" in path for path in asked)


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://host/x", "file:///etc/passwd", "https://user:word@host/x", "https:///x"),
        *("https://host/x?key=1", "https://host/x#y", "https://host/a b"),
    ],
)
def test_addresses_that_no_bundle_has_are_refused(address: str) -> None:
    with pytest.raises(BundleVerificationError) as caught:
        location_of(address)
    assert "word" not in str(caught.value).replace("password", "")


def test_nobody_listens(published: Path) -> None:
    with served(published) as address:
        pass
    with pytest.raises(BundleFetchError, match=r"manifest.json cannot be fetched: Connection"):
        fetched(address)


# --- the command ------------------------------------------------------------------


def test_what_the_command_says(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    from prepared import write_keys
    from signed_bundles import FOREIGN, PUBLISHER

    _, ours = write_keys(tmp_path, PUBLISHER, "ours")
    _, theirs = write_keys(tmp_path, FOREIGN, "theirs")

    def say(*words: object, expected: int = 0) -> str:
        told = nullcontext() if not expected else pytest.raises(StatpressError)
        with told as caught:
            app(["verify", *map(str, words)], exit_on_error=False)
        if caught is not None:
            assert caught.value.exit_code == expected
            return str(caught.value)
        return " ".join(capsys.readouterr().out.split())

    path = zipped(bundle)
    assert "Signed by a key that was not given" in say(path)
    assert "Signed by the given key" in say(path, "--key", theirs, "--key", ours)
    assert "None of the given keys signed" in say(path, "--key", theirs, expected=65)
    facts = json.loads(say(path, "--json"))
    assert facts["signature"]["trusted"] is False and facts["others_looked_for"] is True
    assert "only about a bundle that is a folder" in say(path, "--home", tmp_path, expected=53)
    with served(bundle) as address:
        said = say(address, "--key", ours)
    assert "whether it has more of them is not known" in said and "Signed by the given" in said
    plain = make_bundle(tmp_path / "plain", None)
    assert "It is not signed." in say(plain)
    assert "signed by nobody" in say(plain, "--key", ours, expected=65)
    (bundle / SIGNATURE).unlink()
    assert "signature.json is missing" in say(bundle, expected=53)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"")
    assert "damaged" in say(broken, expected=53)
