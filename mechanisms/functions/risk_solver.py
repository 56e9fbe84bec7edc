"""Minimisers of a regularised risk over the span of some points, to a proven distance.

    J(w) = sum over rows of weight * L(label, f(row)) + |w|^2 / 2,  f = <w, phi>

with hinge, logistic or squared loss. J is strongly convex with modulus 1, which proves how
near a candidate w is to the minimiser w*. With w = sum of b phi(row):

* smooth losses: |w - w*| <= |gradient| = |sum of g phi|, g = b + weight L', and that is at
  most kappa sum |g|, kappa^2 = sup K(x, x); Newton's method brings it down to rounding;
* hinge loss: |w - w*|^2 <= 2 (J(w) - D(b)) for any b = label * a, 0 <= a <= weight, where the
  duality gap is a sum of non-negative terms, (weight - a) (1 - label f) where that margin is
  below 1 and a (label f - 1) elsewhere; an interior point method finds a.

The search uses a factor K ~ A A^T of low rank, found by Cholesky's method with pivots; the
proof uses K itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import InternalError

Floats = NDArray[np.float64]
RiskLoss = Literal["hinge", "logistic", "squared"]

_MOST_STEPS = 200
_RANK_TOLERANCE = 1e-15  # of the trace of what the factor leaves out


@dataclass(frozen=True, eq=False)
class Rows:
    """The points of a risk; private.

    Attributes:
        gram: float64[m, m], K between the rows.
        labels: float64[m]; 1 or -1 for the hinge and the logistic loss.
        weights: float64[m], above 0.
    """

    gram: Floats
    labels: Floats
    weights: Floats


def minimiser(rows: Rows, loss: RiskLoss, tolerance: float) -> Floats:
    """Coefficients b of w = sum of b phi(row).

    Args:
        rows: The points.
        loss: max(0, 1 - l f), log(1 + exp(-l f)) or (f - l)^2 / 2.
        tolerance: On the duality gap for the hinge loss, on sum |g| for the others.

    Returns:
        float64[m].

    Raises:
        InternalError: The tolerance is not met, which is below what rounding allows.
    """
    if not len(rows.weights):
        return np.empty(0)
    factor = _factor(rows.gram)
    try:
        if loss == "hinge":
            found = _interior(rows, factor, tolerance)
        else:
            found = _newton(rows, factor, loss, tolerance)
    except np.linalg.LinAlgError:
        found = None
    if found is None:
        raise InternalError("A learner did not reach the accuracy that its guarantee needs.")
    return found


def duality_gap(rows: Rows, dual: Floats) -> float:
    """J(w) - D(a) for the hinge loss at 0 <= a <= weight: float64[m]."""
    slack = 1 - rows.labels * (rows.gram @ (rows.labels * dual))
    return float(np.where(slack > 0, (rows.weights - dual) * slack, -dual * slack).sum())


def slopes(rows: Rows, loss: RiskLoss, values: Floats) -> tuple[Floats, Floats]:
    """Weight L' and weight L'' of a smooth loss at f: two float64[m]."""
    if loss == "squared":
        return rows.weights * (values - rows.labels), rows.weights
    share = 1 / (1 + np.exp(np.clip(rows.labels * values, -700, 700)))
    return -rows.weights * rows.labels * share, rows.weights * share * (1 - share)


def _factor(gram: Floats) -> Floats:
    """A of A A^T ~ gram: float64[m, rank]."""
    from scipy.linalg.lapack import dpstrf

    size = len(gram)
    tolerance = _RANK_TOLERANCE * float(np.trace(gram))
    lower, pivots, rank, _ = dpstrf(gram, lower=1, tol=tolerance)
    found = np.zeros((size, rank))
    found[pivots - 1] = np.tril(lower)[:, :rank]
    return found


def _newton(rows: Rows, factor: Floats, loss: RiskLoss, tolerance: float) -> Floats | None:
    """Newton's method, whose step is halved while it does not lower the risk."""
    from scipy.linalg import cho_factor, cho_solve

    def risk(b: Floats) -> float:
        f = rows.gram @ b
        if loss == "squared":
            losses = (f - rows.labels) ** 2 / 2
        else:
            losses = np.logaddexp(0, -rows.labels * f)
        return float(rows.weights @ losses + b @ f / 2)

    b = np.zeros(len(rows.weights))
    for _ in range(_MOST_STEPS):
        slope, curve = slopes(rows, loss, rows.gram @ b)
        gradient = b + slope
        if np.abs(gradient).sum() <= tolerance:
            return b
        inner = np.eye(factor.shape[1]) + factor.T @ (curve[:, None] * factor)
        solved = cho_solve(cho_factor(inner), factor.T @ gradient)
        step = gradient - curve * (factor @ solved)
        share, before = 1.0, risk(b)
        while share > 2**-30 and risk(b - share * step) > before + 1e-15 * abs(before):
            share /= 2
        b = b - share * step
    return None


def _interior(rows: Rows, factor: Floats, tolerance: float) -> Floats | None:
    """A primal-dual interior point method for the dual of the hinge loss."""
    from scipy.linalg import cho_factor, cho_solve

    top, signed = rows.weights, rows.labels[:, None] * factor
    a = top / 2
    low, high = np.ones_like(a), np.ones_like(a)  # multipliers of a >= 0 and of a <= top
    for _ in range(_MOST_STEPS):
        if duality_gap(rows, a) <= tolerance:
            return rows.labels * a
        room = top - a
        centre = 0.1 * float(low @ a + high @ room) / (2 * len(a))
        diagonal = low / a + high / room
        right = 1 - signed @ (signed.T @ a) + centre / a - centre / room
        scaled = signed / diagonal[:, None]
        inner = np.eye(signed.shape[1]) + signed.T @ scaled
        step = right / diagonal
        step = step - scaled @ cho_solve(cho_factor(inner), signed.T @ step)
        low_step = centre / a - low - low / a * step
        high_step = centre / room - high + high / room * step
        share = 1.0
        for now, move in ((a, step), (room, -step), (low, low_step), (high, high_step)):
            falls = move < 0
            if falls.any():
                share = min(share, 0.995 * float((now[falls] / -move[falls]).min()))
        a = np.clip(a + share * step, 0, top)
        a = np.clip(a, top * 1e-300, top * (1 - 2**-52))
        low, high = low + share * low_step, high + share * high_step
    return None
