"""``PRIVACY.md``: a bundle's privacy statement for a reviewer, made from ``privacy.json`` only.

Its headings are those of the differential privacy pyramid of NIST SP 800-226, Guidelines for
Evaluating Differential Privacy Guarantees (March 2025, doi 10.6028/NIST.SP.800-226), from its top
(section 2 there) to its base (section 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tasks.products.markdown import code_span, escaped
from tasks.report import privacy_figures as figures
from tasks.report import privacy_words as words
from tasks.report.privacy_figures import Stated

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
    name = words.column(stated)
    return text.replace(f"`{name}`", code_span(name)) if name else text


def _blocks(stated: Stated) -> Iterator[str]:
    yield "# Privacy statement"
    if not stated["publishable"]:
        yield _SEEDED
    yield from words.in_short(stated)
    yield from (f"**{escaped(text)}**" for text in stated["warnings"])
    if "ledger_entry" in stated:
        entry, dataset = stated["ledger_entry"], code_span(stated["lifetime"]["dataset"])
        yield (
            f"Dataset {dataset}, charged as entry {entry['sequence']} of the publisher's ledger "
            f"(hash `{entry['hash']}`)."
        )
    yield _PYRAMID
    yield "## Privacy parameters"
    yield _table(("", "value", "what it is"), figures.parameter_rows(stated))
    yield " ".join(words.delta_sentences(stated))
    yield "### The privacy curve"
    yield _CURVE
    yield _table(("ε", "δ, lower bound", "δ, upper bound"), figures.curve_rows(stated))
    yield "### What an attack attains"
    yield _ATTACK
    yield _table(
        ("false alarms of 100", "missed of 100, at least", "found of 100, at most"),
        figures.trade_off_rows(stated),
    )
    yield "## Unit of privacy"
    yield " ".join(words.unit_sentences(stated))
    yield "## Algorithms and correctness"
    rows = [
        (code_span(name), kind, f"`{mechanism}`", cost, found)
        for name, kind, mechanism, cost, found in figures.product_rows(stated)
    ]
    headings = ("product", "kind", "mechanism", "ε alone", "found of 100 at 5 false alarms, alone")
    yield _table(headings, rows)
    yield f"*ε alone:* {figures.EXPLANATIONS['products.epsilon']}"
    yield "Where the mechanisms come from, and where their guarantees are proven:"
    yield "\n".join(
        f"- `{mechanism}`: {'; '.join(escaped(figures.citation_text(each)) for each in cited)}"
        for mechanism, cited in stated["citations"].items()
    )
    yield from words.composition_sentences(stated)
    yield _VERIFIED
    yield "## Utility and bias"
    yield _table(
        ("product", "what its plan said of its noise"),
        [(code_span(name), escaped(verdict)) for name, verdict in figures.verdict_rows(stated)],
    )
    yield _UTILITY
    yield "## Query model and budget"
    if "lifetime" in stated:
        yield _MODEL
        headings = ("", "spent before", "this release", "left", "limit")
        yield _table(headings, figures.lifetime_rows(stated))
        yield " ".join(words.lifetime_sentences(stated))
    for heading, paragraphs in words.sections(stated):
        yield f"## {heading}"
        yield from paragraphs
    yield "## What is not covered"
    yield "\n".join(f"- {sentence}" for sentence in stated["not_covered"])


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar in a cell would begin another."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell for cell in line)} |" for line in lines)
