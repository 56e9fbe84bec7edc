"""Tests draw no lots, by the tests' own means: the package has one switch for it, which marks."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import seeded_streams
from drawn import drawn, send_drawn
from seeded_streams import CLOCK, STREAMS

ROOT = Path(__file__).parents[2]
ROOMS = ("mechanisms", "configs", "tasks", "flows")
PACKAGE = [
    *(path for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py")),
    ROOT / ".src/statpress/__init__.py",
]
PROGRAM = Path(__file__).parents[1] / "support" / "drawn.py"


def in_a_fork() -> str:
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.write(write, drawn().encode())
        finally:
            os._exit(0)
    os.wait()
    return os.read(read, 1 << 16).decode()


def in_a_process(method: str) -> str:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=send_drawn, args=(there,))
    process.start()
    there.close()
    text: str = here.recv()
    process.join()
    return text


def in_a_program(environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-P", PROGRAM], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout


WAYS: dict[str, Callable[[], str]] = {
    "here": drawn,
    "fork": in_a_fork,
    "forkserver": lambda: in_a_process("forkserver"),
    "program": in_a_program,
}


@pytest.fixture
def name() -> Iterator[str]:
    """The streams of this test, which go on where they were."""
    name = STREAMS.name
    assert name is not None
    yield name
    STREAMS.begin(name)


@pytest.mark.parametrize("way", WAYS)
def test_a_name_gives_the_same_draws_again_and_another_name_others(way: str, name: str) -> None:
    texts = []
    for each in (name, name, f"{name} of another base seed"):
        STREAMS.begin(each)
        texts.append(json.loads(WAYS[way]()))
    first, again, other = texts
    assert first == again
    assert {key for key in first if first[key] == other[key]} == set()


def test_processes_of_one_test_draw_differently_but_for_the_noise_of_one_product(name: str) -> None:
    """A product's noise is that of the run, whichever process draws it."""
    first, second = (json.loads(in_a_fork()) for _ in range(2))
    equal = {key for key in first if first[key] == second[key]}
    assert equal == {"bits", "laplace", "gaussian"}


def test_the_entry_point_alone_seeds_a_program() -> None:
    """Without it the variable that names the stream means nothing to the package."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    environment |= {seeded_streams.VARIABLE: "a name", "PYTHONHASHSEED": "0"}
    with seeded_streams.unseeded():
        first, second = (json.loads(in_a_program(environment)) for _ in range(2))
    assert {key for key in first if first[key] == second[key]} == set()


def test_the_package_has_no_other_switch() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in PACKAGE}
    assert len(texts) > 200
    tests = ("seeded_streams", seeded_streams.VARIABLE, "sitecustomize")
    assert not [path for path, text in texts.items() if any(word in text for word in tests)]
    words = re.compile(r"environ[^\n]*(?i:seed)|[\"'][A-Z_]*SEED[A-Z_]*[\"']")
    assert not [path for path, text in texts.items() if words.search(text)]
    switches = re.findall(r"--[a-z-]*(?:seed|determin|reproduc)[a-z-]*", "".join(texts.values()))
    assert set(switches) == {"--insecure-seed"}


def test_all_that_the_package_draws_is_known() -> None:
    """Each source of randomness in the package is one that the streams replace, or has a seed."""
    sources = re.compile(
        r"os\.urandom|secrets\.\w+|uuid\.uuid\d|SystemRandom\b|getrandom|^import random|"
        r"make_laplace|make_gaussian|AESCounter\(|Ed25519PrivateKey\.generate|default_rng\(\)",
        re.MULTILINE,
    )
    places = {
        (str(path.relative_to(ROOT)), found)
        for path in PACKAGE
        for found in sources.findall(path.read_text())
    }
    assert places == KNOWN


KNOWN = {
    ("tasks/release/entropy.py", "AESCounter("),
    ("tasks/release/entropy.py", "make_laplace"),
    ("tasks/release/entropy.py", "secrets.randbits"),
    ("tasks/release/entropy.py", "secrets.token_hex"),
    ("tasks/release/drawing.py", "secrets.token_hex"),
    ("tasks/release/drawing.py", "uuid.uuid4"),
    ("tasks/source/spark.py", "secrets.token_hex"),
    ("tasks/source/file_numbers.py", "uuid.uuid4"),
    ("tasks/uploads/ckan.py", "secrets.token_bytes"),
    ("tasks/private_zone/guards.py", "uuid.uuid4"),
    ("tasks/ledger/store.py", "import random"),
}
"""By module: ``random`` in ``store`` spreads the tries for a lock."""


def test_only_the_tests_of_entropy_draw_from_the_system() -> None:
    """Nothing else in the suite asks for real entropy."""
    asking = {
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if "unseeded" in path.read_text() or "system_entropy" in path.read_text()
    }
    assert asking == {"seeded_streams.py", "test_entropy.py", Path(__file__).name}


def test_the_clock_of_a_test_is_that_of_its_processes() -> None:
    now = datetime.datetime.now(datetime.UTC)
    assert abs(now.timestamp() - time.time()) < 60
    print_it = "import time; print(time.time())"
    shown = subprocess.run(
        [sys.executable, "-P", "-c", print_it], check=True, capture_output=True, text=True
    )
    assert abs(float(shown.stdout) - now.timestamp()) < 600
    assert CLOCK.ahead != 0
