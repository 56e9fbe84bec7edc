"""Which tests execute a line, by what ``mutants.py record`` kept of a run of pytest."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from line_changes import Change


class Recorded:
    """What the tests of one run of pytest executed.

    Beside the file of coverage are pytest's ``junit.xml``, and ``fixtures.json`` with the tests
    that use each shared fixture: what sets it up is executed for all of them.
    """

    def __init__(self, path: Path) -> None:
        from coverage import CoverageData

        fixtures, report = path.with_name("fixtures.json"), path.with_name("junit.xml")
        self._users = json.loads(fixtures.read_text()) if fixtures.exists() else {}
        self._seconds = {
            f"{case.get('classname')}.{case.get('name')}": float(case.get("time", 0))
            for case in (ElementTree.parse(report).iter("testcase") if report.exists() else ())
        }
        self._lines: dict[str, dict[int, set[str]]] = {}
        self._executed: dict[str, int] = defaultdict(int)
        data = CoverageData(str(path))
        data.read()
        for measured in data.measured_files():
            file = re.sub(r"^.*?(?=(?:mechanisms|tasks)/)", "", measured)
            lines = data.contexts_by_lineno(measured)
            self._lines[file] = {line: self._tests(found) for line, found in lines.items()}
            for tests in self._lines[file].values():
                for test in tests:
                    self._executed[test] += 1

    def _tests(self, contexts: list[str]) -> set[str]:
        tests = set()
        for context in contexts:
            name, _, phase = context.rpartition("|")
            tests.update(self._users.get(name, ()) if phase == "fixture" else [name])
        return tests

    def executing(self, file: str, change: Change) -> list[str]:
        """Return the tests that execute a line, the fastest and most particular first.

        If no test executes the line, they are those of its statement. Lines that run when modules
        are imported, or are compiled, have the tests of their function, or else of the module.
        """
        lines = self._lines.get(file, {})
        at_import = {""}
        tests = lines.get(change.line, set()) or _all(lines, change.statement)
        if change.compiled or tests == at_import:
            tests = _all(lines, change.body) - at_import or _all(lines, (0, max(lines, default=0)))
        return sorted(tests - at_import, key=self._cost)

    def others(self, tests: list[str]) -> list[str]:
        """Return the other tests of the files that these are in."""
        files = {file_of(test) for test in tests}
        others = {test for test in self._executed if file_of(test) in files}
        return sorted(others - set(tests), key=self._cost)

    def seconds(self, test: str) -> float:
        """Return how long a test took, or 5 if that is not known."""
        file, *names = test.split("::", 2)
        return self._seconds.get(".".join([file[:-3].replace("/", "."), *names]), 5.0)

    def _cost(self, test: str) -> tuple[float, str]:
        return self._executed[test] * (0.05 + self.seconds(test)), test


def _all(lines: dict[int, set[str]], span: tuple[int, int]) -> set[str]:
    return {test for line in range(span[0], span[1] + 1) for test in lines.get(line, ())}


def file_of(test: str) -> str:
    return test.partition("::")[0]
