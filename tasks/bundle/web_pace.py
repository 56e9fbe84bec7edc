"""The pace at which a web server has to send a bundle, so that a slow one does not hold a reader.

A socket's timeout begins anew with every byte. So waiting has a balance as well: it begins with a
minute, which all that is waited for takes from, and to which every file that is answered and every
byte of one that arrives add a little, never above a minute. What else a server sends adds nothing:
endless headers end with the minute.
"""

from __future__ import annotations

import http.client
import io
import time
import urllib.request
from collections.abc import Callable
from typing import Any

RATE = 1000.0
"""Bytes that a server has to send in a second, averaged over ``SECONDS``."""
SECONDS = 60.0
_ANSWER = 1.0


class TooSlowError(TimeoutError):
    """A server sends less than it has to."""

    def __init__(self, rate: float) -> None:
        super().__init__(f"the server sends less than {rate:,.0f} bytes a second")


class Pace:
    """The balance of one fetch, over all its requests.

    Args:
        rate: Bytes a second.
        seconds: That the average is taken over.
    """

    def __init__(self, rate: float = RATE, seconds: float = SECONDS) -> None:
        self._rate, self._most = rate, seconds
        self._left, self._since = seconds, time.monotonic()

    def ask(self) -> None:
        """A request begins; what was done since the last one was not waiting."""
        self._since = time.monotonic()

    def answered(self) -> None:
        """A file is answered."""
        self._left = min(self._most, self._left + _ANSWER)

    def received(self, size: int) -> None:
        """So many bytes of a file arrived."""
        self._left = min(self._most, self._left + size / self._rate)

    def waited(self) -> None:
        """Take off what was waited since the last time.

        Raises:
            TooSlowError: There is no more of it.
        """
        now = time.monotonic()
        self._left -= now - self._since
        self._since = now
        if self._left < 0:
            raise TooSlowError(self._rate)


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
