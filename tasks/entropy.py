"""The one place where production randomness begins."""

from __future__ import annotations

import secrets

import numpy as np

from tasks.entries import Entry


def generator(charge: Entry, *, insecure_seed: int | None = None) -> np.random.Generator:
    """A generator for one charged run.

    It takes the ledger entry of the charge, so that there is no bit before the
    charge is committed. The bits are AES-128 in counter mode under a key from
    the operating system.

    Args:
        charge: The committed entry.
        insecure_seed: For tests alone; the bundle is then marked not publishable.
    """
    if charge.kind != "charge":
        raise ValueError("randomness needs a committed charge")
    from randomgen import AESCounter

    if insecure_seed is not None:
        return np.random.Generator(np.random.PCG64(insecure_seed))
    return np.random.Generator(AESCounter(key=secrets.randbits(128)))
