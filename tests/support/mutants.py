"""Measures what the tests catch: random changes of single lines of the product, one at a time.

    python tests/support/mutants.py record build/mutants -- -n 2 --dist loadfile
    python tests/support/mutants.py choose build/mutants/mutants.json
    python tests/support/mutants.py run build/mutants/mutants.json
    python tests/support/mutants.py show build/mutants/mutants.json --at-least 90

``record`` runs pytest once and keeps which test executes which line. ``choose`` picks mutants by a
seed, from all lines inside functions. ``run`` puts each into a copy of the checkout, and runs the
tests that execute its line there until one fails; started again, it goes on where it was. When
lines of the product have moved, ``record`` is due again.

A mutant is named by its line's text, so that few others are chosen when the product changes. A line
that no test executes survives. A test that also fails without the mutant kills none. Equivalent
mutants are listed with their reasons in ``mutants_equivalent.toml``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from executed_lines import Recorded, file_of
from line_changes import Change, changes

ROOT = Path(__file__).parents[2]
PLUGIN = Path(__file__).with_name("mutant_plugin.py")
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
MOST_EQUIVALENT = 0.1
SEED, COUNT = 20261129, 60

GROUPS = {
    "mechanisms/accounting/": "accounting", "mechanisms/sampling/": "sampling",
    "mechanisms/": "other mechanisms", "tasks/ledger/": "ledger", "tasks/release/": "release",
    "tasks/source/": "source",
}  # fmt: skip
"""Folders whose lines are changed; a file is of the first group that has it."""

NAME = ("file", "function", "before", "number", "after")
"""What a mutant is named by."""

MEMORY = 16 << 30
"""Bytes of addresses that a test's process may have: a mutant may ask for any number."""

Mutant = dict[str, Any]


def choose(root: Path, seed: int, count: int) -> list[Mutant]:
    """Choose as many mutants of each group; its lines are as likely, then a line's changes."""

    def rank(*words: object) -> str:
        return hashlib.sha256("\n".join(map(str, (seed, *words))).encode()).hexdigest()

    lines: dict[str, dict[str, list[Mutant]]] = {group: {} for group in GROUPS.values()}
    for path in sorted({path for folder in GROUPS for path in (root / folder).rglob("*.py")}):
        file = path.relative_to(root).as_posix()
        group = next(group for folder, group in GROUPS.items() if file.startswith(folder))
        for change in changes(path.read_bytes()):
            mutant = {"group": group, "line": change.line, "file": file, **change._asdict()}
            key = rank(*(mutant[part] for part in NAME[:-1]))
            lines[group].setdefault(key, []).append(
                {part: mutant[part] for part in ("group", "line", *NAME)}
            )
    chosen = []
    for place, of_group in enumerate(lines.values()):
        number = count // len(GROUPS) + (place < count % len(GROUPS))
        for key in sorted(of_group)[:number]:
            chosen.append(min(of_group[key], key=lambda mutant: rank(key, mutant["after"])))
    return chosen


def located(root: Path, mutant: Mutant) -> Change | None:
    """Return a mutant's change in a checkout, or None if it has no such line."""
    path, wanted = root / mutant["file"], tuple(mutant[part] for part in NAME[1:])
    known = changes(path.read_bytes()) if path.exists() else []
    return next((change for change in known if change[: len(wanted)] == wanted), None)


class Copy:
    """A copy of a checkout, whose lines are changed and whose tests run there."""

    def __init__(self, root: Path, folder: Path, python: str, recorded: Recorded) -> None:
        self.root, self.folder = folder / "root", folder
        self.python, self.recorded = python, recorded
        self.broken: set[str] = set()  # tests that fail without a mutant
        self.begun = 0
        left_out = shutil.ignore_patterns(".git", ".venv", ".coverage*", ".*_cache", "build")
        shutil.copytree(root, self.root, symlinks=True, ignore=left_out)
        (folder / "plugin").mkdir()
        shutil.copy(PLUGIN, folder / "plugin")
        path = os.pathsep.join([str(self.root / ".src"), str(folder / "plugin")])
        self.environment = {"OPENBLAS_NUM_THREADS": "1"} | os.environ
        self.environment |= {"PYTHONPATH": path, "TMPDIR": str(folder / "tmp")}
        command = [python, "-c", "import statpress.mechanisms as m; print(*m.__path__)"]
        place = subprocess.check_output(command, env=self.environment, cwd="/", text=True)
        if Path(place.strip()).resolve() != (self.root / "mechanisms").resolve():
            raise RuntimeError(f"tests would import the package from {place}")

    def failure(self, file: str, text: bytes, tests: list[str]) -> tuple[str, str]:
        """Run tests with a file changed until one fails that passes without the change.

        Returns:
            What became of the mutant, and the test that failed or did not end.
        """
        tests, sizes = [test for test in tests if test not in self.broken], iter((25, 250))
        while tests:
            part = tests[: next(sizes, None)]
            failed = self._first_failure(file, text, part)
            if failed is None:
                tests = tests[len(part) :]
            elif self._first_failure(file, (self.root / file).read_bytes(), [failed[1]]) is None:
                return failed
            else:
                self.broken.add(failed[1])
                tests = [test for test in tests if failed[1] not in (test, file_of(test))]
        return "survived", ""

    def _first_failure(self, file: str, text: bytes, tests: list[str]) -> tuple[str, str] | None:
        path = self.root / file
        original, times = path.read_bytes(), path.stat()
        try:
            self._write(path, text)
            return self._pytest(tests)
        finally:
            self._write(path, original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    @staticmethod
    def _write(path: Path, text: bytes) -> None:
        """Write a module, and forget what was compiled of it."""
        path.write_bytes(text)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def _pytest(self, tests: list[str]) -> tuple[str, str] | None:
        files = list(dict.fromkeys(map(file_of, tests)))
        only, failure = self.folder / "only.json", self.folder / "failure.json"
        only.write_text(json.dumps(tests))
        failure.write_text("{}")
        (self.folder / "tmp").mkdir(exist_ok=True)
        seconds = [self.recorded.seconds(test) for test in tests]
        longest = 180 + 10 * max(seconds)  # shared fixtures are another test's seconds
        command = [
            self.python, "-P", "-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider",
            "-p", "mutant_plugin", f"--only-tests={only}", f"--first-failure={failure}",
            "-o", f"faulthandler_timeout={longest}", *files,
        ]  # fmt: skip
        started = time.monotonic()
        with (self.folder / "output.txt").open("w") as output:
            process = subprocess.Popen(
                command, cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            code = process.wait(longest + 5 * sum(seconds))
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what the tests have left running
            process.wait()
            shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        report = json.loads(failure.read_text())
        self.begun += report.get("begun", 0)
        if "failed" in report:
            return "killed", report["failed"]
        if code in (0, 5):  # passed, or there is no such test
            return None
        late = time.monotonic() - started >= longest
        return "timeout" if late else "killed", report.get("now", files[0])  # a file: its import


def run(path: Path, args: argparse.Namespace) -> None:
    """Run the mutants of a file that have no outcome yet, and write down each outcome."""
    mutants, key = json.loads(path.read_text()), "result"
    root, left = args.root, [mutant for mutant in mutants if key not in mutant]
    survivors = [m for m in mutants if m.get("result", {}).get("outcome") == "survived"]
    if args.survivors_through:
        root, key, left = args.survivors_through, "through", survivors
        left = [mutant for mutant in survivors if key not in mutant]
    elif args.whole_files:
        left = [mutant for mutant in survivors if not mutant["result"]["whole_files"]]
    reasons = equivalent()
    left = [mutant for mutant in left if _name(mutant) not in reasons]
    recorded = Recorded(args.coverage or path.with_name(".coverage"))
    lock = threading.Lock()
    copies: queue.Queue[Copy] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=args.scratch) as scratch:
        for number in range(args.jobs):
            copies.put(Copy(root, Path(scratch) / str(number), args.python, recorded))

        def finish(mutant: Mutant) -> None:
            copy, started = copies.get(), time.monotonic()
            result: dict[str, Any] = {"outcome": "absent", "whole_files": args.whole_files}
            try:
                change = located(copy.root, mutant)
                if change is not None:
                    tests = recorded.executing(mutant["file"], change)
                    if args.whole_files:
                        others = recorded.others(tests)
                        tests = others if key in mutant else tests + others
                    text = change.applied((copy.root / mutant["file"]).read_bytes())
                    copy.begun = 0
                    outcome, test = copy.failure(mutant["file"], text, tests)
                    result |= {"outcome": outcome, "test": test}
                    result |= {"tests": len(tests), "begun": copy.begun}
                    result |= {"failing_without": sorted(copy.broken.intersection(tests))}
            finally:
                copies.put(copy)
            with lock:
                mutant[key] = result | {"seconds": round(time.monotonic() - started, 1)}
                path.write_text(json.dumps(mutants, indent=1))
                print(_line(mutant), flush=True)

        with ThreadPoolExecutor(args.jobs) as threads:
            list(threads.map(finish, left))


def _name(mutant: Mutant) -> tuple[str, ...]:
    return tuple(str(mutant[part]) for part in ("file", "function", "before", "after"))


def equivalent() -> dict[tuple[str, ...], str]:
    """Return the reason of each mutant that changes nothing a test could see."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    return {_name(mutant): mutant["reason"] for mutant in listed}


def _line(mutant: Mutant) -> str:
    results = [mutant[key] for key in ("result", "through") if key in mutant]
    said = ", then ".join(f"{r['outcome']} {r.get('test', '')}".strip() for r in results)
    where = f"{mutant['file']}:{mutant['line']} {mutant['function']}"
    return f"{where}\n    - {mutant['before']}\n    + {mutant['after']}\n    {said or 'not run'}"


def show(path: Path, at_least: float) -> None:
    """Print the survivors and the share that was killed, of those that are not equivalent."""
    mutants, reasons = json.loads(path.read_text()), equivalent()
    counted = [mutant for mutant in mutants if _name(mutant) not in reasons]
    killed = [m for m in counted if m.get("result", {}).get("outcome") in ("killed", "timeout")]
    for mutant in counted:
        if mutant not in killed:
            print(_line(mutant))
    for group in GROUPS.values():
        of_group = [sum(m["group"] == group for m in each) for each in (killed, counted)]
        print(f"{group}: {of_group[0]} of {of_group[1]}")
    set_aside, share = len(mutants) - len(counted), 100 * len(killed) / len(counted)
    print(f"killed: {len(killed)} of {len(counted)}, {share:.1f} %; equivalent: {set_aside}")
    if set_aside > MOST_EQUIVALENT * len(mutants):
        sys.exit("more are set aside as equivalent than one in ten")
    if share < at_least:
        sys.exit(f"fewer are killed than {at_least:g} %")


def record(folder: Path, options: list[str]) -> None:
    """Run pytest on the checkout with a context of coverage for each test and shared fixture."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sources = "".join(f"\n    {source}" for source in GROUPS)
    (folder / "coveragerc").write_text(
        f"[run]\nsource ={sources}\ndata_file = {folder / '.coverage'}\n"
        "core = ctrace\nparallel = true\npatch = _exit\nrelative_files = true\n"
    )
    command = [
        sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-p", "mutant_plugin",
        "--cov", f"--cov-config={folder / 'coveragerc'}", "--cov-context=test", "--cov-report=",
        f"--junitxml={folder / 'junit.xml'}", f"--shared-fixtures={folder / 'fixtures.json'}",
        *options,
    ]  # fmt: skip
    path = os.pathsep.join([str(ROOT / ".src"), str(PLUGIN.parent)])
    sys.exit(subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}).returncode)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("record", help="run pytest once, and keep what each test executes")
    verb.add_argument("path", type=Path, metavar="FOLDER")
    verb.add_argument("options", nargs="*", help="of pytest, after --")
    verb = verbs.add_parser("choose", help="write a file of mutants")
    verb.add_argument("--count", type=int, default=COUNT, help=f"default {COUNT}; by night 200")
    verb.add_argument("--seed", type=int, default=SEED)
    verb.add_argument("path", type=Path, metavar="FILE")
    verb = verbs.add_parser("run", help="run the mutants of a file that have no outcome")
    verb.add_argument("path", type=Path, metavar="FILE")
    verb.add_argument("--coverage", type=Path, help="default: .coverage beside the file")
    verb.add_argument("--jobs", type=int, default=2, help="mutants at a time; default 2")
    verb.add_argument("--python", default=sys.executable, help="of the tests")
    verb.add_argument("--scratch", type=Path, help="folder for the copies of the checkout")
    verb.add_argument(
        "--whole-files", action="store_true",
        help="run survivors through the other tests of the files that execute the line, too, "
        "which may use what a cache keeps",
    )  # fmt: skip
    verb.add_argument(
        "--survivors-through", type=Path, metavar="ROOT",
        help="run survivors through the tests of another checkout",
    )  # fmt: skip
    verb.add_argument("--root", type=Path, default=ROOT, help="the checkout; default: this one")
    verb = verbs.add_parser("show", help="print the survivors and the share that was killed")
    verb.add_argument("path", type=Path, metavar="FILE")
    verb.add_argument("--at-least", type=float, default=0.0, help="per cent, else it fails")
    args = parser.parse_args()
    if args.verb == "record":
        record(args.path, args.options)
    elif args.verb == "choose":
        chosen = choose(ROOT, args.seed, args.count)
        args.path.write_text(json.dumps(chosen, indent=1))
    elif args.verb == "run":
        run(args.path, args)
    else:
        show(args.path, args.at_least)


if __name__ == "__main__":
    main()
