"""The policies an account can be kept under, each a filter for adaptive composition.

A filter refuses a charge that would carry the sum of all charges past a limit. Both
stay valid when each config depends on what earlier releases showed:

* ``basic``: epsilons add up and deltas add up (Rogers, Roth, Ullman and Vadhan 2016, arXiv
  1605.08294, "Privacy odometers and filters");
* ``zcdp``: the rho of zero-concentrated differential privacy adds up, and so does the delta but
  for which it holds, of those mechanisms that have no rho, or a larger one, without (Feldman and
  Zrnic 2021, arXiv 2008.11193, "Individual privacy accounting via a Renyi filter"; for the
  approximate form Whitehouse, Ramdas,
  Rogers and Wu 2023, arXiv 2203.05481, "Fully adaptive composition in differential privacy",
  Theorem 1).

They hold for a limit that is fixed beforehand. A limit that is raised, or a policy that
is changed, after looking at releases is a new promise; the chain keeps its reason.

Every charge states its loss in the measures of every policy, so that an account can
be moved from one to the other and nothing has to be guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechanisms.errors import LedgerError
from tasks.ledger_rules.amounts import Loss

POLICIES = {"basic": ("epsilon", "delta"), "zcdp": ("rho", "rho_delta")}


def measures_of(policy: object) -> tuple[str, ...]:
    """The measures that a policy limits.

    Raises:
        LedgerError: The policy is not known.
    """
    measures = POLICIES.get(policy) if isinstance(policy, str) else None
    if measures is None:
        raise LedgerError(
            f"The policy {str(policy)[:60]!r} is not known.",
            where="policy",
            next_step="Give 'basic' (epsilons and deltas add up) or 'zcdp' (rhos add up).",
        )
    return measures


def limit_of(body: Mapping[str, Any]) -> Loss:
    """The limit that a registration or an amendment sets."""
    return Loss.of(body, measures_of(body["policy"]))
