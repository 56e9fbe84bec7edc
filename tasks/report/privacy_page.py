"""``PRIVACY.md`` and the figures and words of a privacy statement.

The figures of a privacy statement as rows and short texts, each rounded against the release.

What a privacy statement means, in values and sentences for those who read a bundle.

Everything follows from ``privacy.json`` only. A figure that is rounded is rounded against the
release: what an attack gains upwards, what it misses downwards.

``PRIVACY.md``: a bundle's privacy statement for a reviewer, made from ``privacy.json`` only.

Its headings are those of the differential privacy pyramid of NIST SP 800-226, Guidelines for
Evaluating Differential Privacy Guarantees (March 2025, doi 10.6028/NIST.SP.800-226), from its top
(section 2 there) to its base (section 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Any

from statpress.mechanisms.accounting.trade_off import limit_advantage
from statpress.tasks.pages.rendering import code_span, escaped

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


POLICIES = {
    "basic": "The policy `basic` limits the sum of all epsilons and the sum of all deltas "
    "(Rogers, Roth, Ullman and Vadhan 2016, arXiv 1605.08294).",
    "zcdp": "The policy `zcdp` limits the sum of all rhos (zero-concentrated differential privacy) "
    "and the sum of the deltas but for which they hold (Feldman and Zrnic 2021, arXiv 2008.11193; "
    "Whitehouse, Ramdas, Rogers and Wu 2023, arXiv 2203.05481, Theorem 1).",
}
"""What an account's policy limits."""


def subject(stated: Stated) -> str:
    """What a person loses at most, as the object of a sentence."""
    if stated["unit"] == "record":
        return "one record"
    return f"the records of one `{column(stated)}`"


def column(stated: Stated) -> str:
    """The name of the column that names the unit; empty if the unit is a record."""
    unit = str(stated["unit"])
    return unit.removeprefix("column ") if unit.startswith("column ") else ""


def in_short(stated: Stated) -> list[str]:
    """What an attacker gains, in natural frequencies, a paragraph each."""
    found = caught(stated)
    what = subject(stated)
    paragraphs = [
        f"Imagine somebody who knows everything in the data but {what}, and has two candidates for "
        "what is missing, either as likely as the other. Without this release they can only toss a "
        "coin, and are right 50 times in 100 on average. With it no method whatsoever is right "
        f"more than **{right_guesses(stated['attack_advantage'])} times in 100** on average.",
        "Now let them look out for one of the candidates and raise an alarm when they believe that "
        "it is there, with at most 5 false alarms in 100 times that it is not. Without the release "
        "they notice it in 5 of 100 times that it is there, by chance; with it in at most "
        f"**{found} of 100**, on average.",
    ]
    if stated["unit"] == "record":
        paragraphs.append(
            "This is about one record. Where every person has a single record, it is what can be "
            "found out about a person because their data were used."
        )
    else:
        paragraphs.append(
            f"This is about one `{column(stated)}` with all its records, of which at most "
            f"{stated['unit_records']} are used."
        )
    life = stated.get("lifetime")
    if life and any(Decimal(spent) for spent in life["spent_before"].values()):
        paragraphs.append(
            "It is about this release only. Others of the same data came before it; what all of "
            "them may amount to is said of the dataset's whole budget."
        )
    return paragraphs


def delta_sentences(stated: Stated) -> list[str]:
    """What delta is, and is not."""
    delta, units = Decimal(stated["delta"]), stated["n_units"]
    if delta == 0:
        return ["δ is 0: the bound by ε holds without any exception."]
    last = stated["curve"][-1]
    found = [
        "δ is not a chance that somebody's data are published as they are: the bound goes on to "
        f"hold with a larger ε and a smaller δ, here with ε = {short(last['epsilon'])} and a δ of "
        f"at most {short(last['delta_upper'])}.",
        f"The δ at which ε is stated is {short(delta * units)} divided by the number of units, "
        f"{units:,}.",
    ]
    strict = 1 / Decimal(units) ** 2
    if delta > strict:
        found.append(_at_strict_delta(stated, strict))
    return found


def _at_strict_delta(stated: Stated, strict: Decimal) -> str:
    """What epsilon the curve shows at a delta of one over the square of the number of units."""
    rule = (
        "By the stricter rule that δ be at most one over the square of that number, "
        f"{short(strict, ROUND_FLOOR)},"
    )
    for point in stated["curve"]:
        if Decimal(repr(point["delta_upper"])) <= strict:
            return (
                f"{rule} the same release has ε = {short(point['epsilon'])}, the first point of "
                "the privacy curve whose δ is as small."
            )
    return f"{rule} its ε is beyond the points of the privacy curve that are listed."


def unit_sentences(stated: Stated) -> list[str]:
    """What is protected, against what change, and what is public with that."""
    units, records = stated["n_units"], stated["n_records"]
    size = f"{records:,} records" if units == records else f"{units:,} units"
    found = [
        f"The unit of privacy is {stated['unit_in_words']}.",
        "Adjacency is replace-one (SP 800-226: bounded differential privacy): compared are two "
        f"sources of the same size, {size}, that differ in the data of one unit. The size is "
        "public. That somebody is in the source at all is protected like the rest of their data: "
        "with those of anybody else in their place the release would look much the same.",
    ]
    if column(stated):
        found.append(
            f"Of each unit at most {stated['unit_records']} records are used, chosen at random, "
            "and one with fewer is filled up with records that say nothing, so that how many "
            "anyone has is protected too. This is what SP 800-226 calls user-level privacy, if "
            f"every value of `{column(stated)}` stands for one person."
        )
    else:
        found.append(
            "If a person has several records, this is what SP 800-226 calls event-level privacy, "
            "which is weaker than it looks; if everybody has one, it is user-level privacy."
        )
    return found


def composition_sentences(stated: Stated) -> list[str]:
    """How the products' losses make the release's."""
    rest = (
        "Nothing else in this bundle uses the data: what is derived from what the mechanisms gave "
        "costs nothing more."
    )
    if len(stated["products"]) == 1:
        return [f"There is one product, so that nothing is composed. {rest}"]
    return [
        "The losses of the products are composed as privacy loss distributions (Zhu, Dong and "
        "Wang 2022, arXiv 2106.08567, Theorem 10; Doroshenko et al. 2022, arXiv 2207.04380), "
        f"instead of adding up epsilons. {rest}"
    ]


def lifetime_sentences(stated: Stated) -> list[str]:
    """Policy and account, and what its whole limit would amount to."""
    limit = stated["lifetime"]["limit"]
    right = right_guesses(limit_advantage(limit))
    nothing = ": a limit so large promises nothing, and what counts is what was spent"
    return [
        POLICIES[stated["lifetime"]["policy"]],
        "If all releases together spend the whole limit, then of the guesses between two equally "
        f"likely candidates at most {right} in 100 are right on average"
        f"{nothing if right == '100' else ''}. A limit can be raised, with a reason that "
        "stays in the ledger.",
    ]


def sections(stated: Stated) -> Sequence[tuple[str, Sequence[str]]]:
    """The base of SP 800-226's pyramid: heading and paragraphs each."""
    read = "the column that names the units and " if column(stated) else ""
    kind = f", {stated['source']}," if stated.get("source") else ""
    return (
        (
            "Trust model",
            [
                "The central model: the publisher holds everybody's data and is trusted with them, "
                "and so are those who run statpress there. Nobody else has to be trusted, whatever "
                "they know or can compute: the guarantee is about what leaves the publisher, which "
                "is this bundle.",
            ],
        ),
        (
            "Data security and access control",
            [
                f"The source{kind} stays where it lies. What is counted from it is kept in a "
                "folder of the run that only its owner can enter, and removed when the run ends. "
                "The files of this bundle are made from what the mechanisms gave and from public "
                "facts alone. Why a check refused a source, and the details of errors, go to a log "
                "for the curator only.",
                "Who may read the source, that log and the machine, how they are encrypted and how "
                "long they are kept, is for the publisher to say; this statement cannot.",
            ],
        ),
        (
            "Side channels",
            [
                "- *Floating-point numbers:* samplers draw whole numbers exactly, so that no "
                "rounding error reaches what is released.\n"
                "- *Random bits* come from a cryptographic generator, seeded by the operating "
                "system, after the charge.\n"
                "- *Errors, logs and names of runs* have fixed texts without values of the data.\n"
                "- *Tuning:* parameters of mechanisms follow from the config and public sizes, "
                "never from the data.\n"
                "- *Failed runs:* what began to draw stays charged, and never draws again.\n"
                "- *Time* is not protected: see what is not covered.",
            ],
        ),
        (
            "Data collection exposure",
            [
                "Differential privacy limits what a release gives away. It does nothing about what "
                "was collected, from whom and with what consent, and what else is done with it. "
                f"Of the source only {read}the columns that `config.yaml` declares are used.",
            ],
        ),
    )


NAME = "PRIVACY.md"
_PYRAMID = (
    "The headings follow the differential privacy pyramid of NIST SP 800-226, *Guidelines for "
    "Evaluating Differential Privacy Guarantees* (March 2025, "
    "[doi 10.6028/NIST.SP.800-226](https://doi.org/10.6028/NIST.SP.800-226)), from its top to its "
    "base. Every figure is from `privacy.json`, whose form is in `privacy.schema.json`; what is "
    "rounded here is rounded to the side that promises less."
)
_SEEDED = (
    "**NOT PUBLISHABLE: drawn from a known seed, for tests only. No guarantee holds. What follows "
    "would hold of secret randomness.**"
)
_CURVE = (
    "One ε with one δ does not say all. For each ε the smallest δ with which the release is "
    "(ε, δ)-differentially private is proven to lie between these bounds; the upper one is what is "
    "guaranteed. At ε = 0, δ is the most that the rate of true positives of an attack can be above "
    "its rate of false positives."
)
_ATTACK = (
    "The same in terms of an attack (the trade-off function; Dong, Roth and Su 2022, "
    "doi 10.1111/rssb.12454). The attacker knows all other data, and has to say which of two "
    "candidates the data of the unit are. Of 100 times that they are the one, the attacker names "
    "the other as often as in the first column: a false alarm. Then of 100 times that they are the "
    "other, that is missed at least, and found at most, as often as in the second and the third."
)
_VERIFIED = (
    "*How this is known.* Every figure is computed without data, with proven bounds on each "
    "rounding, and rounded against the release. The output distribution of every mechanism, or of "
    "its noise where outputs cannot be listed, is enumerated on tiny domains for all neighbours "
    "and compared with the curve. Every sampler is tested against its law at the level 1e-6, "
    "together with a broken twin that the same test must catch. The accountant is checked against "
    "closed forms and the library `dp-accounting`. Proofs and tests are part of statpress "
    "(`mechanisms/README.md`, sections 1 and 9). From the parameters of every mechanism in "
    "`privacy.json` the charge can be recomputed, as `statpress ledger verify` does of every entry."
)
_UTILITY = (
    "Errors that are expected from public quantities are in `privacy.json` under each product's "
    "`expected_error`, and are read best in `report.html`. Total variation is the largest error of "
    "any share of the records that a table tells, from 0 to 1. Noise does not shrink with a group: "
    "figures of small groups are the least accurate ones relative to their size, and where counts "
    "are kept from being negative those of rare groups are a little too large on average."
)
_MODEL = (
    "This is a data release: everything that is computed was fixed in `config.yaml` before the "
    "data were read, and nobody asks further questions. Every release of the dataset is charged to "
    "one account, which refuses what would pass its limit, also if a release was planned after "
    "looking at earlier ones. The account right after this release:"
)


def write_privacy_page(folder: Path) -> Path:
    """Write the page of a bundle, from its ``privacy.json``."""
    stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
    path = folder / NAME
    path.write_text(privacy_page(stated), encoding="utf-8")
    return path


def privacy_page(stated: Stated) -> str:
    """The page as Markdown.

    Args:
        stated: A privacy statement of version 1; before its release is charged it has no
            ``lifetime``, and the page no account.
    """
    text = "\n\n".join(_blocks(stated)) + "\n"
    name = column(stated)
    return text.replace(f"`{name}`", code_span(name)) if name else text


def _blocks(stated: Stated) -> Iterator[str]:
    yield "# Privacy statement"
    if not stated["publishable"]:
        yield _SEEDED
    yield from in_short(stated)
    yield from (f"**{escaped(text)}**" for text in stated["warnings"])
    if "ledger_entry" in stated:
        entry, dataset = stated["ledger_entry"], code_span(stated["lifetime"]["dataset"])
        yield (
            f"Dataset {dataset}, charged as entry {entry['sequence']} of the publisher's ledger "
            f"(hash `{entry['hash']}`)."
        )
    yield _PYRAMID
    yield "## Privacy parameters"
    yield _table(("", "value", "what it is"), parameter_rows(stated))
    yield " ".join(delta_sentences(stated))
    yield "### The privacy curve"
    yield _CURVE
    yield _table(("ε", "δ, lower bound", "δ, upper bound"), curve_rows(stated))
    yield "### What an attack attains"
    yield _ATTACK
    yield _table(
        ("false alarms of 100", "missed of 100, at least", "found of 100, at most"),
        trade_off_rows(stated),
    )
    yield "## Unit of privacy"
    yield " ".join(unit_sentences(stated))
    yield "## Algorithms and correctness"
    rows = [
        (code_span(name), kind, f"`{mechanism}`", cost, found)
        for name, kind, mechanism, cost, found in product_rows(stated)
    ]
    headings = ("product", "kind", "mechanism", "ε alone", "found of 100 at 5 false alarms, alone")
    yield _table(headings, rows)
    yield f"*ε alone:* {EXPLANATIONS['products.epsilon']}"
    yield "Where the mechanisms come from, and where their guarantees are proven:"
    yield "\n".join(
        f"- `{mechanism}`: {'; '.join(escaped(citation_text(each)) for each in cited)}"
        for mechanism, cited in stated["citations"].items()
    )
    yield from composition_sentences(stated)
    yield _VERIFIED
    yield "## Utility and bias"
    yield _table(
        ("product", "what its plan said of its noise"),
        [(code_span(name), escaped(verdict)) for name, verdict in verdict_rows(stated)],
    )
    yield _UTILITY
    yield "## Query model and budget"
    if "lifetime" in stated:
        yield _MODEL
        headings = ("", "spent before", "this release", "left", "limit")
        yield _table(headings, lifetime_rows(stated))
        yield " ".join(lifetime_sentences(stated))
    for heading, paragraphs in sections(stated):
        yield f"## {heading}"
        yield from paragraphs
    yield "## What is not covered"
    yield "\n".join(f"- {sentence}" for sentence in stated["not_covered"])


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar in a cell would begin another."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell for cell in line)} |" for line in lines)
