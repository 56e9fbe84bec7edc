"""Objects of an S3-compatible store: which match a pattern, and whether they stay as they are.

Credentials are those of the AWS SDK: ``AWS_ACCESS_KEY_ID`` and the like, ``~/.aws``, or the role of
the machine. Only reading and listing are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mechanisms.errors import (
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from tasks.source.file_states import FileState, changed

if TYPE_CHECKING:
    from pyarrow import fs

_ATTEMPTS = 3
_SECONDS_TO_CONNECT, _SECONDS_OF_SILENCE = 10, 60
_FAULT = re.compile(r"AWS Error ([A-Z_]+)")
_NO_SERVER = re.compile("NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|REQUEST_TIMEOUT|INTERNAL")
_NO_RIGHT = re.compile(
    "DENIED|SIGNATURE|ACCESS_KEY|TOKEN|EXPIRED|UNRECOGNIZED_CLIENT|Forbidden|40[13]|lack "
)


@dataclass(frozen=True)
class Store:
    """A store, and nothing of its credentials.

    Attributes:
        endpoint: Its address; None for that of AWS.
        region: None for what environment or profile say.
    """

    endpoint: str | None = None
    region: str | None = None

    def system(self, **settings: Any) -> fs.S3FileSystem:
        """The store as a file system; takes more of its settings."""
        from pyarrow import fs

        return fs.S3FileSystem(
            endpoint_override=self.endpoint,
            region=self.region,
            connect_timeout=_SECONDS_TO_CONNECT,
            request_timeout=_SECONDS_OF_SILENCE,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **settings,
        )

    def matching(self, pattern: str) -> list[str]:
        """Keys, with their bucket, of the objects that a pattern matches, in order.

        Args:
            pattern: ``s3://bucket/key``, where ``*`` and ``?`` stand for parts of a name between
                slashes, and ``**`` for any.

        Raises:
            SourceNotFoundError: None does.
        """
        from pyarrow import fs

        key = pattern.removeprefix("s3://")
        known = re.split(r"[*?\[]", key)[0].rpartition("/")[0]
        system = self.system()
        if not re.search(r"[*?\[]", key):
            found = [key] if system.get_file_info(key).is_file else []
        else:
            chosen = fs.FileSelector(known, recursive=True, allow_not_found=True)
            listed = [each.path for each in system.get_file_info(chosen) if each.is_file]
            found = sorted(filter(re.compile(_expression(key)).fullmatch, listed))
        if not found:
            raise SourceNotFoundError("No object matches the source's path.", where=pattern)
        return found

    def states_of(self, keys: Sequence[str]) -> tuple[FileState, ...]:
        """What the store says of objects now: size, tag and time of the last change."""
        system = self.system()
        return tuple(FileState(key, _mark(system, key)) for key in keys)

    def check_unchanged(self, states: Sequence[FileState], where: str) -> None:
        """Raise if an object is another.

        Raises:
            SourceChangedError: One is.
        """
        if states and self.states_of([state.path for state in states]) != tuple(states):
            raise changed(where)


def failure_of(error: Exception, where: str) -> SourceError | None:
    """The error that stands for the store's; None if it is not of the store.

    The words are those of the AWS SDK, by Arrow, and of Rust's ``object_store``, by Delta.
    """
    text = str(error)
    found = _FAULT.search(text)
    if found is None and "Generic S3 error" not in text and "Forbidden" not in text:
        return None
    kind = text if found is None else found[1]
    no_right = _NO_RIGHT.search(kind)
    if _NO_SERVER.search(kind) or (found is None and not no_right):
        return SourceUnavailableError("The store cannot be reached, or fails.", where=where)
    if no_right:
        return SourceAccessError(
            "The store refuses the credentials, or they lack a right.",
            where=where,
            next_step="Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile or role.",
        )
    return None


def _expression(pattern: str) -> str:
    """A pattern of names as a regular expression."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(words.get(part, re.escape(part)) for part in parts)


def _mark(system: fs.S3FileSystem, key: str) -> tuple[object, ...] | None:
    if not system.get_file_info(key).is_file:
        return None
    with system.open_input_file(key) as file:
        said = file.metadata()
        return file.size(), said.get(b"ETag", said.get("ETag")), said.get("Last-Modified")
