"""An order whose config was read and planned, so that neither is done twice."""

from __future__ import annotations

from dataclasses import dataclass

from configs.loading import Release, load_order
from configs.order import Order
from mechanisms.planning.plan import Plan


@dataclass(frozen=True)
class PlannedOrder:
    """What is asked of a run, with the release and the plan that it comes to.

    Attributes:
        order: The config, and what differs from it.
        release: The config, read and checked.
        plan: Every mechanism with its parameters.
    """

    order: Order
    release: Release
    plan: Plan

    @classmethod
    def of(cls, order: Order) -> PlannedOrder:
        """Read, check and plan an order; opens no data.

        Raises:
            ConfigError: The config is not in order.
            InfeasibleBudgetError: The knobs of a product do not fit its budget.
        """
        release = load_order(order)
        return cls(order, release, release.plan())
