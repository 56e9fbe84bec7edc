"""A stand-in for a CKAN portal: the action API calls of an upload, in a process of its own.

It is not CKAN. It keeps datasets in memory and answers as CKAN 2.12 does where an upload asks: the
shape of answers and errors, names and tags that are refused, what a private dataset shows to whom,
how an uploaded file is named and downloaded, what a patch keeps. Its argument is the token;
it prints its port.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock
from typing import Any
from urllib.parse import unquote

ORGANIZATION = "agency"
LICENCES = [
    {"id": "cc-by", "title": "CC BY", "url": "http://www.opendefinition.org/licenses/cc-by"},
    {
        "id": "CC-BY-4.0",
        "title": "CC BY 4.0",
        "url": "https://creativecommons.org/licenses/by/4.0/",
    },
]
PACKAGE = {
    "name", "title", "notes", "url", "version", "author", "author_email", "maintainer",
    "maintainer_email", "license_id", "owner_org", "private", "tags", "extras", "resources",
}  # fmt: skip
RESOURCE = {"id", "name", "format", "mimetype", "hash", "size", "url", "url_type", "description"}


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, status: int, kind: str, **said: Any) -> None:
        super().__init__(kind)
        self.status, self.said = status, {"__type": kind, **said}


def invalid(**fields: str) -> Refusal:
    return Refusal(409, "Validation Error", **{key: [text] for key, text in fields.items()})


class Portal:
    """Datasets by name."""

    def __init__(self) -> None:
        self.datasets: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.address, self.elsewhere = "", False
        self.asked: list[bool] = []

    def license_list(self, said: dict[str, Any], allowed: bool) -> Any:
        return LICENCES

    def package_show(self, said: dict[str, Any], allowed: bool) -> Any:
        dataset = self._find(said["id"])
        if dataset["private"] and not allowed:
            raise Refusal(403, "Authorization Error", message="Access denied: private")
        return dataset

    def package_list(self, said: dict[str, Any], allowed: bool) -> Any:
        return sorted(name for name, each in self.datasets.items() if not each["private"])

    def package_create(self, said: dict[str, Any], allowed: bool) -> Any:
        self._check(allowed)
        if said.get("name") in self.datasets:
            raise invalid(name="That URL is already in use.")
        made = {"id": str(uuid.uuid4()), "state": "active", "private": False, "resources": []}
        return self._put(made, said)

    def package_patch(self, said: dict[str, Any], allowed: bool) -> Any:
        self._check(allowed)
        return self._put(dict(self._find(said["id"])), said)

    def resource_create(self, said: dict[str, Any], allowed: bool) -> Any:
        self._check(allowed)
        dataset = self._find(said["package_id"])
        made = self._resource({"id": str(uuid.uuid4())}, said, dataset)
        dataset["resources"] = [*dataset["resources"], made]
        return made

    def resource_update(self, said: dict[str, Any], allowed: bool) -> Any:
        self._check(allowed)
        for dataset in self.datasets.values():
            for place, resource in enumerate(dataset["resources"]):
                if resource["id"] == said["id"]:
                    made = self._resource({"id": resource["id"]}, said, dataset)
                    dataset["resources"][place] = made
                    return made
        raise Refusal(404, "Not Found Error", message="Not found: Resource was not found.")

    def download(self, dataset: str, resource: str, allowed: bool) -> bytes | int:
        found = self.datasets.get(self._find(dataset)["name"], {})
        if found["private"] and not allowed:
            return 403
        return self.files.get(resource, 404)

    def _check(self, allowed: bool) -> None:
        if not allowed:
            raise Refusal(403, "Authorization Error", message="Access denied")

    def _find(self, name: str) -> dict[str, Any]:
        for dataset in self.datasets.values():
            if name in (dataset["id"], dataset["name"]):
                return dataset
        raise Refusal(404, "Not Found Error", message="Not found")

    def _put(self, made: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
        """Keep a dataset with new fields, all of them or none."""
        made |= {key: value for key, value in said.items() if key in PACKAGE}
        if not re.fullmatch("[a-z0-9_-]{2,100}", made.get("name", "")):
            raise invalid(name="Must be purely lowercase alphanumeric characters and these: -_")
        if made.get("owner_org") not in (ORGANIZATION, f"id-of-{ORGANIZATION}"):
            raise invalid(owner_org="Organization does not exist")
        made["owner_org"] = f"id-of-{ORGANIZATION}"
        for tag in made.setdefault("tags", []):
            if not 2 <= len(tag["name"]) <= 100 or not re.fullmatch(r"[\w \-.]*", tag["name"]):
                raise invalid(tags="Tag can only contain alphanumeric characters")
        extras = made.setdefault("extras", [])
        if len({each["key"] for each in extras}) < len(extras):
            raise invalid(extras="There is a schema field with the same name")
        if not all(isinstance(each["value"], str) and each["value"] for each in extras):
            raise invalid(extras="Missing value")
        extras.sort(key=lambda each: each["value"])  # in no order that was sent
        email = made.get("maintainer_email")
        if email and not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", email):
            raise invalid(maintainer_email="Email is not a valid format")
        made["resources"] = [
            each if "package_id" in each else self._resource({"id": str(uuid.uuid4())}, each, made)
            for each in made["resources"]
        ]
        self.datasets[made["name"]] = made
        return made

    def _resource(
        self, made: dict[str, Any], said: dict[str, Any], dataset: dict[str, Any]
    ) -> dict[str, Any]:
        kept = {key: value for key, value in said.items() if key in RESOURCE and value != ""}
        made = {"package_id": dataset["id"], "url": "", "url_type": None} | made | kept
        if "size" in made:
            made["size"] = int(made["size"])
        if "upload" in said:
            name, text = said["upload"]
            name = re.sub("[^a-z0-9_. -]", "", name.rpartition("/")[2].lower())
            self.files[made["id"]] = text
            place = f"{self.address}/dataset/{dataset['id']}/resource/{made['id']}/download/{name}"
            made |= {"url": place, "url_type": "upload", "size": len(text)}
        return made


def form(content_type: str, body: bytes) -> dict[str, Any]:
    """The fields of a form with files."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields: dict[str, Any] = {}
    for part in BytesParser().parsebytes(head + body).get_payload():  # type: ignore[union-attr]
        name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]
        text = part.get_payload(decode=True)  # type: ignore[union-attr]
        fields[str(name)] = (part.get_filename(), text) if part.get_filename() else text.decode()  # type: ignore[union-attr]
    return fields


def serve(token: str) -> None:
    """Answer until the process is ended."""
    portal, lock = Portal(), RLock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", 2**16

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kind = self.headers.get("Content-Type", "")
            multipart = kind.startswith("multipart/form-data")
            said = form(kind, body) if multipart else json.loads(body or b"{}")
            action = self.path.removeprefix("/api/action/")
            if "/" in action:
                return self._answer(404, b"<html>not found</html>")
            try:
                with lock:
                    result = getattr(portal, action)(said, self._allowed())
                    answer = json.dumps({"success": True, "result": result})
                status = 200
            except Refusal as error:
                status, answer = error.status, json.dumps({"success": False, "error": error.said})
            self._answer(status, answer.encode())

        def do_GET(self) -> None:
            """A download; or, of tests only, a file that is lost, and downloads from elsewhere."""
            with lock:
                if self.path.startswith("/lost/"):
                    portal.files.pop(self.path.removeprefix("/lost/"))
                    return self._answer(200, b"")
                if self.path.startswith("/redirect/"):
                    portal.elsewhere = self.path == "/redirect/on"
                    said = (
                        f"{len(portal.asked)} downloads elsewhere, {sum(portal.asked)} with a token"
                    )
                    portal.asked.clear()
                    return self._answer(200, said.encode())
                if self.path.startswith("/elsewhere/"):
                    portal.asked.append("Authorization" in self.headers)
                    return self._answer(200, portal.files[self.path.split("/")[-3]])
                if portal.elsewhere:
                    _, port = portal.address.rsplit(":", 1)
                    self._answer(302, b"", f"http://localhost:{port}/elsewhere{self.path}")
                    return None
            found = re.fullmatch(
                "/dataset/([^/]+)/resource/([^/]+)/download/.*", unquote(self.path)
            )
            with lock:
                text = portal.download(found[1], found[2], self._allowed()) if found else 404
            status = text if isinstance(text, int) else 200
            self._answer(status, b"" if isinstance(text, int) else text)

        def _allowed(self) -> bool:
            return self.headers.get("Authorization") == token

        def _answer(self, status: int, text: bytes, moved: str = "") -> None:
            self.send_response_only(status)
            if moved:
                self.send_header("Location", moved)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    portal.address = f"http://127.0.0.1:{server.server_address[1]}"
    print(server.server_address[1], flush=True)
    server.serve_forever(0.5)


if __name__ == "__main__":
    serve(sys.argv[1])
