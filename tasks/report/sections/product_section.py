"""A product's section: its kind's part, with files, mechanism, and what was expected of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mechanisms.planning.verdict import Verdict
from tasks.pages.blocks import Block, Grid, Prose, Section
from tasks.products.kind import ReportPart
from tasks.report.parameter_words import expected_rows, parameter_rows
from tasks.report.privacy_figures import amount, cited
from tasks.report.public_words import PublicWords

_TITLE = "Mechanism, parameters, and the errors expected before anything was drawn"

_CHOSEN = (
    "Known without any data. Mechanisms were compared before the parameters of all products were "
    "settled together, so that a figure may differ a little from the one expected below."
)


def product_section(words: PublicWords, name: str, part: ReportPart) -> Section:
    """The whole section of a product."""
    stated = words.stated["products"][name]
    before: list[Block] = []
    if verdict := noise_warning(stated):
        before.append(Prose([verdict], "warning"))
    if said := words.words(name).get("description"):
        before.append(Prose(said.split("\n\n")))
    return replace(
        part.section,
        title=words.title_of(name),
        blocks=[*before, *part.section.blocks, _made(stated, cited(words.stated, name))],
    )


def noise_warning(stated: Mapping[str, Any]) -> str:
    """That a product is mostly noise, if it is; else empty."""
    found = Verdict.stated(stated)
    if found is None or found.name != "mostly_noise":
        return ""
    return (
        f"This is {found.words}. Whoever published it accepted that: do not read more into any "
        "single figure than its standard error allows."
    )


def said_once(sections: Sequence[Section]) -> list[Section]:
    """The sections without paragraphs that an earlier one has word for word."""
    seen: set[tuple[str, ...]] = set()

    def fresh(block: Block) -> bool:
        if not isinstance(block, Prose) or block.tone == "warning":
            return True
        words = tuple(map(str, block.paragraphs))
        new = words not in seen
        seen.add(words)
        return new

    def without(section: Section) -> Section:
        blocks = [block for block in section.blocks if fresh(block)]
        return replace(section, blocks=blocks, parts=[without(part) for part in section.parts])

    return [without(section) for section in sections]


def _made(stated: Mapping[str, Any], works: str) -> Grid:
    """Mechanism, parameters and expected errors, folded away."""
    rows = [("mechanism", stated["mechanism"], works or "By which it was made private.")]
    if "function" in stated:
        rows.append(("function", str(stated["function"]), "What was released."))
    rows.append(("columns", ", ".join(stated["columns"]), "Of the source, that it is made of."))
    if "chosen" in stated:
        rows.append(("why this mechanism", str(stated["chosen"]), _CHOSEN))
    rows += parameter_rows(stated)
    rows.append(
        (
            "privacy loss",
            f"ε = {amount(stated['epsilon'])}, δ = {amount(stated['delta'])}",
            "Of this product by itself.",
        )
    )
    verdict = Verdict.stated(stated)
    if verdict is not None:
        rows.append(("verdict", verdict.words, "A rule of thumb, from public figures."))
    rows += [(f"expected: {label}", value, said) for label, value, said in expected_rows(stated)]
    return Grid(("what", "value", "meaning"), rows, title=_TITLE, folded=True)
