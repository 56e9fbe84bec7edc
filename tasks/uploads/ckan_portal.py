"""Calls to a CKAN portal: its action API by ckanapi, with a token.

The token is ``CKAN_API_TOKEN``, or stands in the file that ``CKAN_API_TOKEN_FILE`` names, which
only its owner may be able to use. It goes to the address of the config and to no other, also where
that redirects a download.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from statpress.mechanisms.errors import DependencyError, UploadError
from statpress.tasks.source.guarding import text_of_owner

try:
    import requests
    from ckanapi import RemoteCKAN
    from ckanapi.errors import CKANAPIError, NotAuthorized, NotFound, ServerIncompatibleError
    from ckanapi.errors import ValidationError as Refused
    from urllib3 import encode_multipart_formdata
except ModuleNotFoundError:
    raise DependencyError(
        "Publishing on a CKAN portal needs the package ckanapi.",
        next_step="Install the extra: pip install 'statpress[ckan]'.",
    ) from None

TOKEN, TOKEN_FILE = "CKAN_API_TOKEN", "CKAN_API_TOKEN_FILE"
_SECONDS = (10, 300)
_PIECE = 2**20
_LONGEST = 10_000


class Portal:
    """One portal.

    Args:
        address: Its address.
        token: Of whoever uploads.
    """

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._session = _Session(token)
        self._remote = RemoteCKAN(
            address, user_agent=f"statpress/{version('statpress')}", session=self._session
        )

    def call(self, action: str, **fields: Any) -> Any:
        """The result of an action; a field ``upload`` is a file with its name and media type.

        Raises:
            UploadError: It fails.
        """
        files = {"upload": fields.pop("upload")} if "upload" in fields else None
        with self._told(action):
            options = {"timeout": _SECONDS}
            return self._remote.call_action(action, fields, files=files, requests_kwargs=options)
        raise AssertionError  # what is told is raised

    def find(self, action: str, **fields: Any) -> dict[str, Any] | None:
        """The result of an action that shows something; None where there is no such thing."""
        with self._told(action):
            try:
                options = {"timeout": _SECONDS}
                found: dict[str, Any] = self._remote.call_action(
                    action, fields, requests_kwargs=options
                )
                return found
            except NotFound:
                return None
        raise AssertionError

    def download(self, path: str) -> Iterator[bytes]:
        """A file of the portal in pieces; none where there is no such file."""
        with self._told("downloading"):
            url = f"{self._address}/{path}"
            with self._session.get(url, stream=True, timeout=_SECONDS) as response:
                if response.status_code != requests.codes.not_found:
                    response.raise_for_status()
                    yield from response.iter_content(_PIECE)

    @contextmanager
    def _told(self, action: str) -> Iterator[None]:
        """Say what failed in words of our own: an answer may quote what was sent."""
        said = ""
        try:
            yield
        except NotAuthorized:
            said = f"The portal does not let this token do that ({action})"
        except Refused as error:
            said = f"The portal refuses {_fields(error.error_dict)} ({action})"
        except NotFound:
            said = f"The portal does not find what it needs ({action})"
        except (requests.ConnectionError, requests.Timeout) as error:
            said = f"The portal cannot be reached ({type(error).__name__} in {action})"
        except (CKANAPIError, ServerIncompatibleError, requests.RequestException):
            status = self._session.status
            answered = f"HTTP status {status}" if status else "no answer"
            said = f"The portal does not answer as CKAN does ({answered} in {action})"
        except OSError as error:
            said = f"{os.strerror(error.errno) if error.errno else 'A file fails'} ({action})"
        if said:
            raise UploadError(f"{said}.", where=self._address)


class _Session(requests.Session):
    """Sends the token, streams files, and remembers the status of the last answer."""

    status: int | None = None

    def __init__(self, token: str) -> None:
        super().__init__()
        self.auth = _with_token(token)  # so that no netrc file has a say in it

    def post(self, url: Any, data: Any = None, json: Any = None, **more: Any) -> Any:
        """Post; a file is never held in memory as a whole."""
        files, headers = more.pop("files", None), dict(more.pop("headers", None) or {})
        if files:
            data = _Form(data, files["upload"])
            headers["Content-Type"] = data.content_type
        return super().post(url, data, json, headers=headers, **more)

    def request(self, *given: Any, **named: Any) -> Any:
        """Send a request."""
        self.status = None
        response = super().request(*given, **named)
        self.status = response.status_code
        return response


def _with_token(token: str) -> Callable[[Any], Any]:
    """What puts the token into a request; requests takes it out where another host is next."""

    def put(request: Any) -> Any:
        request.headers["Authorization"] = token
        return request

    return put


class _Form:
    """A form with one file (multipart/form-data), read as it is sent."""

    def __init__(self, fields: Mapping[Any, Any], upload: tuple[str, BinaryIO, str]) -> None:
        name, file, media = upload
        here = secrets.token_bytes(16)
        parts = [(_text(key), _text(value)) for key, value in fields.items()]
        form, self.content_type = encode_multipart_formdata(
            [*parts, ("upload", (name, here, media))]
        )
        before, _, after = form.partition(here)
        self._left: list[BinaryIO] = [BytesIO(before), file, BytesIO(after)]
        self._size = len(before) + os.fstat(file.fileno()).st_size + len(after)

    def __len__(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most as many."""
        while self._left:
            piece = self._left[0].read(size)
            if piece:
                return piece
            del self._left[0]
        return b""


def token() -> str:
    """The token of whoever uploads; no message ever shows it.

    Raises:
        UploadError: There is none, or others than its owner can use its file.
    """
    named = os.environ.get(TOKEN_FILE)
    if named:
        text, place = _of_file(Path(named)), TOKEN_FILE
    else:
        text, place = os.environ.get(TOKEN, ""), TOKEN
    text = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        what = "This is not one line of text without spaces." if text else "There is no API token."
        raise UploadError(
            what, where=place, next_step=f"Set {TOKEN}, or {TOKEN_FILE} to a file of mode 0600."
        )
    return text


def _of_file(path: Path) -> str:
    """What a file holds that only its owner can use."""
    text, flaw = text_of_owner(path, _LONGEST)
    if flaw:
        raise UploadError(
            f"The file with the token cannot be used ({flaw}).",
            where=f"{TOKEN_FILE}: {path}",
            next_step=f"Run 'chmod 600 {path}'.",
        )
    return text.decode("ascii", errors="replace")


def _fields(refused: Any) -> str:
    """Names of the fields that a portal refuses."""
    known = refused if isinstance(refused, dict) else {}
    names = [str(key)[:40] for key in known if not str(key).startswith("__")]
    printable = [name for name in names if re.fullmatch(r"\w+", name)]
    return f"the {', '.join(sorted(printable))}" if printable else "what was sent"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
