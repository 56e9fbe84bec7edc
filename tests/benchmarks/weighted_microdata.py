"""Errors of weighted pairs in microdata by marginals: weights as a section, as a column, ignored.

    python -m tests.benchmarks.weighted_microdata [--seeds 4] [--epsilons 0.3 1 3]

24,061 households (``tests/support/arc_households.py``, which is downloaded), delta = 1e-6,
replace-one. The error is the mean total variation of the weighted shares of all pairs of the seven
columns besides the weight. With a class column only, records count as the middle of their class;
with a section ``weight`` they are raked to the number of households by county part and vehicles, or
by each of the seven columns. What is left where everything is measured without noise is in the last
row.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.survey_weights import SurveyWeight, class_values
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

DELTA, CALIBRATED, EXACT = 1e-6, ("PUMA", "veh"), 1000.0


def errors(epsilon: float, seed: int) -> dict[str, float]:
    """The errors of one seed."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    import arc_households as arc
    from coded import in_memory

    domain, frame = arc.domain(), arc.households()
    codes, exact = arc.coded(domain), frame[arc.WEIGHT].to_numpy(np.float64)
    values = class_values(domain, arc.WEIGHT)
    every = {
        name: tuple(np.bincount(codes[:, place], weights=exact))
        for place, name in enumerate(domain.names[:-1])
    }
    totals = {name: every[name] for name in CALIBRATED}
    found = {}
    for label, weight in (
        ("class column", None),
        ("weight", SurveyWeight(column=arc.WEIGHT)),
        ("weight, raked", SurveyWeight(column=arc.WEIGHT, totals=totals)),
        ("weight, raked by all", SurveyWeight(column=arc.WEIGHT, totals=every)),
    ):
        target = Target(
            epsilon=epsilon, delta=DELTA, n_records=len(codes), n_cells=2, domain=domain
        )
        made = Marginals.calibrate(MarginalsKnobs(copies=1, weight=weight), target)
        drawn = made.release(in_memory(domain, codes), SeededRandomness(np.random.PCG64(seed)))
        microdata = made.postprocess(drawn)
        records = np.stack(microdata.codes, axis=1)
        own = values[records[:, -1]] if weight is None else microdata.weights(microdata.codes)
        found[label] = arc.weighted_pair_error(domain, records, own)
        if weight is None:
            ones = np.ones(len(records))
            found["weights ignored"] = arc.weighted_pair_error(domain, records, ones)
    return found


def main() -> None:
    """Print a row for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    options = parser.parse_args()
    for epsilon in (*options.epsilons, EXACT):
        rows = [errors(epsilon, seed) for seed in range(options.seeds)]
        figures = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        text = ", ".join(f"{key} {each.mean():.4f}" for key, each in figures.items())
        print(f"epsilon {epsilon:g}: {text}", flush=True)


if __name__ == "__main__":
    main()
