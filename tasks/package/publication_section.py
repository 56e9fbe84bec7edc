"""Who publishes a bundle, on what terms and how to cite it: a section of its README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.package.citation import citation, contributor
from tasks.products.markdown import escaped

HEADING = "## Publication"


def publication_section(package: Mapping[str, Any]) -> str:
    """The section as Markdown, from the data package; it ends with a line break."""
    facts = {
        "Publisher": _party(contributor(package, "publisher")),
        "Contact": _party(contributor(package, "contact")),
        "Licence": "; ".join(map(_party, package.get("licenses", ()))),
        "Period": _period(package.get("temporal", {})),
        "Area": _party(package.get("spatial")),
        "Page": _address(package.get("homepage")),
        "Keywords": ", ".join(map(escaped, package.get("keywords", ()))),
        "Cite as": _citation(package),
    }
    lines = (f"- {name}: {said}" for name, said in facts.items() if said)
    return "\n".join([HEADING, "", *lines, ""])


def with_publication(text: str, package: Mapping[str, Any]) -> str:
    """A README with this section at its end, in place of the one that it may have."""
    kept, _, _ = text.partition(f"\n{HEADING}\n")
    return f"{kept.rstrip()}\n\n{publication_section(package)}"


def _citation(package: Mapping[str, Any]) -> str:
    places = {package.get("homepage"), package.get("id")}
    words = citation(package).split(" ")
    return " ".join(_address(word) if word in places else escaped(word) for word in words)


def _party(named: Mapping[str, Any] | None) -> str:
    """A name with its addresses; a name that is one of them is not repeated."""
    if not named:
        return ""
    return ", ".join(dict.fromkeys(_words(named)))


def _words(named: Mapping[str, Any]) -> Iterator[str]:
    addresses = [each for each in (named.get("email"), named.get("path")) if each]
    if named["title"] not in addresses:
        yield escaped(named["title"])
    yield from map(_address, addresses)


def _period(temporal: Mapping[str, str]) -> str:
    start, end = temporal.get("start"), temporal.get("end")
    if start and end:
        return start if start == end else f"{start} to {end}"
    return f"from {start}" if start else f"until {end}" if end else ""


def _address(text: str | None) -> str:
    """An address as an autolink (CommonMark, 6.5), in which nothing is Markdown."""
    return f"<{text}>" if text else ""
