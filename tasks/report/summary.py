"""The head of a report: what is published, by whom, how well protected, and how good it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.metadata.writing import sdmx_paths
from tasks.package.citation import citation
from tasks.pages.blocks import Block, Fact, Facts, Grid, Prose, Section, Text
from tasks.pages.numbers import count, measured, size
from tasks.products.kind import ReportPart
from tasks.report.marked import code, link
from tasks.report.privacy_figures import right_guesses, short
from tasks.report.privacy_words import subject
from tasks.report.public_words import PublicWords

Parts = Mapping[str, ReportPart]
_NONE_COPIED = (
    "Not one of them was copied into the files: what is there was drawn, or has noise on it. A "
    "drawn record may be like a real one by chance."
)


def summary(words: PublicWords, parts: Parts) -> Section:
    """The section that everybody reads."""
    blocks: list[Block] = [_what(words), _figures(words, parts), _contents(words, parts)]
    return Section("summary", "Summary", [*blocks, Facts(_about(words))])


def _what(words: PublicWords) -> Prose:
    said = words.package.get("description")
    stated = words.stated
    what = (
        f"Statistics of {count(stated['n_records'])} confidential records of the dataset "
        f"{words.manifest['dataset']}, published with differential privacy."
    )
    paragraphs = [*said.split("\n\n"), what] if said else [what]
    return Prose(paragraphs, "lead")


def _figures(words: PublicWords, parts: Parts) -> Facts:
    """How much, how protected, how good, as large figures."""
    stated = words.stated
    rows = [Fact("Confidential records behind it", count(stated["n_records"]), _behind(stated))]
    rows.append(
        Fact(
            "An attacker guesses right",
            f"{right_guesses(stated['attack_advantage'])} times in 100 at most",
            f"instead of 50, whatever they know, if they must choose between two candidates for "
            f"{subject(stated).replace('`', '')}.",
        )
    )
    epsilon = float(stated["epsilon"])
    rows.append(
        Fact(
            "Privacy loss",
            f"ε = {short(epsilon)}",
            "The smaller, the safer: it bounds how far any one's data can move the odds of any "
            f"guess, here by a factor of about {measured(math.exp(min(epsilon, 50)), 2)}, "
            f"but for a remainder of δ = {short(float(stated['delta']))}.",
        )
    )
    rows += [part.figure for part in parts.values() if part.figure is not None][:1]
    return Facts(rows, large=True)


def _behind(stated: Mapping[str, Any]) -> str:
    if stated["n_units"] == stated["n_records"]:
        return _NONE_COPIED
    return f"Of {count(stated['n_units'])} units. {_NONE_COPIED}"


def _contents(words: PublicWords, parts: Parts) -> Grid:
    """A line for each product, with its files."""
    rows: list[Sequence[Text]] = []
    for name, part in parts.items():
        in_sdmx = ({"path": path} for path in sdmx_paths(name) if (words.folder / path).is_file())
        listed = [_file(words, each) for each in (*words.resources(name), *in_sdmx)]
        rows.append([link(f"#product-{name}", words.title_of(name)), part.words, _joined(listed)])
    return Grid(("what", "it is", "files"), rows, title="Contents")


def _file(words: PublicWords, resource: Mapping[str, Any]) -> Text:
    path = resource["path"]
    place = words.folder / path
    size_of = resource.get("bytes") or (place.stat().st_size if place.is_file() else None)
    address = path if path.startswith("data/") else f"./{path}"
    shown = link(address, path.rpartition("/")[2])
    return shown if size_of is None else shown + f" ({size(size_of)})"


def _joined(listed: Sequence[Text]) -> Text:
    from markupsafe import Markup

    return Markup(", ").join(listed)


def _about(words: PublicWords) -> list[Fact]:
    """Who, when, of what, on what terms; what the config does not say is said to be unsaid."""
    package = words.package
    rows = [
        *(Fact("Published by", _named(each)) for each in words.contributors("publisher")),
        Fact("Published on", words.created),
    ]
    contacts = [_named(each) for each in words.contributors("contact")]
    rows.append(
        Fact("Whom to ask", _joined(contacts) if contacts else "The publisher names no contact.")
    )
    licences = [_licence(each) for each in package.get("licenses", ())]
    rows.append(
        Fact(
            "May I reuse it?",
            _joined(licences) if licences else "The publisher names no licence: ask first.",
            "The licence under which everything here may be used." if licences else "",
        )
    )
    rows.append(
        Fact("How to cite", citation({"created": words.manifest["created"], **words.package}))
    )
    if temporal := package.get("temporal"):
        ends = [temporal[key] for key in ("start", "end") if key in temporal]
        rows.append(Fact("Period", " to ".join(dict.fromkeys(ends))))
    if spatial := package.get("spatial"):
        title = spatial.get("title", spatial.get("path", ""))
        rows.append(Fact("Place", link(spatial.get("path", ""), title)))
    if keywords := package.get("keywords"):
        rows.append(Fact("Keywords", ", ".join(keywords)))
    if homepage := package.get("homepage"):
        rows.append(Fact("More", link(homepage, homepage)))
    return [*rows, changed(words)]


def changed(words: PublicWords) -> Fact:
    """What is new since the release that this one follows, as far as a bundle can say."""
    label, manifest = "What changed since the last release", words.manifest
    if manifest.get("reprint_of"):
        original = manifest["reprint_of"]
        return Fact(
            label,
            f"Nothing was drawn anew: a reprint of the release of {original['created'][:10]}, "
            "derived again from what that published.",
            code(original["seal"]),
        )
    if not manifest.get("supersedes"):
        return Fact(label, "Nothing: it follows no other release.")
    settings = ["settings changed: " + ", ".join(_set(each) for each in manifest["overrides"])]
    said = settings if manifest["overrides"] else ["see config.yaml of both"]
    life = words.stated.get("lifetime")
    spent = ""
    if life and "epsilon" in life["spent_before"]:
        spent = (
            f" Releases of this dataset before it had spent an ε of "
            f"{measured(float(life['spent_before']['epsilon']), 3)}, this one spends "
            f"{measured(float(words.stated['epsilon']), 3)} more."
        )
    return Fact(
        label,
        f"It follows the release with the seal {manifest['supersedes'][:16]}…; {said[0]}.{spent}",
        "Everything was drawn anew, so that small differences between the two are noise.",
    )


def _set(override: Mapping[str, Any]) -> str:
    return f"{override['key']} is {override['value']}"


def _named(each: Mapping[str, str]) -> Text:
    """A person or an office, with their address."""
    title = each["title"]
    shown = link(each["path"], title) if "path" in each else _plain(title)
    if "email" in each and each["email"] != title:
        return shown + ", " + link(f"mailto:{each['email']}", each["email"])
    return link(f"mailto:{title}", title) if "email" in each else shown


def _plain(text: str) -> Any:
    from markupsafe import escape

    return escape(text)


def _licence(each: Mapping[str, str]) -> Text:
    title = each.get("title") or each.get("name") or each["path"]
    return link(each["path"], title) if "path" in each else _plain(title)
