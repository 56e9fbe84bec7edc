"""A bundle on a web server, verified by its addresses without keeping any of it.

A server does not list what it has. So the files of the manifest are fetched, each no further than
its stated size, and no slower than ``web_pace`` allows; whether there are others stays unknown.
Only http and https are spoken, and redirects followed only on the same host.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from typing import IO, Any

from mechanisms.errors import BundleFetchError, BundleVerificationError
from tasks.bundle.places import CHECK, NEITHER, Contents, is_plain, measured
from tasks.bundle.web_pace import Pace, PacedHandler, TooSlowError

TIMEOUT = 30.0
"""Seconds that a server may say nothing."""
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_PIECE = 1 << 16
_PORTS = {"http": 80, "https": 443}


class WebPrefix:
    """A bundle whose files lie below an address.

    Attributes:
        pace: That its server has to keep.
    """

    lists = False

    def __init__(self, address: str, *, timeout: float = TIMEOUT, pace: Pace | None = None) -> None:
        """Take an address, with or without a slash or ``manifest.json`` at its end.

        Raises:
            BundleVerificationError: It is not one below which files can lie.
        """
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
        self._timeout = timeout
        self.pace = pace or Pace()
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
        found: Contents = {}
        for name, size in sizes.items():
            if not is_plain(name):
                continue
            with _Answer(self, name) as answer:
                if answer.found:
                    found[name] = measured(answer, size) if answer.may_have(size) else NEITHER
        return found

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
    found = getattr(error, "reason", error)
    if isinstance(found, TooSlowError):
        return str(found)
    if isinstance(found, TimeoutError):
        return "the server did not answer in time"
    if isinstance(found, OSError):
        return found.strerror or type(found).__name__
    return (
        found if isinstance(found, str) and found else f"no valid answer ({type(error).__name__})"
    )
