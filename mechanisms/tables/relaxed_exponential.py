"""The bootstrapping mechanism as an exponential mechanism whose score is relaxed.

Source: "Delving into Bootstrapping for Differential Privacy", Definition 2, Theorems 4 and 5
and Lemma 2. Let p be the smoothed distribution of the data, p_j = (h_j + k)/N, and f = z/m
the frequencies of m draws. A given sequence of draws with counts z has probability

    prod p_j^(z_j) = exp(m u),  u(h, z) = sum of f_j log p_j = -(H(f) + KL(f || p)),

with H the entropy and KL the divergence: an exponential mechanism at rate m over all
sequences. Its weights exp(m u) add up to (sum of p_j)^m = 1 for every dataset. So nothing has to be
divided by, which has two consequences that the paper leaves out.

* *Pure.* u moves by at most D = log((c + k)/k) between neighbours, at z all in one cell. The
  general theorem for exponential mechanisms pays twice, 2 m D, as the sum of the weights could
  move too. Here it cannot: the loss is m D, Theorem 8 of Wasserman and Zhou (2010, doi
  10.1198/jasa.2009.tm08651), and what the accountant says at delta 0.
* *Relaxed.* Over the typical sequences, |f_j - p_j| <= gamma for all j, u moves by at most
  D_gamma = (c/N + 2 gamma) log((c + k)/k) (the paper's equation 43 at its least x_1 and x_2;
  the appendix has c = 1). If others have probability at most delta, the release is
  (m D_gamma, delta)-DP, where Theorem 5 states m = epsilon/(2 D_gamma), hence 2 m D_gamma.

Both are bounds that the exact accountant (mechanisms.accounting.lattice) undercuts; none is
charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from flint import arb

from mechanisms.accounting.enclosures import Bounds, ball, enclosed


def smoothed(counts: Sequence[int], pseudocount: Fraction) -> list[Fraction]:
    """The distribution p of one draw, exactly.

    Args:
        counts: h of all cells.
        pseudocount: k > 0.
    """
    total = sum(counts) + pseudocount * len(counts)
    return [(count + pseudocount) / total for count in counts]


def sequence_probability(p: Sequence[Fraction], drawn: Sequence[int]) -> Fraction:
    """Probability of one sequence of draws with these counts z, exactly."""
    result = Fraction(1)
    for share, times in zip(p, drawn, strict=True):
        result *= share**times
    return result


def entropy(drawn: Sequence[int]) -> arb:
    """Ball around H(f) of the frequencies of z, at the precision of the moment."""
    total = sum(drawn)
    shares = [Fraction(times, total) for times in drawn if times]
    return -sum((ball(share) * ball(share).log() for share in shares), arb(0))


def divergence(drawn: Sequence[int], p: Sequence[Fraction]) -> arb:
    """Ball around KL(f || p), at the precision of the moment."""
    total = sum(drawn)
    pairs = [(Fraction(t, total), q) for t, q in zip(drawn, p, strict=True) if t]
    return sum((ball(share) * ball(share / q).log() for share, q in pairs), arb(0))


def relaxed_score(p: Sequence[Fraction], drawn: Sequence[int]) -> arb:
    """Ball around the theorem's utility u = -(H(f) + KL(f || p))."""
    return -(entropy(drawn) + divergence(drawn, p))


def is_typical(p: Sequence[Fraction], drawn: Sequence[int], gamma: Fraction) -> bool:
    """Whether all frequencies are within gamma of the probabilities."""
    total = sum(drawn)
    return all(abs(Fraction(t, total) - q) <= gamma for t, q in zip(drawn, p, strict=True))


def score_sensitivity(pseudocount: Fraction, unit_records: int = 1) -> Bounds:
    """Enclosure of D, the most that u moves between neighbours, over all sequences."""
    ratio = (unit_records + pseudocount) / pseudocount
    return enclosed(lambda: ball(ratio).log())


def typical_sensitivity(
    pseudocount: Fraction,
    gamma: Fraction,
    *,
    n_records: int,
    n_cells: int,
    unit_records: int = 1,
) -> Bounds:
    """Enclosure of D_gamma, the theorem's bound on the same over typical sequences.

    It holds for a unit whose records move between two cells, as its c records do in the
    worst pair (mechanisms.tables.bootstrap).

    Args:
        pseudocount: k > 0.
        gamma: Width of the typical set, at least 0.
        n_records: n.
        n_cells: Number of cells.
        unit_records: c.
    """
    ratio = (unit_records + pseudocount) / pseudocount
    width = unit_records / (n_records + pseudocount * n_cells) + 2 * gamma
    return enclosed(lambda: ball(width) * ball(ratio).log())
