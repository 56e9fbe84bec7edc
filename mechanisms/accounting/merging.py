"""Merges losses of equal kinds into one loss, where that is exact.

Gaussian losses add their mu squared (Dong, Roth and Su 2022, doi 10.1111/rssb.12454, Corollary
3.3), lattice losses of one pair their draws, discrete losses of one noise their cells, bounds on
rho, and the normal laws that go with them, their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from mechanisms.accounting.analytic import ConcentratedLoss, GaussianLoss
from mechanisms.accounting.draws.lattice import LatticeLoss
from mechanisms.accounting.draws_loss import DrawsLoss
from mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss

_MOST_CELLS = 16  # of discrete Gaussian noise, whose constants cost the square


def counted(parts: Iterable[PrivacyLoss]) -> dict[PrivacyLoss, int]:
    """How often each part occurs; the same object is not hashed twice."""
    same: dict[int, tuple[PrivacyLoss, int]] = {}
    for part in parts:
        same[id(part)] = part, same.get(id(part), (part, 0))[1] + 1
    counts: dict[PrivacyLoss, int] = {}
    for part, times in same.values():
        counts[part] = counts.get(part, 0) + times
    return counts


def merged(counts: dict[PrivacyLoss, int]) -> tuple[PrivacyLoss, ...]:
    """Equal kinds as one loss, where that is exact; parts that cost nothing left out."""
    square = Fraction(0)
    draws: dict[tuple[Fraction, Fraction], int] = {}
    laplace: dict[tuple[Fraction, int], int] = {}
    noise: dict[tuple[Fraction, int], int] = {}
    parts: list[PrivacyLoss] = []
    bounded: list[ConcentratedLoss] = []
    for part, times in counts.items():
        if part.delta(0.0).upper == 0:
            continue
        if isinstance(part, GaussianLoss):
            square += times * part.mu_squared
        elif isinstance(part, DrawsLoss):
            pair = part.lattice.up, part.lattice.down
            draws[pair] = draws.get(pair, 0) + times * part.lattice.draws
        elif isinstance(part, DiscreteLaplaceLoss):
            kind = part.scale, part.shift
            laplace[kind] = laplace.get(kind, 0) + times * part.cells
        elif isinstance(part, ConcentratedLoss):
            bounded.extend([part] * times)
        elif isinstance(part, DiscreteGaussianLoss):
            kind = part.sigma_squared, part.shift
            cells = noise.get(kind, 0) + times * part.cells
            if cells <= _MOST_CELLS:
                noise[kind] = cells
            else:
                parts.extend([part] * times)
        else:
            parts.extend([part] * times)
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if root**2 == square:
        parts.append(GaussianLoss(root))
    else:
        parts.append(GaussianLoss(Fraction(0), square))
    parts += [DrawsLoss(LatticeLoss(up=a, down=b, draws=m)) for (a, b), m in draws.items()]
    if bounded:
        # Where the known pairs do not merge into one, the worst of them is a lower bound.
        known = merged(counted(part.attained for part in bounded))
        worst = max(known, key=lambda part: part.rho.upper)
        rho = sum((part.bound for part in bounded), Fraction(0))
        normal, cells = Fraction(0), 0
        if all(part.cells for part in bounded):
            normal = sum((part.mu_squared for part in bounded), Fraction(0))
            cells = sum(part.cells for part in bounded)
        parts.append(ConcentratedLoss(rho, worst, normal, cells))
    parts += [DiscreteLaplaceLoss(a, b, cells) for (a, b), cells in laplace.items()]
    parts += [DiscreteGaussianLoss(a, b, cells) for (a, b), cells in noise.items()]
    free = GaussianLoss(Fraction(0))
    return tuple(part for part in parts if part != free) or (free,)
