"""Whether integers follow the discrete Laplace law, by Pearson's test."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats


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
