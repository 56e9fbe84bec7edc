"""The run's side of the quality process: one gate at a time, booleans back.

Importing this module and starting the process is cheap; the process then spends
several seconds importing Great Expectations, so it is started as early as can be.
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tasks.execution.private_zone import CuratorLog
from tasks.execution.workers import ended, started

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

    def as_request(self) -> dict[str, Any]:
        """The expectation in Great Expectations' terms."""
        bounds = {"min_value": self.least, "max_value": self.most}
        return {
            "type": "ExpectColumnValuesToBeBetween",
            "arguments": {"column": self.figure, **bounds},
        }


class Inspector:
    """The quality process of one run; starts at once, so that its import overlaps.

    Args:
        log: Curator log; takes the process's own output too.
    """

    def __init__(self, log: CuratorLog) -> None:
        self.log = log
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return started("tasks.quality.process", (), self.log)

    def _stop(self) -> None:
        ended(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def meets(self, gate: str, profile: Mapping[str, int], expectations: list[Between]) -> bool:
        """Whether a profile meets all expectations; the detail goes to the curator.

        Raises:
            RuntimeError: The quality process does not answer; its output is in the curator log.
        """
        request = {
            "gate": gate,
            "profile": dict(profile),
            "expectations": [each.as_request() for each in expectations],
        }
        answer = self._ask(request)
        if answer is None:  # it died or hangs; a gate must not cost a charged run
            self._stop()
            self._process = self._start()
            answer = self._ask(request)
        if answer is None:
            raise RuntimeError("the quality process does not answer")
        if len(answer["met"]) != len(expectations):
            raise RuntimeError("the quality process left an expectation out")
        self.log.write(f"gate {gate}: {'passed' if answer['success'] else 'FAILED'}")
        for failing in (True, False):  # what stopped the run first
            for each in expectations:
                if each.holds(profile[each.figure]) is not failing:
                    mark = "FAILED " if failing else ""
                    self.log.write(f"  {mark}{each.figure}: {profile[each.figure]:,}, {each}")
        limited = {each.figure for each in expectations}
        for figure in (figure for figure in profile if figure not in limited):
            self.log.write(f"  {figure}: {profile[figure]:,}, not limited")
        return bool(answer["success"]) and all(answer["met"].values())

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
