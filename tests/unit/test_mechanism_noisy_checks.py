"""Noisy checks: the loss against every move of a unit, the margin, the description."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.accounting.losses import ConcentratedLoss
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.charges import described_loss
from statpress.mechanisms.tables.noisy_checks import (
    MOST_REFUSED,
    NoisyChecks,
    NoisyChecksKnobs,
    Tolerance,
)

FRAME = {"n_records": 12, "n_cells": 4}
EPSILONS = (0.0, 0.3, 1.0, 2.5)


def moves(
    limited: tuple[int, ...], zeros: bool, unit_records: int, adjacency: Adjacency
) -> set[tuple[int, ...]]:
    """By how much a unit moves the counts: of columns with so many fates, and of zeros."""
    replaced = adjacency is Adjacency.REPLACE_ONE
    records = range(unit_records + 1)

    def of_column(fates: int) -> set[tuple[int, ...]]:
        held = [v for v in itertools.product(records, repeat=fates) if sum(v) <= unit_records]
        return {
            tuple(b - a for a, b in zip(*two, strict=True))
            for two in itertools.product(held if replaced else [(0,) * fates], held)
        }

    parts: list[Any] = [of_column(fates) for fates in limited]
    if zeros:
        parts.append({(d,) for d in range(-unit_records * replaced, unit_records + 1)})
    return {tuple(itertools.chain(*chosen)) for chosen in itertools.product(*parts)}


def exact_delta(move: tuple[int, ...], scale: float, epsilon: float) -> float:
    """Of discrete Gaussian noise moved by so much: the loss is linear in the sum of s_i z_i."""
    reach = range(-math.ceil(9 * scale), math.ceil(9 * scale) + 1)
    mass = np.exp([-(z**2) / (2 * scale**2) for z in reach])
    mass /= mass.sum()
    law = {0: 1.0}
    for step in filter(None, move):
        moved: defaultdict[int, float] = defaultdict(float)
        for at, p in law.items():
            for z, q in zip(reach, mass, strict=True):
                moved[at + step * z] += p * q
        law = moved
    squares = sum(step**2 for step in move)
    losses = ((2 * at + squares) / (2 * scale**2) for at in law)
    return sum(
        p * max(0.0, -math.expm1(epsilon - loss))
        for p, loss in zip(law.values(), losses, strict=True)
    )


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("scale", [1.5, 4.0])
@pytest.mark.parametrize(
    ("limited", "zeros", "unit_records"),
    [((3,), True, 1), ((2, 1), False, 1), ((1,), True, 2), ((3,), False, 2), ((2, 2), False, 1)],
)
def test_no_move_of_a_unit_costs_more_than_is_claimed(
    limited: tuple[int, ...], zeros: bool, unit_records: int, scale: float, adjacency: Adjacency
) -> None:
    knobs = NoisyChecksKnobs.of(limited, zeros=zeros, adjacency=adjacency)
    moved, checks = knobs.moved, NoisyChecks(Fraction(scale), knobs.counts, knobs.moved)
    loss = checks.loss(**FRAME, unit_records=unit_records)
    found = {
        tuple(sorted(map(abs, move))) for move in moves(limited, zeros, unit_records, adjacency)
    }
    assert max(sum(s**2 for s in move) for move in found) == moved * unit_records**2
    assert loss.rho.upper == pytest.approx(moved * unit_records**2 / (2 * scale**2))
    worst = {e: max(exact_delta(move, scale, e) for move in found) for e in EPSILONS}
    for epsilon, delta in worst.items():
        assert delta <= loss.delta(epsilon).upper * (1 + 1e-9) + 1e-15
    for epsilon, delta in worst.items():  # it is attained
        assert delta == pytest.approx(loss.delta(epsilon).upper, rel=1e-6, abs=1e-14)
    if moved > 1 and scale == 4.0:
        too_few = dataclasses.replace(checks, moved=moved - 1)  # twin: a fate forgotten
        twin = too_few.loss(**FRAME, unit_records=unit_records)
        assert any(delta > twin.delta(epsilon).upper for epsilon, delta in worst.items())


def test_its_margin_lets_a_source_pass_that_holds_what_is_allowed() -> None:
    checks = NoisyChecks(Fraction(40), 30, 20)

    class Noise:
        def discrete_gaussian(self, sigma: Fraction, size: int) -> Any:
            return np.rint(np.random.default_rng(5).normal(0, float(sigma), size)).astype(np.int64)

    values = np.arange(-2000, 2001)
    probabilities = np.exp(-(values**2) / (2 * 40**2))
    probabilities /= probabilities.sum()

    def refused(margin: int) -> float:
        """Probability that one of 30 discrete Gaussians is above a margin."""
        return float(-np.expm1(30 * np.log1p(-probabilities[values > margin].sum())))

    assert 0.8 * MOST_REFUSED < refused(checks.margin) <= MOST_REFUSED
    half = dataclasses.replace(checks, scale=Fraction(20)).margin  # twin: half the margin
    assert refused(half) > 10 * MOST_REFUSED
    drawn: Any = Noise()
    released = checks.release(np.full(30, 7, np.int64), drawn)
    assert released.dtype == np.int64 and len(set(released.tolist())) > 10
    with pytest.raises(ValueError, match="as many counts"):
        checks.release(np.zeros(29, np.int64), drawn)


@pytest.mark.parametrize(
    "budget", [{"epsilon": 0.1, "delta": 1e-8}, {"rho": 1e-4}, {"renyi": (20, 0.01)}]
)
def test_it_meets_a_budget_and_its_description_gives_its_loss_back(budget: Any) -> None:
    target = Target(n_records=30_000, n_cells=10**30, **budget)
    made = NoisyChecks.calibrate(NoisyChecksKnobs(counts=31, moved=25), target)
    loss = made.loss(**target.frame)
    assert target.allows(loss) and not isinstance(loss, ConcentratedLoss)
    finer = dataclasses.replace(made, scale=made.scale * Fraction(99, 100))
    assert not target.allows(finer.loss(**target.frame))
    described = made.describe() | {
        "product": "checks of the input", "n_records": 30_000, "n_cells": str(10**30),
        "unit_records": 1,
    }  # fmt: skip
    assert described_loss(described).rho == loss.rho
    error = made.expected_error(n_records=30_000, n_cells=10**30)
    assert isinstance(error, Tolerance) and f"{made.margin:,}" in error.summary()


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(RecordsError):
        NoisyChecks(Fraction(4), 3, 4)
    with pytest.raises(RecordsError):
        NoisyChecks(Fraction(4), 3, 0)


def test_the_loss_of_many_counts_is_that_of_sums_term_by_term() -> None:
    """The weights that are alike as one ball, against those of every residue."""
    from flint import ctx

    from statpress.mechanisms.accounting import noise_losses

    with ctx.workprec(128):
        for square, cells in ((Fraction(900), 6), (Fraction(10_001, 3), 9)):
            (one,) = noise_losses.residue_weights(square, cells)
            with ctx.workprec(4096):  # where no weights are alike
                every = noise_losses.residue_weights(square, cells)
            assert len(every) == cells and all(one.overlaps(each) for each in every)
            assert one.rel_accuracy_bits() > 100


def test_little_noise_on_many_counts_is_charged_by_its_rho() -> None:
    checks = NoisyChecks(Fraction(10), 60, 40)
    loss = checks.loss(**FRAME)
    assert isinstance(loss, ConcentratedLoss) and loss.rho.upper == pytest.approx(0.2)
    exact = dataclasses.replace(checks, moved=8).loss(**FRAME)
    assert not isinstance(exact, ConcentratedLoss)
    assert exact.delta(0.5).upper <= loss.delta(0.5).upper
