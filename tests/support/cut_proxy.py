"""A proxy that lets some requests through and then is dead, as a network or a client may be."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_HOPS = {"connection", "keep-alive", "expect", "transfer-encoding"}


class CutProxy:
    """Passes HTTP requests on to a server on this machine, byte for byte, until it is cut.

    Attributes:
        port: Where it listens.
        seen: Requests that came since the last ``arm``.
    """

    def __init__(self, upstream: int) -> None:
        self.seen, self._cut, self._applied = 0, 0, False
        proxy, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", 2**16

            def handle_expect_100(self) -> bool:
                told = super().handle_expect_100()
                self.wfile.flush()
                return told

            def do_GET(self) -> None:
                with lock:
                    proxy.seen += 1
                    dead = proxy._cut and proxy.seen >= proxy._cut
                    answered = not dead
                    passed = answered or (proxy._applied and proxy.seen == proxy._cut)
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                if passed:
                    self._pass(body, answered)
                if not answered:
                    self.close_connection = True

            do_POST = do_PUT = do_HEAD = do_GET

            def _pass(self, body: bytes | None, answered: bool) -> None:
                server = http.client.HTTPConnection("127.0.0.1", upstream, timeout=600)
                kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOPS}
                server.request(self.command, self.path, body, kept)
                response = server.getresponse()
                text = response.read()
                server.close()
                if not answered:
                    return
                self.send_response_only(response.status)
                for key, value in response.getheaders():
                    if key.lower() not in _HOPS | {"content-length"}:
                        self.send_header(key, value)
                length = response.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def arm(self, cut: int = 0, *, applied: bool = False) -> None:
        """Count from 1 anew; from request ``cut`` on nothing is answered, 0 for never.

        Args:
            cut: The first request that gets no answer.
            applied: Whether the server gets that one all the same.
        """
        self.seen, self._cut, self._applied = 0, cut, applied

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
