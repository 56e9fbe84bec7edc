"""The head of the ledger, sent to where nobody of the worker's machine can change it.

A place is a file, perhaps on another machine's disk; an object of a bucket, with the credentials
of ``tasks.uploads.s3``; or a notification block of the Prefect server, which sends an e-mail or
calls a webhook. A file and an object hold the last head: a ledger that does not continue it
replaces nothing. What is sent is public: a number and a hash.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from statpress.configs.upload_targets import S3Target
from statpress.mechanisms.errors import LedgerIntegrityError, LedgerUnavailableError, UploadError
from statpress.tasks.ledger.export import head_line, parse_head
from statpress.tasks.ledger.home_ledger import open_ledger, remember
from statpress.tasks.private_zone.folders import Home, replacing
from statpress.tasks.upkeep.checkup import HEAD_TO

_BLOCK, _OBJECT = "block:", "s3://"
_ENDPOINT = "AWS_ENDPOINT_URL"
_READERS = 0o644


class Destination(Protocol):
    """Where a head is kept."""

    where: str

    def kept(self) -> bytes | None:
        """What it holds; None if nothing, or if that cannot be known."""

    def put(self, line: str) -> None:
        """Put a line in place of it."""


@dataclass(frozen=True)
class Sent:
    """A head that was sent.

    Attributes:
        where: Where to.
        entries: Number of entries of the ledger.
        head: Hash of the last one.
    """

    where: str
    entries: int
    head: str


def destination(text: str | None) -> Destination:
    """The place that a text names, or else the environment.

    Raises:
        LedgerUnavailableError: There is no such place.
    """
    setting = os.environ.get(HEAD_TO) or ""
    relative = not text and not setting.startswith(("/", "~", _BLOCK, _OBJECT))
    text = text or setting
    if text.startswith(_BLOCK):
        return BlockPlace(text)
    if text.startswith(_OBJECT):
        return ObjectPlace(text)
    if text and "://" not in text and not relative:
        return FilePlace(Path(text).expanduser().absolute())
    raise LedgerUnavailableError(
        "This is not a place for the head of a ledger." if text else "No place is named.",
        where=f"--to or {HEAD_TO}",
        next_step="Give a file (in the environment by its whole path), s3://bucket/key, or"
        " block:TYPE/NAME of a notification block on the Prefect server, such as"
        " block:custom-webhook/heads.",
    )


def send_head(home: Home, to: Destination) -> Sent:
    """Send the head of a home's ledger; its chain is replayed before.

    Raises:
        LedgerIntegrityError: The ledger does not continue the head that is kept there.
        LedgerUnavailableError: The place does not take it.
    """
    with open_ledger(home) as ledger:
        state = ledger.state()
        remember(ledger, state)
        kept = to.kept()
        if kept is not None:
            entries, head = parse_head(kept, to.where)
            if entries and ledger.hash_at(entries) != head:
                raise LedgerIntegrityError(
                    f"The ledger does not hold the head {head} of entry {entries}, which is kept"
                    " there: it was truncated, rolled back or rewritten.",
                    sequence=entries,
                    where=to.where,
                )
        sent = Sent(to.where, state.next_sequence - 1, state.head)
        to.put(head_line(sent.entries, sent.head) + "\n")
        assert ledger.memory is not None
        ledger.memory.note("head sent", sent.entries, sent.head)
    return sent


class FilePlace:
    """A file, replaced in one step."""

    def __init__(self, path: Path) -> None:
        self.path, self.where = path, str(path)

    def kept(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            failure = error.strerror or type(error).__name__
        raise _not_sent(self.where, failure)

    def put(self, line: str) -> None:
        try:
            with replacing(self.path, mode=_READERS) as file:
                file.write(line)
            return
        except OSError as error:
            failure = error.strerror or type(error).__name__
        raise _not_sent(self.where, failure)


class ObjectPlace:
    """An object of a bucket."""

    def __init__(self, address: str) -> None:
        try:
            self._target = S3Target(s3=address, endpoint=os.environ.get(_ENDPOINT) or None)
        except ValidationError as error:
            flaw = error.errors()[0]["msg"]  # which never repeats the address
        else:
            self.where = self._target.s3
            return
        raise _not_sent(HEAD_TO, f"the address {flaw}")

    def kept(self) -> bytes | None:
        from statpress.tasks.uploads.s3 import S3Object

        try:
            return S3Object(self._target).read()
        except UploadError as error:
            failure = error.what.removesuffix(".")
        raise _not_sent(self.where, failure)

    def put(self, line: str) -> None:
        from statpress.tasks.uploads.s3 import S3Object

        try:
            S3Object(self._target).replace(line.encode("ascii"))
            return
        except UploadError as error:
            failure = error.what.removesuffix(".")
        raise _not_sent(self.where, failure)


class BlockPlace:
    """A notification block of the Prefect server: an e-mail, a webhook, a chat."""

    def __init__(self, text: str) -> None:
        self.where, self._name = text, text.removeprefix(_BLOCK)

    def kept(self) -> None:
        """What was sent cannot be read back."""

    def put(self, line: str) -> None:
        try:
            self._notify(line)
            return
        except Exception as error:  # its text may hold the address that is called, with a token
            failure = type(error).__name__
        raise _not_sent(self.where, f"the block failed ({failure})")

    def _notify(self, line: str) -> None:
        import prefect.blocks.notifications  # noqa: F401 (makes their types known)
        from prefect.blocks.abstract import NotificationBlock
        from prefect.blocks.core import Block
        from prefect.utilities.asyncutils import run_coro_as_sync

        block = Block.load(self._name)
        if not isinstance(block, NotificationBlock):
            raise TypeError(self._name)
        with block.raise_on_failure():
            sending: object = block.notify(line, subject="statpress: head of the ledger")
            if isinstance(sending, Coroutine):  # where an event loop runs, it waits for it
                run_coro_as_sync(sending)


def _not_sent(where: str, failure: str) -> LedgerUnavailableError:
    return LedgerUnavailableError(
        f"The head of the ledger was not sent: {failure}.",
        where=where,
        next_step="Put the place in order, then run 'statpress ledger export-head'.",
    )
