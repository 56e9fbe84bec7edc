"""One draw of every kind that a test may see, as a line of text; also as a program."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import tempfile
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.tasks.ledger.entries import Entry
from statpress.tasks.private_zone.guards import new_run_id
from statpress.tasks.release import entropy


def drawn() -> str:
    """Noise, keys, ids, names and Python's own generators, each from where the product has it."""
    noise = entropy.generator(Entry(1, "draw", {"run_id": "a"}, "", ""), "wages")
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.basename(folder)
    return json.dumps(
        {
            "bits": noise.bytes(8).hex(),
            "laplace": noise.discrete_laplace(Fraction(40), 8).tolist(),
            "gaussian": noise.discrete_gaussian(Fraction(40), 8).tolist(),
            "made up": entropy.generator_of_made_up().bytes(8).hex(),
            "choice": entropy.key_of_choice(),
            "run": new_run_id(),
            "signing key": Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex(),
            "temporary name": name,
            "random": random.getrandbits(64),
            "numpy": int(np.random.default_rng().integers(2**62)),
        }
    )


def send_drawn(connection: multiprocessing.connection.Connection) -> None:
    connection.send(drawn())


if __name__ == "__main__":
    print(drawn())
