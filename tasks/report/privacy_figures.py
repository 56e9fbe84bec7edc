"""The figures of a privacy statement as rows and short texts, each rounded against the release."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

Stated = Mapping[str, Any]

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


def per_hundred(share: Decimal | float, rounding: str = ROUND_CEILING) -> str:
    """How many of a hundred, to a tenth; a double stands for its shortest text.

    >>> per_hundred(0.07784411), per_hundred(0.92215588, ROUND_FLOOR), per_hundred(0.05)
    ('7.8', '92.2', '5')
    """
    exact = share if isinstance(share, Decimal) else Decimal(repr(share))
    number = (exact * 100).quantize(Decimal("0.1"), rounding=rounding)
    return f"{min(max(number, Decimal(0)), Decimal(100)):f}".removesuffix(".0")


def short(value: Decimal | float, rounding: str = ROUND_CEILING, digits: int = 3) -> str:
    """Some significant digits.

    >>> short(1.23456e-07), short(0.088641, ROUND_FLOOR), short(0.0)
    ('1.24e-7', '0.0886', '0')
    """
    if value == 0:
        return "0"
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    number = Context(prec=digits, rounding=rounding).create_decimal(exact).normalize()
    plain = Decimal("0.001") <= number < 10**6
    return f"{number:f}" if plain else str(number).lower()


def amount(text: str) -> str:
    """An exact amount without trailing zeros.

    >>> amount("0.0000010"), amount("1E-8"), amount("10")
    ('0.000001', '1e-8', '10')
    """
    number = Decimal(text).normalize()
    plain = number == 0 or (number.adjusted() >= -6 and number.adjusted() < 12)
    return f"{number:f}" if plain else str(number).lower()


def at_most(share: float) -> str:
    """An upper bound on a share in percent, to two decimals; a double stands for its shortest text.

    >>> at_most(0.0942001), at_most(0.5)
    ('9.43 %', '50 %')
    """
    number = (min(Decimal(repr(share)), Decimal(1)) * 100).quantize(Decimal("0.01"), ROUND_CEILING)
    return f"{number.normalize():f} %"


def right_guesses(advantage: Decimal | float) -> str:
    """Of a hundred guesses between two equally likely candidates, how many are right at most.

    The best guess is right with probability (1 + V)/2, V the largest gap between the rates of true
    and of false positives.
    """
    exact = advantage if isinstance(advantage, Decimal) else Decimal(repr(advantage))
    return per_hundred((1 + min(exact, Decimal(1))) / 2)


def parameter_rows(stated: Stated) -> list[tuple[str, str, str]]:
    """The privacy parameters of the release: symbol, value, what it is."""
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


def curve_rows(stated: Stated) -> list[tuple[str, str, str]]:
    """Epsilon, and the proven bounds on the smallest delta that holds with it."""
    return [
        (
            short(point["epsilon"]),
            short(point["delta_lower"], ROUND_FLOOR),
            short(point["delta_upper"]),
        )
        for point in stated["curve"]
    ]


def trade_off_rows(stated: Stated) -> list[tuple[str, str, str]]:
    """Of 100 each: false alarms, what is then missed at least, what is found at most."""
    return [
        (
            per_hundred(each["false_positive_rate"]),
            per_hundred(each["false_negative_rate_at_least"], ROUND_FLOOR),
            per_hundred(1 - Decimal(repr(each["false_negative_rate_at_least"]))),
        )
        for each in stated["trade_off"]
    ]


def caught(cost: Mapping[str, Any]) -> str:
    """How many of a hundred are found at most, of a release or a product, at 5 false alarms."""
    (missed,) = [
        each["false_negative_rate_at_least"]
        for each in cost["trade_off"]
        if each["false_positive_rate"] == 0.05
    ]
    return per_hundred(1 - Decimal(repr(missed)))


def product_rows(stated: Stated) -> list[tuple[str, str, str, str, str]]:
    """Product, kind, mechanism, its epsilon alone with delta, found at most of 100 at 5."""
    return [
        (
            name,
            product["kind"],
            product["mechanism"],
            f"{amount(product['epsilon'])} at δ = {amount(product['delta'])}",
            caught(product),
        )
        for name, product in stated["products"].items()
    ]


def cited(stated: Stated, product: str) -> str:
    """The works that prove a product's mechanism; empty where a statement names none."""
    mechanism = stated["products"][product]["mechanism"]
    return "; ".join(map(citation_text, stated.get("citations", {}).get(mechanism, ())))


def citation_text(cited: Mapping[str, str]) -> str:
    """A citation on one line."""
    number = ""
    if cited.get("doi"):
        number = f", doi {cited['doi']}"
    elif cited.get("arxiv"):
        number = f", arXiv {cited['arxiv']}"
    return cited["work"] + (f", {cited['part']}" if cited.get("part") else "") + number


def lifetime_rows(stated: Stated) -> list[tuple[str, str, str, str, str]]:
    """Of each measure that the policy limits: spent before, by this release, left, limit."""
    life = stated["lifetime"]
    return [
        (
            MEASURES[measure],
            amount(life["spent_before"][measure]),
            amount(stated.get(measure, "0")),
            amount(life["remaining"][measure]),
            amount(limit),
        )
        for measure, limit in life["limit"].items()
    ]


def verdict_rows(stated: Stated) -> list[tuple[str, str]]:
    """Each product with what its plan said of its noise, from public quantities."""
    found = []
    for name, product in stated["products"].items():
        verdict = product["verdict"]
        words = verdict["name"].replace("_", " ")
        if verdict.get("figure"):
            words += f": {verdict['figure']} {verdict['value']:.3g}"
        found.append((name, words))
    return found
