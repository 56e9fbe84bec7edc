"""Made-up countries of places whose common borders wind."""

from __future__ import annotations

import numpy as np


def country(side: int, seed: int, points: int = 12) -> dict[str, list[list[tuple[float, float]]]]:
    """Places of a square grid whose common borders wind, each in rings that begin anywhere."""
    rng = np.random.default_rng(seed)
    along, k = np.linspace(0, 1, points + 1), np.arange(1, 90)
    waves = np.sin(np.pi * np.outer(k, along))

    def winding(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[float, float]]:
        line = np.outer(1 - along, start) + np.outer(along, end)
        winds = rng.uniform(-0.3, 0.3, len(k)) / k**1.2 @ waves
        apart = np.clip(winds, -0.2, 0.2) * waves[0]  # crosses no other line
        line[:, 1 if start[1] == end[1] else 0] += apart
        return [(float(x) / 2 + 5, float(y) / 3 + 47) for x, y in line]

    across = {(x, y): winding((x, y), (x + 1, y)) for x in range(side) for y in range(side + 1)}
    upwards = {(x, y): winding((x, y), (x, y + 1)) for x in range(side + 1) for y in range(side)}
    found = {}
    for x in range(side):
        for y in range(side):
            ring = across[x, y][:-1] + upwards[x + 1, y][:-1]
            ring += across[x, y + 1][:0:-1] + upwards[x, y][:0:-1]
            turn = int(rng.integers(len(ring)))
            ring = ring[turn:] + ring[:turn]
            ring = ring[:: rng.choice([-1, 1])]
            found[f"{x}-{y}"] = [[*ring, ring[0]]]
    return found
