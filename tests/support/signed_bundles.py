"""A small signed bundle, made without a run, in all the places where one may lie."""

from __future__ import annotations

import hashlib
import http.server
import os
import ssl
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.tasks.bundle.locations import Folder, Location, WebPrefix, ZipFile
from statpress.tasks.bundle.manifest import FACTS, seal_and_sign

PUBLISHER = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
FOREIGN = Ed25519PrivateKey.from_private_bytes(b"f" * 32)
CONFIG = "title: Wages\n"


def facts(**changes: Any) -> dict[str, Any]:
    """The facts of a manifest."""
    known: dict[str, Any] = dict.fromkeys(FACTS, "x")
    known |= {"dataset": "census", "title": "Wages", "reprint_of": None, "publishable": True}
    known |= {"config_sha256": hashlib.sha256(CONFIG.encode()).hexdigest()}
    return known | {"ledger_entry": {"sequence": 1, "hash": "x"}} | changes


def make_bundle(folder: Path, key: Ed25519PrivateKey | None = PUBLISHER, **changes: Any) -> Path:
    """Write a bundle; ``changes`` are of its facts."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "wages.csv").write_text("age,raw\n1,2\n3,4\n")
    (folder / "data" / "ages.csv").write_text("age,raw\n1,2\n")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "privacy.json").write_text("{}\n")
    seal_and_sign(folder, facts(**changes), key)
    return folder


def zipped(folder: Path, top: str = "", **how: Any) -> Path:
    """A zip file of a folder; ``top`` stands before every name."""
    path = folder.with_suffix(".zip")
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w", **how) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, top + file.relative_to(folder).as_posix())
    return path


@contextmanager
def served(
    folder: Path,
    answer: Callable[[Any], bool] = lambda handler: False,
    certificate: Path | None = None,
) -> Iterator[str]:
    """The address below which a server of this process has the files of a folder.

    Args:
        folder: The files.
        answer: Is given every request; whether it has answered.
        certificate: Encrypts, with its key in the same file.
    """

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if not answer(self):
                super().do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    handler = partial(Handler, directory=os.fspath(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http{'s' * bool(certificate)}://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def as_folder(folder: Path) -> Iterator[Location]:
    """The bundle as it is."""
    yield Folder(folder)


@contextmanager
def as_zip(folder: Path) -> Iterator[Location]:
    """The bundle in a zip file."""
    yield ZipFile(zipped(folder))


@contextmanager
def as_prefix(folder: Path) -> Iterator[Location]:
    """The bundle on a web server."""
    with served(folder) as address:
        yield WebPrefix(address)


PLACES = {"folder": as_folder, "zip": as_zip, "prefix": as_prefix}
