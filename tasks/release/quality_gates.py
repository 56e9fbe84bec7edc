"""The three quality gates, input, table and release, and the process that judges them.

A gate is a table, aggregates computed by the engine and the limits of each, and a suite of Great
Expectations on it. Nothing the size of the source is loaded and no result carries a value: the
process answers with a boolean. What the input and table gates find is private: it goes to the
curator log, and the run stops with a fixed message before anything is charged. (Stopping depends on
the data and is outside the guarantee; a bundle says so, and the ledger counts and limits it:
``tasks.release.steps``.)

Importing this module and starting the process is cheap; the process then spends several seconds
importing Great Expectations, so it is started as early as can be.
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from statpress.configs.checks import FATES, Fate, compared, limits
from statpress.configs.loading import Release
from statpress.configs.release_config import next_limit
from statpress.configs.tables import key_faults
from statpress.mechanisms.domain.contingency_table import CodedColumns, ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import (
    EmptySourceError,
    NoisyGateError,
    QualityGateError,
    ReleaseGateError,
)
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.run_context import Gatekeeper
from statpress.tasks.private_zone.workers import ended, started
from statpress.tasks.source.aggregates import SourceProfile

if TYPE_CHECKING:
    from statpress.mechanisms.sampling.randomness import Randomness
    from statpress.mechanisms.tables.noisy_checks import NoisyChecks

_PATIENCE_SECONDS = 180


@dataclass(frozen=True)
class Between:
    """An expectation: one figure of the profile lies between two bounds."""

    figure: str
    least: int | None = None
    most: int | None = None

    def holds(self, observed: int) -> bool:
        """Whether a figure meets it."""
        above = self.least is None or observed >= self.least
        return above and (self.most is None or observed <= self.most)

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.most:,} expected" if self.most else "none allowed"
        bounds = [f"at least {self.least:,}"] if self.least else []
        bounds += [f"at most {self.most:,}"] if self.most is not None else []
        return ", ".join(bounds) or "not limited"

    def as_row(self, observed: int) -> dict[str, Any]:
        """A row of the table that is judged; without a limit what is observed is its own."""
        least = observed if self.least is None else self.least
        most = observed if self.most is None else self.most
        return {"figure": self.figure, "least": least, "observed": observed, "most": most}


class Inspector(AbstractContextManager["Inspector"]):
    """The quality process of one run; starts at once, so that its import overlaps.

    Args:
        log: Curator log; takes the process's own output too.
    """

    def __init__(self, log: CuratorLog) -> None:
        self.log = log
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return started("statpress.tasks.release.quality_process", (), self.log)

    def _stop(self) -> None:
        ended(self._process)

    def __exit__(self, *_: object) -> None:
        self._stop()

    def meets(self, gate: str, profile: Mapping[str, int], expectations: list[Between]) -> bool:
        """Whether a profile meets all expectations, if there are any; the detail is the curator's.

        Raises:
            RuntimeError: The quality process does not answer; its output is in the curator log.
        """
        rows = [expectation.as_row(profile[expectation.figure]) for expectation in expectations]
        request = {"gate": gate, "rows": rows}
        answer = self._ask(request) if rows else {"success": True, "judged": 0}
        if answer is None:  # it died or hangs; a gate must not cost a charged run
            self._stop()
            self._process = self._start()
            answer = self._ask(request)
        if answer is None:
            raise RuntimeError("the quality process does not answer")
        if answer["judged"] != len(expectations):
            raise RuntimeError("the quality process left an expectation out")
        self.log.write(f"gate {gate}: {'passed' if answer['success'] else 'FAILED'}")
        for failing in (True, False):  # what stopped the run first
            for expectation in expectations:
                figure, observed = expectation.figure, profile[expectation.figure]
                if expectation.holds(observed) is not failing:
                    mark = "FAILED " if failing else ""
                    self.log.write(f"  {mark}{figure}: {observed:,}, {expectation}")
        limited = {expectation.figure for expectation in expectations}
        for figure in (figure for figure in profile if figure not in limited):
            self.log.write(f"  {figure}: {profile[figure]:,}, not limited")
        return bool(answer["success"])

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer of the quality process, None if there is none in time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            ready = select.select([self._process.stdout], [], [], _PATIENCE_SECONDS)[0]
            line = self._process.stdout.readline() if ready else ""
        except OSError:
            return None
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer


Locate = Callable[[Sequence[tuple[str, Fate]]], Iterable[tuple[str, Fate, str]]]
"""Says of columns where the first record of a fate is."""


def check_source(
    inspector: Gatekeeper, release: Release, profile: SourceProfile, locate: Locate
) -> None:
    """Input gate: the declared size, and the declared expectations on each column.

    No record may lie in a structural zero. The curator is told where the first of the values is
    that stopped the run, above the gate's figures, and what would allow them; of what cannot be
    read, with which keys of the source it could be.
    """
    n = profile.n_records
    figures, expectations = _size(release, profile)
    figures |= {_IMPOSSIBLE: profile.n_impossible}
    expectations.append(Between(_IMPOSSIBLE, 0, 0))
    figures |= profile.keys
    tables = release.config.linked
    for fault in key_faults(tables):
        expectations.append(Between(fault, 0, 0))
        if tables is not None and figures[fault]:
            inspector.log.write(f"{fault}: {figures[fault]:,}. {tables.key_advice(fault)}")
    advice: dict[tuple[str, Fate], str] = {}
    refused: dict[tuple[str, Fate], str] = {}
    for name, fate, count, share in fates(release, profile):
        figures[f"{fate} {name}"] = count
        if share is not None:
            expectations.append(Between(f"{fate} {name}", 0, _floor(share * n)))
            if count > share * n:
                allowed = f"{_floor(share * n):,}" if share else "none"
                refused[name, fate] = f"{count:,} {fate} of {n:,}, {allowed} allowed"
                advice[name, fate] = (
                    "Correct the source, or what the config says of how it is read."
                )
                if fate != "unreadable":
                    limit = f"{{{fate}_at_most: {next_limit(Decimal(count) / n)}}}"
                    advice[name, fate] = f"Correct the source, or allow it: checks: {name}: {limit}"
    if refused:
        places = {(name, fate): place for name, fate, place in locate(list(refused))}
        for (name, fate), what in refused.items():
            where = f"; first in {places[name, fate]}" if (name, fate) in places else ""
            inspector.log.write(f"{name}: {what}{where}. {advice[name, fate]}")
    if not inspector.meets("input", figures, expectations):
        raise _private_stop("input", release, inspector)


_IMPOSSIBLE = "in a structural zero"


def _size(release: Release, profile: SourceProfile) -> tuple[dict[str, int], list[Between]]:
    """The figures of a source's size, and what is expected of them.

    The size is the number of records, or that of units where a column names them: then
    every record must name one, and a unit may have more records than are used. Nothing is expected
    of a size that is private.

    Raises:
        EmptySourceError: There are no records.
    """
    if profile.n_records == 0:
        raise EmptySourceError("The source has no records.", where=release.config.source.place)
    figures, privacy = {"records": profile.n_records}, release.privacy
    if profile.n_units is None:
        return figures, _exactly("records", privacy.n_records, release)
    figures |= {"units": profile.n_units, "without a unit": profile.n_unnamed}
    return figures, [
        *_exactly("units", privacy.n_units, release),
        Between("without a unit", 0, 0),
    ]


def _exactly(figure: str, number: int, release: Release) -> list[Between]:
    """That a size is the public one; nothing where it is private."""
    public = release.privacy.adjacency is Adjacency.REPLACE_ONE
    return [Between(figure, number, number)] if public else []


def check_size(inspector: Gatekeeper, release: Release, profile: SourceProfile) -> None:
    """The part of the input gate that is exact in any case: the size, where that is public.

    Neighbours have the same size, so its answer says nothing of a unit; a source of another size
    is outside the guarantee.
    """
    if not inspector.meets("size", *_size(release, profile)):
        raise _private_stop("input", release, inspector)


def check_noisily(
    inspector: Gatekeeper,
    release: Release,
    profile: SourceProfile,
    checks: NoisyChecks,
    noise: Randomness,
) -> None:
    """Input gate with noise on every count that it compares.

    Raises:
        NoisyGateError: A noisy count is above what is allowed by more than the margin.
    """
    exact = {
        f"{fate} {column.name}": getattr(column, _COUNTED[fate])
        for column in profile.columns
        for fate in FATES
    }
    n_records = release.privacy.n_records
    most = {
        f"{fate} {name}": _floor(share * n_records)
        for name, fate, share in compared(release.domain, release.config.limits)
    }
    if release.domain.patterns:
        exact[_IMPOSSIBLE], most[_IMPOSSIBLE] = profile.n_impossible, 0
    exact |= profile.keys
    most |= dict.fromkeys(key_faults(release.config.linked), 0)
    noisy = checks.release(np.array([exact[figure] for figure in most], np.int64), noise)
    figures = dict(zip(most, noisy.tolist(), strict=True))
    expectations = [Between(name, most=most[name] + checks.margin) for name in most]
    if not inspector.meets("input, with noise", figures, expectations):
        above = [name for name, count in figures.items() if count > most[name] + checks.margin]
        for name in above:
            if hint := _HINTS.get(name.partition(" ")[0]):
                inspector.log.write(f"{name}: {hint}")
        raise NoisyGateError(
            "The input gate stopped the run: a count is above what its checks allow, by more than"
            " their noise explains.",
            where=release.config.source.place,
            next_step=f"Read the curator log {inspector.log.path}.",
        )


_HINTS: Mapping[str, str] = {
    "missing": "declare 'missing: true', or see whether a field of the source stands for no value.",
    "outside": "compare the column's range or categories with the source.",
    "unreadable": "compare 'decimal', 'thousands', 'date_format' and 'null_values' under 'source', "
    "and the column's type, with the source.",
}
"""What to look at where a noisy count is above what is allowed; no value is shown."""
_COUNTED: Mapping[Fate, str] = {
    "missing": "n_null", "outside": "n_outside", "unreadable": "n_unreadable",
}  # fmt: skip


def fates(
    release: Release, profile: SourceProfile
) -> Iterator[tuple[str, Fate, int, Decimal | None]]:
    """What became of the values of every column, beside what the checks allow.

    Yields:
        Column, fate, how many values had it (private), and the largest share of the records that
        may have it, None if that is not limited.
    """
    for column in profile.columns:
        most = limits(release.domain[column.name], release.config.limits)
        for fate in FATES:
            yield column.name, fate, getattr(column, _COUNTED[fate]), getattr(most, fate)


def check_table(inspector: Gatekeeper, release: Release, table: ContingencyTable) -> None:
    """Table gate: counts add up to n, every cell lies in the domain."""
    figures = {
        "sum of counts": table.n_records,
        "smallest count": int(table.counts.min(initial=1)),
        "smallest cell": int(table.cells.min(initial=0)),
        "cells past the domain": int(np.sum(table.cells > table.domain.n_cells - 1)),
    }
    n = release.privacy.counting(table.domain).n_records
    expectations = [
        *_exactly("sum of counts", n, release),
        Between("smallest count", 1),
        Between("smallest cell", 0),
        Between("cells past the domain", 0, 0),
    ]
    if not inspector.meets("table", figures, expectations):
        raise _private_stop("table", release, inspector)


def check_coded(inspector: Gatekeeper, release: Release, coded: CodedColumns) -> None:
    """Table gate where codes are kept instead: the records add up to n."""
    expected = _exactly("records", release.privacy.n_records, release)
    if not inspector.meets("codes", {"records": coded.n_records}, expected):
        raise _private_stop("table", release, inspector)


def check_release(
    inspector: Gatekeeper, files: Mapping[str, Mapping[str, int]], records: Mapping[str, int]
) -> None:
    """Release gate: schema, row count, and every value in the domain, as written."""
    figures = {
        f"{name}: {figure}": number
        for name, profile in files.items()
        for figure, number in profile.items()
    }
    rows = {f"{name}: rows": number for name, number in records.items()}
    expectations = [Between(each, rows.get(each, 0), rows.get(each, 0)) for each in figures]
    if not inspector.meets("release", figures, expectations):
        failing = [each.figure for each in expectations if not each.holds(figures[each.figure])]
        where = next((n for n in files if any(f.startswith(f"{n}: ") for f in failing)), "data")
        raise ReleaseGateError("A written file does not agree with its plan.", where=where)


def _private_stop(gate: str, release: Release, inspector: Gatekeeper) -> QualityGateError:
    return QualityGateError(
        f"The {gate} gate stopped the run. Nothing was charged.",
        where=release.config.source.place,
        next_step=f"Read the curator log {inspector.log.path}.",
    )


def _floor(amount: Decimal) -> int:
    return int(amount.to_integral_value(rounding=ROUND_FLOOR))
