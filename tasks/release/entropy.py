"""The one place where production randomness begins.

Bits are AES-128 in counter mode under a key from the operating system. Discrete Gaussian noise is
drawn from them (mechanisms.sampling.randomness); discrete Laplace noise comes from OpenDP's
exact sampler, which takes its bits from the operating system. Every product
has a generator of its own, with a key of its own, made in the process that draws it: no two share
a stream, wherever they are drawn, and no key is ever stored or sent. A fork copies a generator with
its key, and both processes would draw the same bits, so one works only in the process that made it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import InternalError
from statpress.mechanisms.sampling import randomness
from statpress.mechanisms.sampling.randomness import Randomness
from statpress.tasks.ledger.entries import Entry

_AT_ONCE = 1 << 16


def generator(draw: Entry, product: str, *, insecure_seed: int | None = None) -> Randomness:
    """A generator for one product of a charged run.

    It takes the ledger's entry that the run begins to draw, which follows its charge
    and can be written once, so that there is no bit before the charge is committed
    and no run draws twice.

    Args:
        draw: The committed entry.
        product: Its name; with a seed its stream follows from both.
        insecure_seed: For tests alone; the bundle is then marked not publishable.
    """
    if draw.kind != "draw":
        raise ValueError("randomness needs a charged run that the ledger lets draw")
    if insecure_seed is None:
        return _system_stream()
    words = np.frombuffer(hashlib.sha256(product.encode()).digest(), np.uint32)
    seeds = np.random.SeedSequence([insecure_seed, *words.tolist()])
    return SeededRandomness(np.random.PCG64(seeds))


def generator_of_made_up(*, insecure_seed: int | None = None) -> Randomness:
    """A generator for releases of made-up data, as an audit makes them; never for a source.

    Args:
        insecure_seed: In place of the operating system's bits.
    """
    if insecure_seed is None:
        return _system_stream()
    return SeededRandomness(np.random.PCG64(insecure_seed))


def _system_stream() -> Randomness:
    from randomgen import AESCounter

    return SystemRandomness(AESCounter(key=secrets.randbits(128)))


def key_of_choice(*, insecure_seed: int | None = None) -> str:
    """A key for the choice of a unit's records (tasks.source.aggregates), 256 bits in hexadecimal.

    It is drawn before the charge, with the count: what it decides reaches nobody unless
    the run is charged, and the guarantee holds for every key.
    """
    return secrets.token_hex(32) if insecure_seed is None else f"seed {insecure_seed}"


class SystemRandomness(Randomness):
    """Cryptographic bits, and exact discrete noise; only in the process that made it.

    Args:
        bits: The generator of bits, which nobody else has.

    Raises:
        InternalError: On any use in another process, and on any attempt to copy or pickle it.
    """

    def __init__(self, bits: np.random.BitGenerator) -> None:
        super().__init__(bits)
        self._process = os.getpid()

    def __getattribute__(self, name: str) -> Any:
        """Look at the process before every use; methods and bits are all reached through here."""
        value = super().__getattribute__(name)
        if os.getpid() != super().__getattribute__("__dict__").get("_process", os.getpid()):
            raise InternalError("A random stream was to be used in another process than its own.")
        return value

    def __reduce__(self) -> NoReturn:
        raise InternalError("A random stream was to be copied.")

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return _noise(dp.m.make_laplace(*space, scale=_double(scale)), size)

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return randomness.discrete_gaussian(sigma, size, self)


class SeededRandomness(Randomness):
    """Known bits for tests: the same seed gives the same noise, up to double precision."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        stop = -np.expm1(-1 / float(scale))
        return np.subtract(self.geometric(stop, size), self.geometric(stop, size))

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """By rejection from the noise above (Canonne, Kamath and Steinke 2020, algorithm 3)."""
        noise = np.empty(0, np.int64)
        width = Fraction(int(sigma) + 1)
        while len(noise) < size:
            tried = self.discrete_laplace(width, 2 * size + 16)
            excess = np.abs(tried) - float(sigma**2 / width)
            kept = self.random(len(tried)) < np.exp(-(excess**2) / (2 * float(sigma) ** 2))
            noise = np.concatenate([noise, tried[kept]])
        return noise[:size]


def _noise(measurement: Any, size: int) -> NDArray[np.int64]:
    """Noise around zeros, of which only so many are numbers of Python at once."""
    noise = np.empty(size, np.int64)
    for start in range(0, size, _AT_ONCE):
        part = noise[start : start + _AT_ONCE]
        part[:] = measurement([0] * len(part))
    return noise


def _double(scale: Fraction) -> float:
    """The double that a scale is; the samplers take it exactly."""
    exact = float(scale)
    if Fraction(exact) != scale:
        raise ValueError("the scale must be exactly a double")
    return exact
