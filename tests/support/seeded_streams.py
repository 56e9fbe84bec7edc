"""Random streams that follow from a name, in place of the operating system's entropy.

A test's streams follow from its id and the base seed: keys of the samplers, run and release ids,
signing keys, names of temporary files, and everything that Python's ``random``, ``secrets``,
``uuid`` or NumPy take from the operating system. Processes that a test starts get a stream of
their own each, named by their parent (forks, ``multiprocessing`` and ``subprocess``; the last by
``entry/sitecustomize.py``).

Each module that asks has a stream of its own, so that a thread of one library does not move the
draws of another. A product's noise follows from its run and its name, whichever process draws it.
OpenDP's sampler takes no seed: the discrete Laplace law is drawn from the seeded bits instead.

The clock of tests that have no server begins at an instant that follows from the base seed, far
from midnight in CI; processes have the clock of the test that starts them.

Only the standard library is imported: every process that a test starts imports this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.abc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from multiprocessing import process as processes
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "STATPRESS_TEST_STREAM"
"""Name of a process's stream, for processes that tests start."""

CLOCK_VARIABLE = "STATPRESS_TEST_CLOCK"
"""Seconds by which its clock is ahead."""

ENTRY = str(Path(__file__).parent / "entry")
"""Folder of ``sitecustomize``, which such a process imports first."""

_BETWEEN = frozenset({"random", "secrets", "uuid", "tempfile", __name__})
"""Modules that pass on what they are asked for."""

system_entropy = os.urandom
"""The operating system's own."""


class _Streams:
    """The streams of this process, by what asks for them.

    Attributes:
        root: Name that all processes of a test share.
        name: Name of this process's streams, None if they are the operating system's.
    """

    def __init__(self) -> None:
        self.root = ""
        self.name: str | None = None
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}
        self._local = threading.local()

    def begin(self, name: str | None, root: str | None = None) -> None:
        """Start the streams of a name again."""
        self.name, self.root = name, root or name or ""
        self._taken = {}
        if name is None:
            random.seed(int.from_bytes(system_entropy(32), "big"))
        else:
            random.seed(self._digest(f"{name}\0random"))
        tempfile._name_sequence = None  # type: ignore[attr-defined]

    def child(self, kind: str) -> str:
        """The name of the next process of a kind that this one starts, with its root."""
        return f"{self.root}\n{self.name}/{kind} {self._next(kind)}"

    def become(self, child: str) -> None:
        """Take the streams that a parent named."""
        root, _, name = child.partition("\n")
        self.begin(name or root, root)

    def bytes(self, size: int) -> bytes:
        """The next bytes of the stream of the module that asks."""
        if self.name is None:
            return system_entropy(size)
        named = getattr(self._local, "named", None)
        key = f"{self.root}\0{named}" if named else f"{self.name}\0{_asking()}"
        with self._lock:
            number = self._taken[key] = self._taken.get(key, 0) + 1
        return hashlib.shake_256(f"{key}\0{number}".encode()).digest(size)

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Take what this thread asks for from a stream that all processes of the test name alike."""
        self._local.named = name
        try:
            yield
        finally:
            self._local.named = None

    def _next(self, kind: str) -> int:
        with self._lock:
            number = self._taken[kind] = self._taken.get(kind, 0) + 1
        return number

    @staticmethod
    def _digest(name: str) -> int:
        return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")

    # What Hypothesis asks of a generator that it seeds before each example.

    def seed(self, number: int) -> None:
        self._taken = {"example": number}

    def getstate(self) -> dict[str, int]:
        return dict(self._taken)

    def setstate(self, state: dict[str, int]) -> None:
        self._taken = dict(state)


STREAMS = _Streams()


class _Clock:
    """The clock of this process, as far ahead of the machine's as a test asks.

    Attributes:
        ahead: Seconds.
    """

    def __init__(self) -> None:
        self.ahead = 0
        self._travel: Any = None

    def shift(self, ahead: int) -> None:
        """Set the clock ahead of the machine's, or back to it; it goes on from there."""
        if ahead == self.ahead:
            return
        if self._travel is not None:
            self._travel.stop()
            self._travel = None
        if ahead:
            spared = sys.modules.setdefault("pytest", None) is None  # type: ignore[arg-type]
            import time_machine  # whose plugin would import pytest in every process

            if spared:
                del sys.modules["pytest"]
            self._travel = time_machine.travel(time.time() + ahead, tick=True)
            self._travel.start()
        self.ahead = ahead


CLOCK = _Clock()


def _asking() -> str:
    """The module that asks for bytes, past those that only pass them on."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def install(name: str | None = None) -> None:
    """Seed this process, and have those that it starts seeded too."""
    if os.urandom is system_entropy:
        os.urandom = STREAMS.bytes
        random._urandom = STREAMS.bytes  # type: ignore[attr-defined]
        tempfile._RandomNameSequence.rng = property(_rng_of_names)  # type: ignore[attr-defined]
        os.register_at_fork(before=_name_fork, after_in_child=_begin_fork)
        _wrap(subprocess.Popen, "__init__", _with_stream)
        _wrap(processes.BaseProcess, "start", _naming_process)
        _wrap(processes.BaseProcess, "_bootstrap", _becoming_process)
        sys.meta_path.insert(0, _AfterImport())
    if name is not None:
        STREAMS.become(name)


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """Real entropy, for tests that are about it, in this process and in those that it starts."""
    name, root = STREAMS.name, STREAMS.root
    STREAMS.begin(None)
    try:
        yield
    finally:
        STREAMS.begin(name, root)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    honest = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        return around(honest, *arguments, **options)

    setattr(owner, name, wrapped)


def _rng_of_names(self: Any) -> random.Random:
    if getattr(self, "_rng_pid", None) != os.getpid():
        self._rng, self._rng_pid = random.Random(STREAMS.bytes(32)), os.getpid()
    return self._rng  # type: ignore[no-any-return]


_forks: list[str] = []


def _name_fork() -> None:
    _forks[:] = [STREAMS.child("fork")] if STREAMS.name is not None else []


def _begin_fork() -> None:
    STREAMS._lock = threading.Lock()
    if _forks:
        STREAMS.become(_forks[0])
    else:
        STREAMS.begin(None)


def _with_stream(
    honest: Callable[..., Any], self: Any, args: Any, *rest: Any, **options: Any
) -> Any:
    """Start a program with a stream of its own; nothing else of its environment changes."""
    given = options.get("env")
    if STREAMS.name is not None and len(rest) < 10:
        environment = dict(os.environ if given is None else given)
        environment[VARIABLE] = STREAMS.child("program")
        environment[CLOCK_VARIABLE] = str(CLOCK.ahead)
        environment["PYTHONPATH"] = os.pathsep.join(
            [ENTRY, *filter(None, [environment.get("PYTHONPATH", "").removeprefix(ENTRY)])]
        )
        options["env"] = environment
    return honest(self, args, *rest, **options)


def _naming_process(honest: Callable[..., Any], self: Any) -> Any:
    if STREAMS.name is not None:
        self._config[VARIABLE] = STREAMS.child("process")
    return honest(self)


def _becoming_process(honest: Callable[..., Any], self: Any, *arguments: Any, **named: Any) -> Any:
    STREAMS.begin(None)
    if VARIABLE in self._config:
        STREAMS.become(self._config.pop(VARIABLE))
    return honest(self, *arguments, **named)


def _seed_noise(entropy: Any) -> None:
    """Name the stream of each product's noise, and draw the Laplace law from it."""
    honest = entropy.generator

    def generator(draw: Any, product: str, *, insecure_seed: int | None = None) -> Any:
        with STREAMS.named(f"noise of {product} in {draw.body.get('run_id')}"):
            return honest(draw, product, insecure_seed=insecure_seed)

    entropy.generator = generator
    opendp = entropy.SystemRandomness.discrete_laplace
    seeded = entropy.SeededRandomness.discrete_laplace

    def discrete_laplace(self: Any, scale: Any, size: int) -> Any:
        entropy._double(scale)
        return (opendp if STREAMS.name is None else seeded)(self, scale, size)

    entropy.SystemRandomness.discrete_laplace = discrete_laplace


def _seed_keys(ed25519: Any) -> None:
    """Take the bits of signing keys from the streams."""
    key = ed25519.Ed25519PrivateKey
    key.generate = staticmethod(lambda: key.from_private_bytes(os.urandom(32)))


_AFTER = {
    "statpress.tasks.release.entropy": _seed_noise,
    "cryptography.hazmat.primitives.asymmetric.ed25519": _seed_keys,
}


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function on each of these modules when it has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in _AFTER:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            honest = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                honest(module)
                _AFTER[name](module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
