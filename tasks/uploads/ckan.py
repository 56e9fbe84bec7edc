"""A dataset of a CKAN portal for every release, private until it is whole.

A dataset is made private, so that nobody but its organization sees files arrive, and shown to
everybody by one call once all of them are there. The dataset that ``latest`` names links to the
files of the newest release and is replaced in one call after that, so that it shows the old release
or the new one.

The portal's action API is called by ckanapi, with a token. It is ``CKAN_API_TOKEN``, or stands in
the file that ``CKAN_API_TOKEN_FILE`` names, which only its owner may be able to use. It goes to the
address of the config and to no other, also where that redirects a download.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from statpress.mechanisms.errors import DependencyError, UploadError
from statpress.tasks.source.guarding import text_of_owner
from statpress.tasks.uploads.upload import Bundle, media_type, replaces, said_of_pointer

if TYPE_CHECKING:
    from statpress.configs.upload_targets import CkanTarget

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
_LONGEST_TOKEN = 10_000


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
    text, flaw = text_of_owner(path, _LONGEST_TOKEN)
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


SEAL, NEWEST = "statpress_seal", "statpress_latest"
"""Extras of a dataset: the seal of a release, or what a pointer to the newest one says."""

_PACKAGE = "datapackage.json"
_NOTES = (
    "A release with differential privacy: privacy.json states the guarantee, report.html shows the "
    "release on one page, manifest.json has the size and SHA-256 of every file."
)
_FORMATS = {".md": "Markdown", ".parquet": "Parquet", ".py": "Python", ".yaml": "YAML"}
_LONGEST_NAME = 100


def dataset_name(bundle: str) -> str:
    """The name of a release's dataset: that of the bundle in CKAN's letters.

    >>> dataset_name("Census.2000-20260101T000000Z-abcd")
    'census-2000-20260101t000000z-abcd'
    """
    return re.sub(r"[^a-z0-9_-]", "-", bundle.lower())[:_LONGEST_NAME].ljust(2, "-")


def dataset_fields(bundle: Bundle, licences: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of a dataset that follow from a bundle's metadata."""
    path = bundle.folder / _PACKAGE
    said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    people = {each.get("role"): each for each in reversed(said.get("contributors") or ())}
    publisher, contact = people.get("publisher", {}), people.get("contact", {})
    period, area = said.get("temporal") or {}, said.get("spatial") or {}
    created = bundle.manifest["created"]
    extras = {
        "issued": created,
        "identifier": said.get("id"),
        "publisher_name": publisher.get("title"),
        "contact_name": contact.get("title"),
        "contact_email": contact.get("email"),
        "temporal_start": period.get("start"),
        "temporal_end": period.get("end"),
        "spatial_uri": area.get("path"),
    }
    fields = {
        "title": said.get("title") or bundle.manifest["title"],
        "notes": "\n\n".join(filter(None, (said.get("description"), _NOTES))),
        "url": said.get("homepage"),
        "version": created,
        "author": publisher.get("title"),
        "maintainer": contact.get("title"),
        "maintainer_email": contact.get("email"),
        "license_id": _licence(said.get("licenses") or (), licences),
        "tags": [{"name": name} for name in _tags(said.get("keywords") or ())],
    }
    stated = [{"key": key, "value": str(value)} for key, value in extras.items() if value]
    return {key: value for key, value in fields.items() if value} | {"extras": stated}


def resource_fields(bundle: Bundle, path: str) -> dict[str, str]:
    """The fields of a file's resource, which is named by its path in the bundle."""
    size, digest = bundle.files[path]
    suffix = PurePosixPath(path).suffix
    return {
        "name": path,
        "format": _FORMATS.get(suffix, suffix.removeprefix(".").upper()),
        "mimetype": media_type(path).partition(";")[0],
        "hash": f"sha256:{digest}",
        "size": str(size),
    }


def extra(dataset: Mapping[str, Any], key: str) -> str | None:
    """What a dataset says under an extra key."""
    found = (each["value"] for each in dataset.get("extras") or () if each["key"] == key)
    return next(found, None)


def _tags(keywords: Iterable[str]) -> list[str]:
    """Keywords as CKAN takes them: 2 to 100 letters, digits, spaces, hyphens, points."""
    found = (re.sub(r"\s+", " ", re.sub(r"[^\w \-.]", " ", each)).strip() for each in keywords)
    return list(dict.fromkeys(each[:_LONGEST_NAME] for each in found if len(each) > 1))


def _licence(stated: Iterable[Mapping[str, Any]], known: Iterable[Mapping[str, Any]]) -> str | None:
    """The portal's own name of the licence, else the one that the bundle states."""
    for licence in stated:
        name, url = str(licence.get("name") or ""), _plain(licence.get("path"))
        for each in known:
            names = {str(each.get("id")), *map(str, each.get("legacy_ids") or ())}
            same = name.lower() in {one.lower() for one in names} or _spdx(each) == name.lower()
            if same or (url and _plain(each.get("url")) == url):
                return str(each["id"])
        return name or None
    return None


def _spdx(licence: Mapping[str, Any]) -> str:
    """The SPDX identifier that a Creative Commons address stands for, in lower case."""
    found = re.search(
        r"creativecommons\.org/licenses/([a-z-]+)/([0-9.]+)", _plain(licence.get("url"))
    )
    return f"cc-{found[1]}-{found[2]}" if found else ""


def _plain(url: Any) -> str:
    return re.sub(r"^https?://(www\.)?", "", str(url or "")).rstrip("/")


_LINKED = ("name", "format", "mimetype", "hash", "size", "url")


class CkanStore:
    """The dataset of one release."""

    def __init__(self, target: CkanTarget, bundle: Bundle) -> None:
        self._target, self._bundle = target, bundle
        self._name = dataset_name(bundle.name)
        self._portal = Portal(target.ckan, token())
        self._resources: dict[str, dict[str, Any]] = {}
        self._dataset: dict[str, Any] = {}
        self.place = f"{target.ckan}/dataset/{self._name}"

    def held(self) -> Mapping[str, int | None]:
        found = self._portal.find("package_show", id=self._name)
        if found is None:
            found = self._portal.call("package_create", **self._fields())
        elif extra(found, SEAL) != self._bundle.manifest["seal"]:
            raise UploadError(
                "Another dataset is there under this name.",
                where=self.place,
                next_step="Releases are never overwritten: upload a copy of the folder that has "
                "another name.",
            )
        self._dataset = found
        names = [str(each.get("name")) for each in found["resources"]]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UploadError(
                f"The dataset has two resources of the name {twice[0]!r}.",
                where=self.place,
                next_step="Remove one of them: nothing is deleted for you.",
            )
        self._resources = dict(zip(names, found["resources"], strict=True))
        return dict.fromkeys(names)

    def read(self, path: str) -> Iterator[bytes]:
        held = self._resources[path]
        # The address is put together here: the token goes to the portal that the config names.
        name = quote(PurePosixPath(str(held.get("url") or path)).name)
        return self._portal.download(
            f"dataset/{self._dataset['id']}/resource/{held['id']}/download/{name}"
        )

    def write(self, path: str) -> None:
        held = self._resources.get(path)
        fields = resource_fields(self._bundle, path)
        with (self._bundle.folder / path).open("rb") as file:
            upload = (PurePosixPath(path).name, file, media_type(path).partition(";")[0])
            if held is None:
                package = {"package_id": self._dataset["id"]}
                made = self._portal.call("resource_create", **fields, **package, upload=upload)
            else:
                made = self._portal.call("resource_update", **fields, id=held["id"], upload=upload)
        self._resources[path] = made

    def show(self) -> str:
        if self._dataset["private"]:
            self._dataset = self._portal.call(
                "package_patch", id=self._dataset["id"], private=False
            )
        return self._point() if self._target.latest else ""

    def _fields(self) -> dict[str, Any]:
        """The fields of the release's dataset."""
        fields = dataset_fields(self._bundle, self._portal.call("license_list"))
        if self._target.latest:  # whose title is the plain one
            fields["title"] += f" ({self._bundle.manifest['created'][:10]})"
        seal = {"key": SEAL, "value": self._bundle.manifest["seal"]}
        return fields | {
            "name": self._name,
            "owner_org": self._target.organization,
            "private": True,
            "extras": [*fields["extras"], seal],
        }

    def _point(self) -> str:
        """Have the dataset ``latest`` link to this release, unless it shows a newer one."""
        latest = str(self._target.latest)
        place = f"{self._target.ckan}/dataset/{latest}"
        there = self._portal.find("package_show", id=latest)
        said = None if there is None else _pointer(there)
        if there is None or (replaces(self._bundle, said, place) and said != self._bundle.pointer):
            fields = dataset_fields(self._bundle, self._portal.call("license_list"))
            stated = {"key": NEWEST, "value": json.dumps(self._bundle.pointer, sort_keys=True)}
            fields["extras"] = [*fields["extras"], stated]
            fields["resources"] = self._links(there)
            if there is None:
                named = {"name": latest, "owner_org": self._target.organization, "private": False}
                there = self._portal.call("package_create", **fields, **named)
            else:
                there = self._portal.call("package_patch", **fields, id=there["id"])
            said = _pointer(there)
        return said_of_pointer(self._bundle, place, said or {})

    def _links(self, there: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Links to the files of this release; a file of the same name keeps its resource."""
        known = {each["name"]: each["id"] for each in (there or {}).get("resources", ())}
        shown = self._portal.call("package_show", id=self._dataset["id"])
        links = []
        for resource in shown["resources"]:
            link = {key: resource[key] for key in _LINKED if resource.get(key) is not None}
            same = {"id": known[link["name"]]} if link["name"] in known else {}
            links.append(link | same)
        return links


def check() -> None:
    """Raise unless there is a token."""
    token()


def store_of(target: CkanTarget, bundle: Bundle) -> CkanStore:
    """The dataset of a bundle on a portal."""
    return CkanStore(target, bundle)


def _pointer(dataset: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a dataset says of the newest release; None if it says nothing of it."""
    try:
        said = json.loads(extra(dataset, NEWEST) or "")
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
