"""The one place where production randomness begins."""

from __future__ import annotations

import secrets

import numpy as np

from tasks.entries import Entry


def generator(draw: Entry, *, insecure_seed: int | None = None) -> np.random.Generator:
    """A generator for one charged run.

    It takes the ledger's entry that the run begins to draw, which follows its charge
    and can be written once, so that there is no bit before the charge is committed
    and no run draws twice. The bits are AES-128 in counter mode under a key from the
    operating system.

    Args:
        draw: The committed entry.
        insecure_seed: For tests alone; the bundle is then marked not publishable.
    """
    if draw.kind != "draw":
        raise ValueError("randomness needs a charged run that the ledger lets draw")
    from randomgen import AESCounter

    if insecure_seed is not None:
        return np.random.Generator(np.random.PCG64(insecure_seed))
    return np.random.Generator(AESCounter(key=secrets.randbits(128)))
