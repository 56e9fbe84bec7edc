"""What the coverage tables simulate, and a row of what is found."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.interval_populations import Law, populations


@dataclass(frozen=True)
class Setting:
    """What is simulated: a statistic of a population, from n records at mu, so many times."""

    statistic: str
    population: str
    n: int
    mu: float
    replicates: int
    seed: int = 0

    @property
    def law(self) -> Law:
        """Of one column."""
        return populations()[self.population]

    @property
    def rng(self) -> np.random.Generator:
        """Every setting has its own."""
        words = f"{self.statistic} {self.population} {self.n} {self.mu}".encode()
        return np.random.default_rng([self.seed, zlib.crc32(words)])


@dataclass(frozen=True)
class Found:
    """What a simulation found at one level.

    Attributes:
        setting: What was simulated.
        level: Confidence level.
        inference: How the coverage is published to be known.
        covered: Share of the replicates whose interval holds the truth.
        bounded: Share of those whose set is an interval within what is possible.
        width: Median.
        oracle: The same of the oracle.
    """

    setting: Setting
    level: float
    inference: str
    covered: float
    bounded: float
    width: float
    oracle: float

    def row(self) -> str:
        """As printed."""
        made = self.setting
        return (
            f"{made.statistic:18}{made.population:17}{made.n:7}{made.mu:5.1f}{self.level:6.2f}  "
            f"{self.inference:12}{self.covered:8.4f}{self.bounded:9.3f}{self.width:11.4g}"
            f"{self.oracle:11.4g}{self.width / self.oracle:8.2f}"
        )


HEADING = (
    "statistic         population             n   mu level  inference    covered  bounded"
    "      width     oracle   ratio"
)
