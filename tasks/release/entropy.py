"""The one place where production randomness begins.

Bits are AES-128 in counter mode under a key from the operating system; discrete noise
comes from OpenDP's exact samplers, which take their bits from the operating system.
"""

from __future__ import annotations

import secrets
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling.randomness import Randomness
from tasks.ledger_rules.entries import Entry


def generator(draw: Entry, *, insecure_seed: int | None = None) -> Randomness:
    """A generator for one charged run.

    It takes the ledger's entry that the run begins to draw, which follows its charge
    and can be written once, so that there is no bit before the charge is committed
    and no run draws twice.

    Args:
        draw: The committed entry.
        insecure_seed: For tests alone; the bundle is then marked not publishable.
    """
    if draw.kind != "draw":
        raise ValueError("randomness needs a charged run that the ledger lets draw")
    from randomgen import AESCounter

    if insecure_seed is not None:
        return SeededRandomness(np.random.PCG64(insecure_seed))
    return SystemRandomness(AESCounter(key=secrets.randbits(128)))


def key_of_choice(*, insecure_seed: int | None = None) -> str:
    """A key for the choice of a unit's records (tasks.counting.units), 256 bits in hexadecimal.

    It is drawn before the charge, with the count: what it decides reaches nobody unless
    the run is charged, and the guarantee holds for every key.

    Args:
        insecure_seed: For tests alone, as in ``generator``.
    """
    return secrets.token_hex(32) if insecure_seed is None else f"seed {insecure_seed}"


class SystemRandomness(Randomness):
    """Cryptographic bits, and OpenDP's exact discrete noise."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return _noise(dp.m.make_laplace(*space, scale=_double(scale)), size)

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        return _noise(dp.m.make_gaussian(*space, scale=_double(sigma)), size)


class SeededRandomness(Randomness):
    """Known bits for tests: the same seed gives the same noise, up to double precision."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        stop = -np.expm1(-1 / float(scale))
        return np.subtract(self.geometric(stop, size), self.geometric(stop, size))

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """By rejection from the noise above (Canonne, Kamath and Steinke 2020, algorithm 3)."""
        found = np.empty(0, np.int64)
        width = Fraction(int(sigma) + 1)
        while len(found) < size:
            tried = self.discrete_laplace(width, 2 * size + 16)
            excess = np.abs(tried) - float(sigma**2 / width)
            kept = self.random(len(tried)) < np.exp(-(excess**2) / (2 * float(sigma) ** 2))
            found = np.concatenate([found, tried[kept]])
        return found[:size]


def _noise(measurement: Any, size: int) -> NDArray[np.int64]:
    """Noise around zeros."""
    return np.array(measurement([0] * size), np.int64)


def _double(scale: Fraction) -> float:
    """The double that a scale is; the samplers take it exactly."""
    exact = float(scale)
    if Fraction(exact) != scale:
        raise ValueError("the scale must be exactly a double")
    return exact
