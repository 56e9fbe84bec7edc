"""A sampler's whole law, by running it through every outcome of every choice that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from statpress.mechanisms.tables import exponential_ks, sample_resample


class Everything:
    """Runs a sampler through all of its choices, instead of drawing them.

    It stands in for ``choose_real``: a run follows a script of outcomes with their chances and
    then takes the first possible one, leaving the others to later runs.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        self.found: dict[Any, float] = {}
        self.scripts: list[tuple[tuple[int, float], ...]] = [()]
        self.taken: tuple[tuple[int, float], ...]
        with pytest.MonkeyPatch.context() as patch:
            for module in (exponential_ks, sample_resample):
                patch.setattr(module, "choose_real", self.choose)
            while self.scripts:
                self.script, self.taken, self.probability = [*self.scripts.pop()], (), 1.0
                outcome = run()
                self.found[outcome] = self.found.get(outcome, 0.0) + self.probability

    def choose(self, weights: Callable[[], Sequence[arb]], rng: np.random.Generator) -> int:
        depth = len(self.taken)
        if depth == len(self.script):
            with ctx.workprec(128):
                values = [float(weight.mid()) for weight in weights()]
            total = math.fsum(values)
            possible = [(i, v / total) for i, v in enumerate(values) if v > 1e-25 * total]
            self.script += possible[:1]
            self.scripts += [(*self.taken, other) for other in possible[1:]]
        at, share = self.script[depth]
        self.taken += ((at, share),)
        self.probability *= share
        return at
