"""Records of synthetic microdata, in time against those of a smaller table."""

from __future__ import annotations

import time

import numpy as np
from coded import dependent_codes, domain_of, in_memory

from statpress.mechanisms.marginals.denoising import Model
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.synthesis import synthesise
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness


def test_the_cost_of_records_is_linear_in_their_number() -> None:
    """Against a table of an eighth of the records, in the same run."""
    sizes = (6, 5, 4, 7, 3, 5)
    taken = []
    for n in (20_000, 160_000):
        domain = domain_of(sizes)
        target = Target(epsilon=1.0, delta=1e-6, n_records=n, n_cells=2, domain=domain)
        made = Marginals.calibrate(MarginalsKnobs(), target)
        coded = in_memory(domain, dependent_codes(n, sizes, 1))
        release = made.release(coded, SeededRandomness(np.random.PCG64(1)))
        model = Model.of(release)
        times = []
        for _ in range(2):
            begun = time.process_time()
            synthesise(model, n, release.public_generator(), sweeps=3, floor=0.0)
            times.append(time.process_time() - begun)
        taken.append(min(times))
    assert taken[1] < 16 * taken[0]
