"""Seeded releases and all that the command line says of them, as the files of a tree.

``python tests/support/frozen.py`` writes the tree anew where ``tests/golden/test_frozen.py`` looks
for it. Everything goes through the entry point of the command ``statpress``, so that no module may
break it by moving, but the gates: after the first release they are in this process, since one of
their own takes seconds to start. The tree has four parts:

| folder | holds | may change |
|---|---|---|
| ``data`` | the data files of every bundle, and a hash of each | never |
| ``statements`` | the ledger's entries, and the figures of plans, statements, answers | never |
| ``pages`` | what a bundle and a curator have to read, and the metadata | in words |
| ``commands`` | what the commands print, their help and errors | in words |

Times, identifiers of runs, hashes that follow from them, versions of libraries and the folder have
a fixed text in their place; digits that are another processor's are left out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden"
INPUTS, FROZEN = GOLDEN / "frozen_inputs", GOLDEN / "frozen"
SEED = "--insecure-seed=7"
PLAIN = ("--no-orchestrator", SEED)
PUBLISHED = ("people", "figures", "functions", "ages")
OF_THE_CORE = ("figures", "functions", "ages", "visits", "places")
"""Configs that need no extra."""
READABLE = 16_000
"""Bytes of a file of data whose text is kept beside its hash."""
ONCE = ("evaluate.py", "privacy.schema.json")
"""Files that are the same in every bundle that has them."""
IN_FULL = ("people", "visits")
LONG = ("croissant.json", "csvw.json", "dcat.jsonld", "datapackage.json", "report.html")
"""Files that only these bundles keep; of the others they are too long."""

COMMANDS = (
    "demo", "init", "validate", "plan", "rehearse", "audit", "run", "rerelease", "review",
    "approve", "reject", "publish", "upload", "verify", "refine", "query", "regress", "compare",
    "series", "deploy", "doctor", "metrics", "backup", "restore", "tidy", "ledger",
)  # fmt: skip
OF_THE_LEDGER = (
    "amend", "approvers", "charge-history", "checkpoint", "export", "export-head", "import", "note",
    "register", "show", "upgrade", "verify", "void",
)  # fmt: skip

MONTHS = "January February March April May June July August September October November December"
DAY = re.compile(rf"\b\d{{1,2}} ({MONTHS.replace(' ', '|')}) 20\d\d\b")
MADE = re.compile(r"(?<=Made with</dt><dd>)[^<]*")
YEAR = re.compile(r"(\. \\?\()20\d\d(?=\\?\)\.)")  # of a line to cite a release by
REGISTERED = re.compile(r'((?<=Registered )|(?<=date-released: "))20\d\d-\d\d-\d\d')
STAMP = re.compile(r"(?<![0-9])20\d{6}T\d{6}Z")
TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00| UTC)?")
SHORT = re.compile(r"(?<=seal )[0-9a-f]{16}\b")
HASH = re.compile(r"\b[0-9a-f]{64}\b")
RUN = re.compile(r"\b[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}\b")
SIGNATURE = re.compile(r'("signature": ?")[^"]+(")')
LIBRARIES = "python|statpress|numpy|opendp|pyarrow|python-flint|randomgen|scipy|pyreadstat|pysdmx"
LATE = re.compile(r'("delta_lower": ?\d\.\d{6})\d*|("delta_upper": ?\d\.\d{6})\d*(?=e-[12]\d)')
"""Digits of the processor: its maker has a say in the last bit of a long double's exponential."""
STATED = re.compile(r'("path": ?"privacy\.json",\s*"bytes": ?)\d+')  # with the digits above
LIBRARY = re.compile(rf'("(?:{LIBRARIES})": ?")\d[\w.]*(")')
PICTURE = re.compile(r"<(svg|script|style)\b(?! type).*?</\1>", re.DOTALL)
WRITER = re.compile(rb"parquet-cpp-arrow version \d+\.\d+\.\d+")


ALIKE = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What makes the last digits of NumPy's functions those of most processors, on any of x86-64."""


def command(*arguments: object) -> tuple[int, str, str]:
    """The exit code of ``statpress``, wherever its entry point lies, and what it prints."""
    (script,) = entry_points(group="console_scripts", name="statpress")
    sys.argv = ["statpress", *map(str, arguments)]
    ended, out, err = 0, io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    with redirect_stdout(out), redirect_stderr(err):
        try:
            script.load()()
        except SystemExit as end:
            ended = int(end.code or 0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return ended, out.getvalue(), err.getvalue()


class Bench:
    """A folder in which commands are run, and the tree of what came of them."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder, self.tree = folder, tree
        self.known: dict[str, str] = {}
        self.unexpected: list[str] = []

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """What a command comes to, with a line for whoever waits."""
        started = time.process_time()
        ended, out, err = command(*arguments)
        took = time.process_time() - started
        print(f"{took:7.2f} s, {ended:3}:", *sys.argv, file=sys.stderr)
        return ended, out, err

    def say(self, name: str, *arguments: object, fails: bool = False) -> str:
        """Keep what a command prints under ``commands``."""
        ended, out, err = self.run(*arguments)
        if bool(ended) != fails:
            print("UNEXPECTED", out, err, file=sys.stderr)
            self.unexpected.append(name)
        if "--json" in arguments:
            out = pretty(json.loads(out))
        text = " ".join(["$ statpress", *map(str, arguments)]) + f"\n{out}"
        text += f"--- standard error\n{err}" if err else ""
        self.keep(f"commands/{name}.txt", text + f"--- exit code {ended}\n")
        return out

    def state(self, name: str, *arguments: object, fails: bool = False) -> Any:
        """Keep the JSON object that a command prints, and its figures under ``statements``."""
        out = self.say(name, *arguments, "--json", fails=fails)
        facts = json.loads(out)
        self.keep(f"statements/{name}.json", pretty(figures(facts)))
        return facts

    def keep(self, name: str, text: str) -> None:
        """Write a file of the tree."""
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.rstrip() for line in self.settled(text).splitlines()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def settled(self, text: str) -> str:
        """A text without what is another on every day and in every folder."""
        text = text.replace(str(self.folder), "FOLDER")
        text = REGISTERED.sub("DAY", DAY.sub("DAY", text))
        text = MADE.sub("VERSIONS", text)
        text = YEAR.sub(r"\1YEAR", text)
        text = STAMP.sub("TIME", TIME.sub("TIME", text))
        text = SIGNATURE.sub(r"\1SIGNATURE\2", text)
        text = LIBRARY.sub(r"\1VERSION\2", text)
        text = STATED.sub(r"\1SIZE", LATE.sub(r"\1\2", text))
        ours = re.escape(version("statpress"))
        text = re.sub(rf'(statpress |"version": ?"){ours}\b', r"\1VERSION", text)
        text = SHORT.sub("HASH", RUN.sub("RUN", text))
        return HASH.sub(lambda found: self.known.get(found[0], "HASH"), text)

    def learn(self, hashed: str, content: bytes) -> str:
        """The hash of a content that never changes, which texts then show by a name."""
        found = hashlib.sha256(content).hexdigest()
        self.known.setdefault(found, f"HASH OF {hashed}")
        return found


def pretty(facts: Any) -> str:
    """JSON with a line for each value."""
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def figures(facts: Any) -> Any:
    """Facts without their prose: what has a blank in it."""
    if isinstance(facts, dict):
        kept = {key: figures(value) for key, value in facts.items()}
        return {key: value for key, value in kept.items() if value is not None}
    if isinstance(facts, list):
        return [figures(each) for each in facts]
    prose = isinstance(facts, str) and " " in facts and not re.fullmatch(r"[\d\s+:./e-]*", facts)
    return None if prose else facts


def without_pictures(page: str) -> str:
    """A page with a hash in place of every picture, script and style."""

    def hashed(found: re.Match[str]) -> str:
        return f"<{found[1]} sha256={hashlib.sha256(found[0].encode()).hexdigest()[:24]}/>"

    return PICTURE.sub(hashed, page)


def stable(path: Path) -> bytes:
    """The bytes of a file without the version of the library that wrote it."""
    return WRITER.sub(b"parquet-cpp-arrow", path.read_bytes())


def keep_bundle(bench: Bench, name: str, place: Path) -> None:
    """Keep every file of a bundle in its part of the tree."""
    paths = sorted(path for path in place.rglob("*") if path.is_file())
    sums = []
    for path in paths:
        inside = path.relative_to(place).as_posix()
        if inside.startswith("data/") or inside in (*ONCE, "config.yaml"):
            bench.learn(f"{name}/{inside}", path.read_bytes())
            sums.append(f"{hashlib.sha256(stable(path)).hexdigest()}  {inside}")
    target = bench.tree / "data" / name
    target.mkdir(parents=True)
    (target / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    for path in paths:
        inside = path.relative_to(place).as_posix()
        if inside.startswith("data/"):
            if path.suffix in (".csv", ".json") and path.stat().st_size <= READABLE:
                shutil.copyfile(path, target / path.name)
        elif inside in ONCE:
            bench.keep(f"pages/every_bundle/{inside}", path.read_text())
        elif name not in IN_FULL and inside in LONG:
            continue  # made as those of the others are
        else:
            text = path.read_text(encoding="utf-8")
            bench.keep(f"pages/{name}/{inside}", without_pictures(text))
            if inside == "privacy.json":
                stated = pretty(figures(json.loads(text)))
                bench.keep(f"statements/privacy/{name}.json", stated)


def write_keys(bench: Bench) -> None:
    """Write the keys of a press and of an officer, which are no secret."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    folder = bench.folder / "keys"
    folder.mkdir()
    for name in ("press", "officer"):
        key = Ed25519PrivateKey.from_private_bytes(name[:1].encode() * 32)
        private, public = folder / f"{name}.pem", folder / f"{name}-public.pem"
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        private.chmod(0o600)
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
        bench.known[raw] = f"KEY OF {name}"
        public.write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )


def prepare(folder: Path) -> None:
    """Lay out configs and sources."""
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    runpy.run_path(str(folder / "make_source.py"))["main"](folder / "data")
    sys.path.insert(0, str(folder))  # where the configs' own functions are


def press(bench: Bench) -> None:
    """Register, plan, release, review and publish."""
    bench.say(
        "ledger-register", "ledger", "register", "people", "--epsilon=100", "--delta=1e-3",
        "--n-records=400", "--home=home",
    )  # fmt: skip
    register_visits(bench)
    save_work()
    for name in (*PUBLISHED, "visits"):
        config = f"{name}.yaml"
        bench.state(f"plan/{name}", "plan", config, "--home=home")
        how = (config, "--home=home", "--no-orchestrator", SEED)
        if name == "ages":
            bench.say(f"run/{name}", "run", *how)
        else:
            bench.state(f"run/{name}", "run", *how)
        keep_gates_here()
    bench.say("validate", "validate", "people.yaml")
    bench.state("validate-json", "validate", "people.yaml")
    bench.say("plan/in-words", "plan", "people.yaml", "--home=home")
    bench.say("plan/page", "plan", "ages.yaml", "--home=home", "--html=plan.html")
    bench.keep("pages/plan.html", without_pictures(Path("plan.html").read_text()))
    bench.say("plan/compared", "plan", "ages.yaml", "--home=home", "--compare")
    bench.state("plan/compared-json", "plan", "visits.yaml", "--home=home", "--compare")


def register_visits(bench: Bench) -> None:
    """Register the account whose releases are reviewed."""
    bench.state(
        "ledger-register-json", "ledger", "register", "visits", "--policy=zcdp", "--rho=9",
        "--delta=1e-3", "--unit-column=person", "--max-records=3", "--n-units=150", "--home=home",
    )  # fmt: skip
    officer = "--public-key=keys/officer-public.pem"
    bench.say("ledger-approvers", "ledger", "approvers", "visits", officer, "--home=home")


def keep_gates_here() -> None:
    """Start no quality process for the runs that follow."""
    from victims import InProcess

    import statpress.flows.runner

    statpress.flows.runner.Inspector = InProcess


def save_work(*, drawing: bool = True) -> None:
    """Draw no pictures in a rehearsal, which keeps none; or none at all."""
    from statpress.tasks.release import build

    whole = build.write_report

    def write_report(
        folder: Path, manifest: Mapping[str, Any], *, pictures: bool = True
    ) -> list[str]:
        charged = manifest["ledger_entry"] is not None
        return whole(folder, manifest, pictures=pictures and drawing and charged)

    build.write_report = write_report


def review(bench: Bench) -> None:
    """Approve what waits, publish it; reject the same under another name."""
    bench.say("review", "review", "--home=home")
    ((waiting,),) = [bench.state("review-json", "review", "--home=home")["waiting"]]
    bench.state("approve", "approve", waiting["run_id"], "--key=keys/officer.pem", "--home=home")
    bench.state("publish", "publish", waiting["run_id"], "--no-orchestrator", "--home=home")


def derive(bench: Bench) -> None:
    """Ask, refine, reprint, verify; and look into the ledger."""
    people = "releases/people-NOT-PUBLISHABLE"
    for name in PUBLISHED:
        place = f"releases/{name}-NOT-PUBLISHABLE"
        bench.state(f"verify/{name}", "verify", place, "--home=home")
    visits = "releases/visits-NOT-PUBLISHABLE"
    for name, place, key in (
        ("signed", people, "--key=keys/press-public.pem"),
        ("approved", visits, "--public-key=keys/officer-public.pem"),
    ):
        bench.say(f"verify/{name}", "verify", place, key, "--home=home")
        bench.state(f"verify/{name}-json", "verify", place, key, "--home=home")
    columns = ("--columns=age", "--columns=pay", "--where=age=14.5,24.5,34.5", "--product=wide")
    asked = ("query", people, *columns)
    bench.say("query/cells", *asked)
    bench.state("query/cells-json", *asked)
    bench.state(
        "query/sum", "query", people, "--where=region=north", "--population", "--confidence=0.9"
    )
    bench.say("query/mean", "query", people, "--mean=pay", "--by=age", "--product=wide")
    bench.state("query/share", "query", people, "--share=region", "--product=wide")
    for name, place, *how in (
        (
            "consistent",
            people,
            "--consistent",
            "--integers",
            "--format=csv",
            "--products=noisy",
            "--products=drawn",
            "--products=smoothed",
        ),
        ("integers", visits, "--integers", "--format=csv"),
    ):
        bench.state(f"refine/{name}", "refine", place, f"--output=refined-{name}", *how)
        keep_bundle(bench, f"refined-{name}", bench.folder / f"refined-{name}")
    figures = "releases/figures-NOT-PUBLISHABLE"
    again = ("rerelease", figures, "--reprint", "--name=figures-again")
    bench.state("rerelease/reprint", *again)
    bench.state("verify/reprint", "verify", "releases/figures-again-NOT-PUBLISHABLE", "--home=home")


def account(bench: Bench) -> None:
    """Everything that the ledger says."""
    amended = ("ledger", "amend", "people", "--epsilon=90", "--reason=for a test", "--home=home")
    bench.say("ledger/amend", *amended)
    bench.state("ledger/checkpoint", "ledger", "checkpoint", "--key=keys/press.pem", "--home=home")
    for name in ("show", "verify", "charge-history", "upgrade"):
        bench.say(f"ledger/{name}", "ledger", name, "--home=home")
        bench.state(f"ledger/{name}-json", "ledger", name, "--home=home")
    bench.state("ledger/export", "ledger", "export", "ledger.jsonl", "--home=home")
    bench.state("ledger/import", "ledger", "import", "ledger.jsonl", "--home=empty")
    lines = Path("ledger.jsonl").read_text()
    bench.keep("statements/ledger.jsonl", lines)
    for line in lines.splitlines()[:-1]:
        body = json.loads(line)["body"]
        if "mechanisms" in body:
            name = body["mechanisms"][0]["product"]
            bench.keep(f"statements/descriptions/{name}.json", pretty(body["mechanisms"]))


def mistakes(bench: Bench) -> None:
    """Typical errors, in words and as JSON."""
    text = Path("ages.yaml").read_text()
    for name, old, new in (
        ("unknown-key", "title: Ages", "title: Ages\ncolour: red"),
        ("edges", "width: 10", "width: 7"),
        ("budget", "epsilon: 0.5", "epsilon: -1"),
        ("mechanism", "mechanism: laplace", "mechanism: laplac"),
        ("infeasible", "mechanism: laplace", "mechanism: gaussian"),
        ("yaml", "title: Ages", "title: [Ages"),
        ("kind", "kind: table", "kind: tables"),
        ("column", "columns: [age]", "columns: [aged]"),
        ("estimate", "kind: table, mechanism: laplace", "kind: estimate, statistic: mode"),
        ("dependency", "name: ages", "name: ages, targets: [{s3: 'http://x'}]"),
    ):
        changed = Path(f"{name}.yaml")
        assert old in text, old
        changed.write_text(text.replace(old, new))
        bench.say(f"errors/{name}", "validate", changed, fails=True)
        bench.say(f"errors/{name}-json", "validate", changed, "--json", fails=True)
    people = "releases/people-NOT-PUBLISHABLE"
    ages = ("run", "ages.yaml", "--home=home", "--no-orchestrator", SEED)
    damaged = Path("damaged")
    shutil.copytree(people, damaged)
    (damaged / "data" / "ages.csv").write_text("age\n")
    bench.say(
        "ledger-reopen", "ledger", "amend", "people", "--reopen", "--reason=looked into",
        "--home=home",
    )  # fmt: skip
    for name, *arguments in (
        ("bundle-exists", *ages),
        ("mostly-noise", *ages, "--set=publish.name=other", "--set=budget.epsilon=0.001",
         "--set=products.ages.accept=null"),
        ("insufficient", *ages, "--set=publish.name=other", "--set=budget.epsilon=99"),
        ("unregistered", *ages, "--set=publish.name=other", "--set=dataset=nobody"),
        ("policy", *ages, "--set=publish.name=other", "--set=privacy.n_records=500"),
        ("no-source", *ages, "--set=publish.name=other", "--set=source.path=none.csv"),
        ("override", "plan", "ages.yaml", "--set=budget.epsilom=1"),
        ("no-config", "plan", "none.yaml"),
        ("no-option", "plan", "ages.yaml", "--colour"),
        ("no-argument", "verify"),
        ("no-command", "press"),
        ("no-bundle", "verify", "nowhere"),
        ("damaged", "verify", "damaged"),
        ("not-its-key", "verify", people, "--key=keys/officer-public.pem"),
        ("not-its-officer", "verify", "releases/visits-NOT-PUBLISHABLE",
         "--public-key=keys/press-public.pem"),
        ("not-measured", "query", people, "--columns=born"),
        ("no-value", "query", people, "--where=region=west"),
        ("no-tables", "query", "releases/ages-NOT-PUBLISHABLE"),
        ("refined", "refine", people, "--output=refined-consistent"),
        ("rerelease", "rerelease", people),
        ("reviewed", "rerelease", "releases/visits-NOT-PUBLISHABLE", "--reprint"),
        ("revised", "rerelease", people, "--revise=ages.yaml", "--plan-only", "--home=home"),
        ("reopened", "ledger", "amend", "people", "--reopen", "--reason=looked", "--home=home"),
        ("no-run", "approve", "0" * 32, "--key=keys/officer.pem", "--home=home"),
        ("no-key", "ledger", "checkpoint", "--key=none.pem", "--home=home"),
        ("registered", "ledger", "register", "people", "--epsilon=1", "--delta=0",
         "--n-records=400", "--home=home"),
        ("no-account", "ledger", "show", "nobody", "--home=home"),
        ("no-ledger", "ledger", "show", "--home=nowhere"),
        ("amount", "ledger", "amend", "people", "--epsilon=much", "--home=home"),
        ("other-head", "ledger", "verify", f"--head={'0' * 64}", "--home=home"),
        ("void", "ledger", "void", "0" * 32, "--reason=for a test", "--home=home"),
        ("upload", "upload", people, "--home=home"),
    ):  # fmt: skip
        bench.say(f"errors/{name}", *arguments, fails=True)


def places(bench: Bench) -> None:
    """Tables of places, under an account of their own."""
    bench.run(
        "ledger", "register", "places", "--epsilon=100", "--delta=1e-3", "--n-records=400",
        "--home=home",
    )  # fmt: skip
    bench.state("plan/places", "plan", "places.yaml", "--home=home")
    bench.state("run/places", "run", "places.yaml", "--home=home", "--no-orchestrator", SEED)
    place = bench.folder / "releases" / "places-NOT-PUBLISHABLE"
    bench.state("query/places", "query", place, "--columns=age", "--where=district=n1,s2")
    keep_bundle(bench, "places", place)


def ask_for_help(bench: Bench) -> None:
    """The help of every command."""
    bench.say("help/statpress", "--help")
    for name in COMMANDS:
        bench.say(f"help/{name}", name, "--help")
    for name in OF_THE_LEDGER:
        bench.say(f"help/ledger-{name}", "ledger", name, "--help")


def draft(bench: Bench) -> None:
    """A config from a description."""
    Path("columns.csv").write_text(
        "name,type,categories,lower,upper,label\nsex,categorical,f|m,,,Sex\n"
        "age,integer,,0,99,\npay,numeric,,0,,\n"
    )
    given = ("--n-records=400", "--epsilon=1", "--delta=1e-6", "--dataset=panel")
    bench.say("init", "init", "columns.csv", *given, "--output=drafted.yaml")
    bench.state("init-json", "init", "columns.csv", *given, "--output=drafted-again.yaml")
    bench.keep("pages/drafted.yaml", Path("drafted.yaml").read_text())


def make_core(tree: Path) -> None:
    """Make the data of those releases that need no extra, and their statements of privacy."""
    with tempfile.TemporaryDirectory(prefix="frozen-") as place:
        folder = Path(place).resolve()
        os.chdir(folder)
        prepare(folder)
        bench = Bench(folder, tree)
        write_keys(bench)
        for account in ("people", "places"):
            bench.run(
                "ledger", "register", account, "--epsilon=100", "--delta=1e-3", "--n-records=400",
                "--home=home",
            )  # fmt: skip
        register_visits(bench)
        save_work(drawing=False)
        keep_gates_here()
        for name in OF_THE_CORE:
            bench.state(f"run/{name}", "run", f"{name}.yaml", "--home=home", *PLAIN)
        review(bench)
        for name in OF_THE_CORE:
            keep_bundle(bench, name, folder / "releases" / f"{name}-NOT-PUBLISHABLE")
        os.chdir("/")
        assert not bench.unexpected, bench.unexpected


def make(tree: Path) -> None:
    """Make the tree in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="frozen-") as place:
        folder = Path(place).resolve()
        os.chdir(folder)
        prepare(folder)
        bench = Bench(folder, tree)
        write_keys(bench)
        ask_for_help(bench)
        draft(bench)
        press(bench)
        review(bench)
        for name in (*PUBLISHED, "visits"):
            keep_bundle(bench, name, folder / "releases" / f"{name}-NOT-PUBLISHABLE")
        derive(bench)
        keep_bundle(bench, "figures-again", folder / "releases" / "figures-again-NOT-PUBLISHABLE")
        account(bench)
        mistakes(bench)
        places(bench)
        for page in sorted((folder / "home" / "curator").glob("*.html")):
            bench.keep("pages/curator.html", without_pictures(page.read_text()))
        os.chdir("/")
        assert not bench.unexpected, bench.unexpected


def main(tree: Path, how: Callable[[Path], None] = make) -> None:
    """Write the tree in place of what is there, in the environment that the test has."""
    for name in [name for name in os.environ if name.startswith(("STATPRESS", "PREFECT"))]:
        del os.environ[name]
    os.environ |= {"NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}
    with tempfile.TemporaryDirectory() as built:
        how(Path(built) / "frozen")
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(Path(built) / "frozen", tree)


if __name__ == "__main__":
    if not ALIKE.items() <= os.environ.items():  # read when NumPy is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ALIKE)
    code = 1
    try:
        given = sys.argv[1:]
        main(Path(given[0]) if given else FROZEN, make_core if "--core" in given else make)
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)  # past what the command does when a process ends
