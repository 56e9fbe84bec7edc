"""What releases are charged under zero-concentrated privacy, before and now.

    python -m tests.benchmarks.concentrated_charges [--quick]

Every row has the rho of the whole loss, or of a guarantee that is only pure, which was charged
before; what is charged now, with the delta but for which it holds; and the same by other means:
for draws sums over the law of their number or of their net steps, for exponential mechanisms all
outputs and all neighbours of a small table. The last may be smaller, as the charge has to hold for
every table. Then follow the two products of ``configs/census2000.yaml``, and what a budget of rho
buys of them.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from statpress.configs.loading import load
from statpress.configs.order import Override
from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.losses import PureLoss
from statpress.mechanisms.accounting.truncated_draws import approximately_concentrated
from statpress.mechanisms.estimates.noisy_quantile import END_SHARE, quantile_loss
from statpress.mechanisms.tables.exponential_ks import ExponentialKS
from statpress.mechanisms.tables.sample_resample import SampleResample

SUPPORT = str(Path(__file__).parents[1] / "support")
SHIPPED = Path(__file__).parents[2] / "configs" / "census2000.yaml"
RHO = "0.1"


@dataclass(frozen=True)
class Charge:
    """What something was charged, is charged, and what it is by other means."""

    name: str
    before: float
    rho: float
    delta: float
    other_rho: float
    other_delta: float


class Drawn(NamedTuple):
    """Draws with a pseudocount."""

    pseudocount: str
    records: int
    n_records: int
    n_cells: int
    delta: float

    @property
    def lattice(self) -> DrawsLoss:
        k = Fraction(self.pseudocount)
        total = self.n_records + k * self.n_cells
        return DrawsLoss(up=(1 + k) / total, down=k / total, draws=self.records)


DRAWS = [
    Drawn("5", 3000, 3000, 40, 1e-8),
    Drawn("19.5", 29_501, 29_501, 350, 6e-9),
    Drawn("3.373", 10_000, 29_501, 71_400, 1e-6),
    Drawn("1000", 38_459_154, 10**6, 1000, 1e-8),
]
EPSILONS = ("0.5", "1", "2", "4")


def of_draws(drawn: Drawn) -> Charge:
    """The charge of draws."""
    name = f"bootstrap, k = {drawn.pseudocount}, m = {drawn.records}, {drawn.n_cells} cells"
    return _of_lattice(name, drawn.lattice, drawn.delta)


def _of_lattice(name: str, lattice: DrawsLoss, delta: float) -> Charge:
    from rho_references import reference_of

    found = approximately_concentrated(lattice, delta)
    assert found is not None
    other = reference_of(lattice, found)
    before = lattice.rho.upper
    return Charge(name, before, found.rho.upper, found.delta, *other)


def of_exponentials(epsilon: str) -> Iterator[Charge]:
    """The charges of the exponential mechanisms at one epsilon."""
    from rho_references import choice_laws, enumerated_rho, release_law

    exact = Fraction(epsilon)
    per_record = Decimal(epsilon)
    before = PureLoss(exact).rho.upper
    for mechanism, sizes in (
        (ExponentialKS(epsilon_per_record=per_record, records=3), (4, 3)),
        (
            SampleResample(epsilon_per_record=per_record, records=2, candidates=3, distance="ks"),
            (3, 3),
        ),
    ):
        loss = mechanism.loss(n_records=sizes[0], n_cells=sizes[1])
        other = enumerated_rho(functools.partial(release_law, mechanism), *sizes)
        yield Charge(f"{mechanism.name}, epsilon {epsilon}", before, loss.rho.upper, 0, other, 0)
    end, rest = (float(exact * share) for share in (END_SHARE, (1 - 2 * END_SHARE) / 2))
    rates = (rest, rest), (0.7 * end, 0.3 * end), (0.3 * end, 0.7 * end)
    other = enumerated_rho(functools.partial(choice_laws, (3, 1, 5), rates), 6, 4)
    third = 3 * PureLoss(exact / 3).rho.upper
    rho = quantile_loss(exact).rho.upper
    yield Charge(f"noisy_quantile, epsilon {epsilon}", third, rho, 0, other, 0)


def of_shipped(rho: str | None = None) -> list[Charge]:
    """The charges of the products of the shipped config, or of a budget of rho in its place.

    All of the budget is theirs: its checks are taken to be exact.
    """
    budget = {"rho": Decimal(rho or 1), "delta": Decimal("1e-8")}
    overrides = [Override("gate", None, "--set gate")]
    overrides += [Override("budget", budget, "--set budget")] if rho else []
    found = []
    for product in load(SHIPPED, overrides).plan().products:
        assert isinstance(product.loss, DrawsLoss)
        name = f"{product.name}, k = {float(product.mechanism.pseudocount):g}"
        charge = _of_lattice(name, product.loss, float(product.rho_delta))
        assert charge.rho <= float(product.rho) * (1 + 1e-11)
        found.append(charge)
    return found


def line(charge: Charge) -> str:
    """A row of the table."""
    delta = "0" if not charge.delta else f"{charge.delta:.3g}, by sums {charge.other_delta:.3g}"
    return (
        f"{charge.name:52} {charge.before:10.5g} {charge.rho:10.5g} {charge.other_rho:10.5g}"
        f" {charge.before / charge.rho:7.1f}  {delta}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one epsilon, two settings of draws")
    quick = parser.parse_args(arguments).quick
    sys.path.insert(0, SUPPORT)
    print(f"{'rho of':52} {'before':>10} {'now':>10} {'otherwise':>10} {'less':>7}  but for delta")
    for drawn in DRAWS[:2] if quick else DRAWS:
        print(line(of_draws(drawn)))
    for epsilon in EPSILONS[1:2] if quick else EPSILONS:
        for charge in of_exponentials(epsilon):
            print(line(charge))
    for rho in (None, RHO):
        charges = of_shipped(rho)
        print(f"\nconfigs/census2000.yaml, {f'budget of rho {rho}' if rho else 'as it is'}")
        for charge in charges:
            print(line(charge))
        sums = [sum(getattr(c, key) for c in charges) for key in ("before", "rho", "delta")]
        print("both products: rho {:.5g} before, {:.5g} now but for {:.3g}".format(*sums))


if __name__ == "__main__":
    main()
