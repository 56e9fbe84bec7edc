"""The command that drafts a config from a public description, or from answers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.flows.cli.options import Json, Result

if TYPE_CHECKING:
    from statpress.configs.descriptions.described import Description
    from statpress.configs.descriptions.drafting import Frame


def init(
    description: Path | None = None,
    *,
    output: Path = Path("release.yaml"),
    table: str | None = None,
    source: str | None = None,
    dataset: str | None = None,
    n_records: int | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    json: Json = False,
) -> Result:
    """Draft a config from a public description of the columns, or by asking; never reads data.

    Args:
        description: A datapackage.json, Table Schema, CSVW metadata, DDI Codebook, or a CSV with
            the columns name and type; without one you are asked column by column.
        output: Where the config goes; nothing is overwritten.
        table: Which table, where the description has several.
        source: Where the data lie; the path is only written down.
        dataset: The ledger account.
        n_records: Public number of records.
        epsilon: Budget of the release.
        delta: Budget of the release.
    """
    from statpress.configs.descriptions.described import number
    from statpress.configs.descriptions.description_files import read_description
    from statpress.configs.descriptions.drafting import Frame, draft, interview, publication

    frame = Frame(
        dataset=dataset,
        source=_relative(source, Path(), output),
        n_records=n_records,
        epsilon=number(epsilon, "--epsilon"),
        delta=number(delta, "--delta"),
        name=output.name,
    )
    if description is None:
        _check_free(output)
        frame = _asked(frame, output)
        about = publication(_ask, _tell)
        found = replace(interview(_ask, _tell), about=about)
    else:
        found = read_description(description, table)
        frame = _described(frame, found, description, output)
    text, blanks = draft(found, frame)
    _write_new(output, text)

    def facts() -> dict[str, Any]:
        return {
            "config": str(output),
            "form": found.form,
            "columns": [each.name for each in found.columns],
            "left_out": {each.name: each.reason for each in found.left_out},
            "blanks": [asdict(blank) for blank in blanks],
        }

    def report() -> Iterator[str]:
        yield f"Wrote {output}: {len(found.columns)} columns from {found.form}. No data was read."
        for each in found.left_out:
            yield f"  left out  {each.name}: {each.reason}"
        for blank in blanks:
            yield f"  fill in   {output}:{blank.line}: {blank.key}: {blank.hint}"
        yield f"Then run 'statpress validate {output}'."

    return Result(json=json, facts=facts, report=report)


def _described(frame: Frame, found: Description, path: Path, output: Path) -> Frame:
    """The frame with what the description says of it, where no option says otherwise."""
    from statpress.configs.formats import SOURCE_SUFFIXES

    known = found.path is not None and Path(found.path).suffix.lower() in SOURCE_SUFFIXES
    return replace(
        frame,
        title=found.title,
        source=frame.source or (_relative(found.path, path.parent, output) if known else None),
        n_records=found.n_records if frame.n_records is None else frame.n_records,
        described_by=path.name,
    )


def _asked(frame: Frame, output: Path) -> Frame:
    """The frame with answers to what no option says."""
    from statpress.configs.descriptions.described import line, number, whole
    from statpress.mechanisms.errors import DescriptionError

    if not sys.stdin.isatty():
        raise DescriptionError("No description is given, and nobody is at a terminal to be asked.")
    _tell("Answer with nothing to leave a value blank; the config marks it. No data is read.")

    def asked(question: str, read: Callable[[str], Any]) -> Any:
        while True:
            answer = _ask(question)
            try:
                return read(answer)
            except DescriptionError as error:
                problem = error.what
            _tell(problem)

    values: dict[str, Any] = {"title": asked("Title of the release, for people", line) or None}
    if frame.dataset is None:
        values["dataset"] = asked("Dataset, its account in the ledger", line) or None
    if frame.source is None:
        where = asked("Path of the data, which is not opened", line)
        values["source"] = _relative(where or None, Path(), output)
    if frame.n_records is None:
        values["n_records"] = asked(
            "Number of records, which is public", lambda text: whole(text, "", up=True)
        )
    for key, asks in (("epsilon", "Epsilon of this release"), ("delta", "Delta of this release")):
        if getattr(frame, key) is None:
            values[key] = asked(asks, lambda text: number(text, ""))
    return replace(frame, **values)


def _ask(question: str) -> str:
    """The answer of whoever is at the terminal; the question does not go to standard output."""
    from statpress.mechanisms.errors import DescriptionError

    print(f"{question}: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise DescriptionError("The answers ended early; nothing was written.")
    return answer.strip()


def _tell(text: str) -> None:
    from statpress.flows.terminal import plain

    print(plain(text), file=sys.stderr)


def _relative(path: str | None, folder: Path, output: Path) -> str | None:
    """A path of a folder, as it is to be written in the config."""
    if path is None or os.path.isabs(path) or "://" in path:
        return path
    return os.path.relpath(folder / path, output.parent)


def _check_free(output: Path) -> None:
    """Refuse a place that is taken, before anybody answers questions for it."""
    from statpress.mechanisms.errors import OutputNotWritableError

    if os.path.lexists(output):
        raise OutputNotWritableError(
            "There is something at this place.",
            where=str(output),
            next_step="Choose another --output; nothing is ever overwritten.",
        )


def _write_new(output: Path, text: str) -> None:
    """Write a file that is not there yet, or nothing."""
    from statpress.mechanisms.errors import OutputNotWritableError

    _check_free(output)
    try:
        with output.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    output.unlink()
                raise
        return
    except OSError as error:
        reason = error.strerror
    raise OutputNotWritableError(
        f"The config cannot be written ({reason}).",
        where=str(output),
        next_step="Choose another --output, or mend its permissions or free space.",
    )
