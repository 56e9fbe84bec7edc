"""``PRIVACY.md``: a bundle's privacy statement for a reviewer, made from ``privacy.json`` only.

What the statement means is in the templates ``PRIVACY.md.jinja`` and ``privacy_words.md.jinja``, of
which ``report.html`` is made too; the figures are here. A figure that is rounded is rounded against
the release: what an attack gains upwards, what it misses downwards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from statpress.mechanisms.accounting.trade_off import limit_advantage
from statpress.mechanisms.domain.domain import Adjacency, Size
from statpress.tasks.pages.numbers import amount, how_many, per_hundred, short
from statpress.tasks.pages.rendering import code_span, markdown

NAME = "PRIVACY.md"
EXPLANATIONS = {
    "epsilon": "What the whole release costs at its delta, all products composed and rounded up: "
    "the amount that the ledger is charged.",
    "products.epsilon": "What this product would cost if it were released alone, at its own share "
    "of delta; the products together cost what the release does, mostly less than the sum.",
    "epsilon_lower, epsilon_upper": "The exact epsilon at that delta is proven to lie between "
    "these two; what is charged is never below it, and may be a little above.",
}
"""The epsilons of a statement, a sentence each."""
MEASURES = {
    "epsilon": "ε",
    "delta": "δ",
    "rho": "ρ",
    "rho_delta": "δ of ρ",
}
"""The measures of a ledger as they are written."""


def write_privacy_page(folder: Path) -> Path:
    """Write the page of a bundle, from its ``privacy.json``."""
    stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
    path = folder / NAME
    path.write_text(privacy_page(stated), encoding="utf-8")
    return path


def privacy_page(stated: Mapping[str, Any]) -> str:
    """The page as Markdown; a statement that is not charged yet has no account."""
    return markdown("PRIVACY.md.jinja", p=Protection(stated))


def right_guesses(advantage: Decimal | float) -> str:
    """Of a hundred guesses between two equally likely candidates, how many are right at most.

    The best guess is right with probability (1 + V)/2, V the largest gap between the rates of true
    and of false positives.
    """
    exact = advantage if isinstance(advantage, Decimal) else Decimal(repr(advantage))
    return per_hundred((1 + min(exact, Decimal(1))) / 2)


@dataclass(frozen=True)
class Protection:
    """The figures of a privacy statement, as pages show them.

    Attributes:
        stated: ``privacy.json``, of any version.
    """

    stated: Mapping[str, Any]

    @property
    def column(self) -> str:
        """The name of the column that names the unit; empty if the unit is a record."""
        unit = str(self.stated["unit"])
        return unit.removeprefix("column ") if unit.startswith("column ") else ""

    @property
    def added(self) -> bool:
        """Whether a unit is there in one of two neighbours only, so that the size is private."""
        return bool(self.stated["adjacency"] == Adjacency.ADD_REMOVE)

    @property
    def subject(self) -> str:
        """What a person loses at most, without marks, as the object of a sentence."""
        return f"the records of one {self.column}" if self.column else "one record"

    @property
    def unit_in_words(self) -> str:
        """The unit as Markdown."""
        return self._as_code(self.stated["unit_in_words"])

    @property
    def not_covered(self) -> list[str]:
        """Sentences of Markdown; the first version had one text."""
        sentences = self.stated.get("not_covered") or [self.stated["outside_the_guarantee"]]
        return [self._as_code(text) for text in sentences]

    def _as_code(self, text: str) -> str:
        """A sentence of the statement in which the column is code, whatever its name."""
        return text.replace(f"`{self.column}`", code_span(self.column)) if self.column else text

    @property
    def size(self) -> str:
        """The size of the source: the public one, or what the noisy counts say."""
        if "estimated_records" not in self.stated:
            return self.planned_size
        number, each = self.stated["estimated_records"], self.stated["unit_records"]
        return how_many(-(-number // each), number, Size.ROUGH)

    @property
    def planned_size(self) -> str:
        """The size that the release was planned for."""
        stated = self.stated
        return how_many(stated["n_units"], stated["n_records"], stated.get("size", Size.DECLARED))

    @property
    def right(self) -> str:
        """Of a hundred guesses how many are right at most."""
        return right_guesses(self.stated["attack_advantage"])

    @property
    def right_of_limit(self) -> str:
        """Of a hundred how many would be if the account's whole limit were spent."""
        return right_guesses(limit_advantage(self.stated["lifetime"]["limit"]))

    @property
    def caught(self) -> str:
        """How many of a hundred are found at most, at 5 false alarms."""
        return self.caught_by(self.stated)

    def caught_by(self, cost: Mapping[str, Any]) -> str:
        """How many of a hundred a product by itself lets be found at most, at 5 false alarms."""
        (missed,) = [
            point["false_negative_rate_at_least"]
            for point in cost["trade_off"]
            if point["false_positive_rate"] == 0.05
        ]
        return per_hundred(1 - Decimal(repr(missed)))

    @property
    def follows_others(self) -> bool:
        """Whether releases of the dataset were charged before."""
        before = self.stated.get("lifetime", {}).get("spent_before", {})
        return any(Decimal(spent) for spent in before.values())

    @cached_property
    def delta(self) -> Decimal:
        """At which epsilon is stated."""
        return Decimal(self.stated["delta"])

    @property
    def delta_of_units(self) -> Decimal:
        """How often that is one over the number of units."""
        return self.delta * int(self.stated["n_units"])

    @property
    def strict_delta(self) -> Decimal:
        """One over the square of the number of units."""
        return 1 / Decimal(self.stated["n_units"]) ** 2

    @property
    def at_strict_delta(self) -> Mapping[str, Any] | None:
        """The first point of the curve whose delta is as small; None if no listed one is."""
        points = self.stated["curve"]
        small = (p for p in points if Decimal(repr(p["delta_upper"])) <= self.strict_delta)
        return next(small, None)

    @property
    def parameter_rows(self) -> list[tuple[str, str, str]]:
        """The privacy parameters of the release: symbol, value, what it is."""
        stated = self.stated
        lower = short(stated["epsilon_lower"], ROUND_FLOOR, 12)
        upper = short(stated["epsilon_upper"], ROUND_CEILING, 12)
        rho = "Zero-concentrated differential privacy (zCDP), which implies the bound by ε and δ."
        rows = [
            ("ε", amount(stated["epsilon"]), EXPLANATIONS["epsilon"]),
            ("δ", amount(stated["delta"]), "At which that ε is stated."),
            ("ε, exact", f"{lower} to {upper}", EXPLANATIONS["epsilon_lower, epsilon_upper"]),
            ("ρ", amount(stated["rho"]), rho),
        ]
        if stated.get("rho_delta"):
            rows.append(("δ of ρ", amount(stated["rho_delta"]), "But for which that ρ holds."))
        return rows

    @property
    def epsilon_alone(self) -> str:
        """What the epsilon of a product is."""
        return EXPLANATIONS["products.epsilon"]

    @property
    def curve_rows(self) -> list[tuple[str, str, str]]:
        """Epsilon, and the proven bounds on the smallest delta that holds with it."""
        return [
            (
                short(point["epsilon"]),
                short(point["delta_lower"], ROUND_FLOOR),
                short(point["delta_upper"]),
            )
            for point in self.stated["curve"]
        ]

    @property
    def trade_off_rows(self) -> list[tuple[str, str, str]]:
        """Of 100 each: false alarms, what is then missed at least, what is found at most."""
        return [
            (
                per_hundred(point["false_positive_rate"]),
                per_hundred(point["false_negative_rate_at_least"], ROUND_FLOOR),
                per_hundred(1 - Decimal(repr(point["false_negative_rate_at_least"]))),
            )
            for point in self.stated["trade_off"]
        ]

    @property
    def lifetime_rows(self) -> list[tuple[str, str, str, str, str]]:
        """Of each measure that the policy limits: spent before, by this release, left, limit."""
        life = self.stated["lifetime"]
        return [
            (
                MEASURES[measure],
                amount(life["spent_before"][measure]),
                amount(self.stated.get(measure, "0")),
                amount(life["remaining"][measure]),
                amount(limit),
            )
            for measure, limit in life["limit"].items()
        ]

    def cited(self, mechanism: str) -> str:
        """The works that prove a mechanism; empty where a statement names none."""
        works = self.stated.get("citations", {}).get(mechanism, ())
        return "; ".join(map(_citation_text, works))

    def verdict(self, product: Mapping[str, Any]) -> str:
        """What a product's plan said of its noise, from public quantities."""
        verdict = product["verdict"]
        name = str(verdict["name"]).replace("_", " ")
        figure = verdict.get("figure")
        return f"{name}: {figure} {verdict['value']:.3g}" if figure else name


def _citation_text(cited: Mapping[str, str]) -> str:
    """A citation on one line."""
    number = ""
    if cited.get("doi"):
        number = f", doi {cited['doi']}"
    elif cited.get("arxiv"):
        number = f", arXiv {cited['arxiv']}"
    return cited["work"] + (f", {cited['part']}" if cited.get("part") else "") + number
