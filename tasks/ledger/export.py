"""Export of a ledger as JSON Lines, and import of an export.

One line per entry, then one line with their number and the head. Whoever keeps such
a file, or only the head, elsewhere can check later whether the ledger still
continues it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError, LedgerUnavailableError
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import Verification
from statpress.tasks.ledger.entries import ZERO_HASH, canonical_json, parse_entry
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import replacing

_FORMAT = "statpress-ledger/1"


def export_lines(ledger: Ledger) -> Iterator[str]:
    """The lines of an export, once the chain holds; the last one is its head."""
    verified = ledger.verify()
    for entry in ledger.entries():
        if entry.sequence > verified.entries:
            break  # written since
        yield canonical_json(
            {
                "sequence": entry.sequence,
                "kind": entry.kind,
                "body": entry.body,
                "previous": entry.previous,
                "hash": entry.hash,
            }
        )
    yield head_line(verified.entries, verified.head)


def head_line(entries: int, head: str) -> str:
    """The last line of an export, which kept by itself is an exported head."""
    return canonical_json({"format": _FORMAT, "entries": entries, "head": head})


def write_export(ledger: Ledger, path: Path) -> Verification:
    """Write an export readable by the owner only, in place of an earlier one it continues."""
    place = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    kept = read_head(place) if os.path.lexists(place) else None
    verified = ledger.verify(head=kept)
    failure = ""
    try:
        with replacing(place) as file:
            file.writelines(f"{line}\n" for line in export_lines(ledger))
    except OSError as error:
        failure = error.strerror or type(error).__name__
    if failure:
        raise LedgerUnavailableError(f"The export cannot be written: {failure}.", where=str(path))
    if ledger.memory:
        ledger.memory.note("exported", verified.entries, verified.head)
    return verified


def read_head(path: Path) -> str:
    """The head that an export ends with, or that was exported by itself."""
    *_, last = _parts(path)
    return str(last["head"])


def parse_head(text: bytes, where: str) -> tuple[int, str]:
    """The number of entries and the head that an exported head states.

    Raises:
        LedgerError: It is something else.
    """
    try:
        *_, last = parse_export(text.decode("ascii"), where)
        return int(last["entries"]), str(last["head"])
    except (ValueError, TypeError):
        pass
    raise LedgerError(
        "What lies here is not an exported head.",
        where=where,
        next_step="Give a place of its own, which nothing else is written to.",
    )


def restore(ledger: Ledger, path: Path, head: str | None = None) -> tuple[int, State]:
    """Write an export into an empty ledger, if all of it holds.

    Args:
        ledger: The empty one.
        path: The export.
        head: The newest head that was kept elsewhere. Without it, a run that the export leaves
            charged is noted as drawn.

    Returns:
        The number of entries of the export, and the state after all that were written.
    """
    *entries, last = _parts(path)
    parsed = [
        parse_entry(
            part.get("sequence"),
            part.get("kind"),
            canonical_json(part.get("body")),
            part.get("previous"),
            part.get("hash"),
        )
        for part in entries
    ]
    hash_ = parsed[-1].hash if parsed else ZERO_HASH
    if (len(parsed), hash_) != (last["entries"], last["head"]):
        raise LedgerIntegrityError(
            "The export's entries do not end with its head.",
            sequence=len(parsed) + 1,
            where=str(path),
        )
    if head not in (None, hash_):
        raise LedgerIntegrityError(
            f"The export does not end with the head {head}: it is not the newest, or was cut.",
            sequence=len(parsed) + 1,
            where=str(path),
            next_step="Find the export that ends with the newest head; or leave out --head, and"
            " open charges count as drawn.",
        )
    return len(parsed), ledger.restore(iter(parsed), complete=head is not None)


def _parts(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of an export; the last one is its end."""
    failure, text = "", ""
    try:
        if not path.is_file() and path.exists():
            raise OSError(0, "it is not a file")
        text = path.read_text(encoding="ascii")
    except OSError as error:
        failure = error.strerror or type(error).__name__
    except ValueError:
        failure = "it is not ASCII text"
    if failure:
        raise LedgerUnavailableError(f"The export cannot be read: {failure}.", where=str(path))
    return parse_export(text, str(path))


def parse_export(text: str, where: str) -> list[dict[str, Any]]:
    """The JSON objects of an export; the last one is its end.

    Raises:
        LedgerError: It is something else.
    """
    parts: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        part: object = None
        with contextlib.suppress(ValueError, RecursionError):
            part = json.loads(line)
        if not isinstance(part, dict):
            raise LedgerError(
                "This line is not a JSON object.",
                where=f"{where}:{number}",
                next_step="Fetch the export again from where it was made.",
            )
        parts.append(part)
    if (
        not parts
        or parts[-1].get("format") != _FORMAT
        or not {"entries", "head"} <= parts[-1].keys()
    ):
        raise LedgerError(
            "The file does not end as an export of a ledger does.",
            where=where,
            next_step="Fetch the export again from where it was made.",
        )
    return parts
