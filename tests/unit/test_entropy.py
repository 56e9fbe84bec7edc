"""The operating system's entropy itself: streams differ, no fork repeats one, the law is exact.

The one file whose tests draw real entropy. Each states the chance that it fails of itself, at most
1e-9; most compare keys of 128 bits, of which two are equal with a chance of 3e-39.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import seeded_streams
from numpy.typing import NDArray
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.errors import InternalError
from statpress.mechanisms.sampling.randomness import Randomness
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.private_zone.guards import new_run_id
from statpress.tasks.release.entropy import SystemRandomness, generator, key_of_choice

USES: dict[str, Callable[[Randomness], Any]] = {
    "bytes": lambda rng: rng.bytes(8),
    "integers": lambda rng: rng.integers(2**32, size=4),
    "multinomial": lambda rng: rng.multinomial(10, [0.5, 0.5]),
    "laplace": lambda rng: rng.discrete_laplace(Fraction(2), 3),
    "gaussian": lambda rng: rng.discrete_gaussian(Fraction(2), 3),
    "bits": lambda rng: rng.bit_generator,
}


LEVEL = 1e-9
"""Of the tests of a law: how often one fails of itself."""


@pytest.fixture(autouse=True)
def _real_entropy() -> Iterator[None]:
    with seeded_streams.unseeded():
        yield


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


def test_streams_and_ids_differ() -> None:
    """Of 300 numbers of 96 bits or more two are equal with a chance below 1e-24."""
    for draw in (lambda: stream().bytes(16), new_run_id, key_of_choice):
        assert len({draw() for _ in range(300)}) == 300


def test_a_fork_draws_other_bits_than_its_parent() -> None:
    """Both have the same memory, and so would have the same bits of any generator in it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, stream().bytes(16))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 16) not in {stream().bytes(16), b""}


def p_value(noise: NDArray[np.int64], scale: Fraction) -> float:
    """Chance of counts this far from those that P(z) = tanh(1/2s) exp(-|z|/s) leads to expect.

    Integers beyond the range in which ten are expected each are two tails.
    """
    s, n = float(scale), len(noise)
    most = max(int(s * np.log(n * np.tanh(1 / (2 * s)) / 10)), 0)
    inner = np.arange(-most, most + 1)
    tail = np.exp(-(most + 1) / s) / (1 + np.exp(-1 / s))
    law = np.concatenate([[tail], np.tanh(1 / (2 * s)) * np.exp(-np.abs(inner) / s), [tail]])
    counts = np.bincount(np.clip(noise, -most - 1, most + 1) + most + 1, minlength=len(law))
    return float(stats.chisquare(counts, n * law / law.sum()).pvalue)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(40)])
def test_the_systems_noise_has_its_law(scale: Fraction) -> None:
    """OpenDP's sampler, by a test of level 1e-9 that a scale 30 % off does not pass."""
    noise = stream().discrete_laplace(scale, 8000)
    assert p_value(noise, scale) > LEVEL
    for wrong in (scale * Fraction(10, 13), scale * Fraction(13, 10)):
        assert p_value(stream().discrete_laplace(_double(wrong), 8000), scale) < LEVEL


@pytest.mark.parametrize("scale", [Fraction(3), Fraction(40)])
def test_the_systems_gaussian_noise_is_drawn_from_its_bits(scale: Fraction) -> None:
    """The mean square of 8,000 draws is within 7 standard errors; half the scale is not."""
    noise = stream().discrete_gaussian(scale, 20_000).astype(float)
    away = (np.mean(noise**2) / float(scale) ** 2 - 1) / np.sqrt(2 / 8000)
    halved = (np.mean((noise / 2) ** 2) / float(scale) ** 2 - 1) / np.sqrt(2 / 8000)
    assert abs(away) < 7 < abs(halved)


def _double(scale: Fraction) -> Fraction:
    return Fraction(float(scale))
