"""A cryptographic stream is drawn from in one process only: nothing can repeat it."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from statpress.mechanisms.errors import InternalError
from statpress.mechanisms.sampling.randomness import Randomness
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.release.entropy import SystemRandomness, generator

USES: dict[str, Callable[[Randomness], Any]] = {
    "bytes": lambda rng: rng.bytes(8),
    "integers": lambda rng: rng.integers(2**32, size=4),
    "multinomial": lambda rng: rng.multinomial(10, [0.5, 0.5]),
    "laplace": lambda rng: rng.discrete_laplace(Fraction(2), 3),
    "gaussian": lambda rng: rng.discrete_gaussian(Fraction(2), 3),
    "bits": lambda rng: rng.bit_generator,
}


def stream() -> Randomness:
    return generator(Entry(1, "draw", {}, "", ""), "wages")


@pytest.mark.parametrize("use", USES)
def test_a_fork_draws_nothing_from_its_parents_stream(use: str) -> None:
    rng = stream()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            USES[use](rng)
        except InternalError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    USES[use](rng)  # its own process goes on


def test_a_fork_may_have_a_stream_of_its_own() -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            stream().bytes(8)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_stream_is_copied(copied: Callable[[Randomness], Any]) -> None:
    with pytest.raises(InternalError, match="copied"):
        copied(stream())


def test_its_bits_are_those_of_the_counter() -> None:
    guarded, plain = (
        kind(AESCounter(key=20261125)) for kind in (SystemRandomness, np.random.Generator)
    )
    assert np.array_equal(guarded.integers(2**62, size=100), plain.integers(2**62, size=100))
