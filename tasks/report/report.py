"""``report.html``: a bundle on one page, for reading; made from its public files only."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.pages.blocks import Page, Prose, Section
from tasks.pages.page import rendered
from tasks.products.kind import ReportPart
from tasks.products.registry import kind_named
from tasks.report.public_words import PublicWords
from tasks.report.sections.columns_section import columns_section
from tasks.report.sections.privacy_section import privacy_section
from tasks.report.sections.product_section import noise_warning, product_section, said_once
from tasks.report.sections.provenance_section import provenance_section
from tasks.report.summary import summary

NAME = "report.html"
UNSHOWN = "This page could not show {}. Its files are whole, and say everything."
"""In place of a product's part that could not be made."""
_LOG = logging.getLogger(__name__)
_SEEDED = "NOT PUBLISHABLE: drawn from a known seed, for tests only. No guarantee holds."


def write_report(folder: Path, manifest: Mapping[str, Any], *, pictures: bool = True) -> Path:
    """Write the page of a bundle, from ``privacy.json``, ``datapackage.json`` and ``data/``.

    The page asks no other host for anything, and holds no script. Without data files, as in a
    rehearsal, it is the same page without what is drawn.

    Args:
        folder: Of the bundle, which has no manifest yet.
        manifest: The facts that the manifest will have.
        pictures: Whether charts are drawn; if not, their figures stand as tables.
    """
    path = folder / NAME
    page = composed(PublicWords.of(folder, manifest))
    path.write_text(rendered(page, pictures=pictures), encoding="utf-8")
    return path


def composed(words: PublicWords) -> Page:
    """The page as values."""
    parts = {name: _part(words, name) for name in words.stated["products"]}
    sections = [
        summary(words, parts),
        *said_once([product_section(words, name, part) for name, part in parts.items()]),
        columns_section(words),
        privacy_section(words),
        provenance_section(words),
    ]
    publisher = "; ".join(each["title"] for each in words.contributors("publisher"))
    by = f" by {publisher}" if publisher else ""
    return Page(
        words.package["title"],
        [each for each in sections if each is not None],
        subtitle=f"Published{by} on {words.created}",
        marks=_marks(words),
    )


def _part(words: PublicWords, name: str) -> ReportPart:
    """A product's part; if that cannot be made of what was drawn, a sentence in its place.

    By then the release is charged: what is amiss in a page must not cost it. In a rehearsal, which
    has no charge yet, it stops the run.
    """
    stated = words.stated["products"][name]
    kind = kind_named(stated["kind"], stated["mechanism"])
    try:
        return kind.part(words.folder, name, stated, words.resources(name))
    except Exception:
        if words.manifest["ledger_entry"] is None:
            raise
        _LOG.exception("The part of '%s' in the report could not be made.", name)
    said = Prose([UNSHOWN.format(name)], "note")
    return ReportPart(kind.core.name, Section(f"product-{name}", name, [said]))


def _marks(words: PublicWords) -> list[str]:
    """What nobody may miss."""
    stated = words.stated
    found = [] if stated["publishable"] else [_SEEDED]
    found += stated.get("warnings", [])
    noisy = [name for name, each in stated["products"].items() if noise_warning(each)]
    if noisy:
        found.append(f"Mostly noise: {', '.join(noisy)}.")
    return found
