"""What a privacy statement means, in values and sentences for those who read a bundle.

Everything follows from ``privacy.json`` only. A figure that is rounded is rounded against the
release: what an attack gains upwards, what it misses downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

from mechanisms.accounting.trade_off import limit_advantage
from tasks.report.privacy_figures import (
    Stated,
    caught,
    right_guesses,
    short,
)

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
