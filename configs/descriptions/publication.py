"""Who publishes a table and on what terms, as a description says it, in the words of a config.

What identifies the described table, and its page, are not taken: they are not the release's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from configs.descriptions.described import ASKED, Description, line
from configs.descriptions.yaml_style import comment, flow, scalar
from configs.models.about import AboutConfig

Party = Mapping[str, object]


def about_of(
    *,
    description: object = None,
    publisher: Party | None = None,
    contact: Party | None = None,
    licence: Party | None = None,
    keywords: Iterable[object] = (),
    temporal: Party | None = None,
    spatial: Party | None = None,
) -> dict[str, Any]:
    """The section ``about`` of what is given, without what a config would refuse.

    >>> about_of(licence={"id": "cc0-1.0"}, publisher={"name": "Office", "url": "nowhere"})
    {'publisher': {'name': 'Office'}, 'licence': 'cc0-1.0'}

    Args:
        description: Text.
        publisher: With ``name`` and ``url``.
        contact: With ``name``, ``email`` and ``url``.
        licence: With ``id``, ``name`` and ``url``; any of these may be an SPDX identifier.
        keywords: Texts.
        temporal: With ``start`` and ``end``.
        spatial: With ``name`` and ``url``.
    """
    found: dict[str, Any] = {}
    for key, value in {
        "description": line(description),
        "publisher": _blanked(publisher),
        "contact": _blanked(contact),
        "licence": _licence(_blanked(licence)),
        "keywords": list(dict.fromkeys(filter(None, (line(each, 100) for each in keywords)))),
        "temporal": _blanked(temporal),
        "spatial": _blanked(spatial),
    }.items():
        fitting = _fitting(key, value) if value else None
        if fitting:
            found[key] = fitting
    return found


def about_lines(description: Description) -> Iterator[str]:
    """The lines of a drafted config about who publishes, on what terms."""
    if not description.about:
        return
    yield "about:"
    if description.form != ASKED:
        yield from comment("As described; see that it is true of the release too.", "  ")
    for key, value in description.about.items():
        if isinstance(value, dict):
            inside = ", ".join(f"{part}: {scalar(text)}" for part, text in value.items())
            yield f"  {key}: {{{inside}}}"
        else:
            yield f"  {key}: {flow(value)}"


def _blanked(party: Party | None) -> dict[str, str]:
    """The texts of a mapping, without blank ones."""
    texts = {key: line(value) for key, value in (party or {}).items()}
    return {key: text for key, text in texts.items() if text}


def _licence(said: Mapping[str, str]) -> Any:
    """A licence by its SPDX identifier, which addresses of licences hold too, or by its name."""
    for text in said.values():
        if _fits("licence", text):
            return text
    path = said.get("url", "").rstrip("/").rpartition("/")[2]
    known = path.removesuffix(".html") if "spdx.org" in said.get("url", "") else ""
    if known and _fits("licence", known):
        return known
    name = said.get("name") or said.get("id")
    return {"name": name, "url": said["url"]} if name and "url" in said else None


def _fitting(key: str, value: Any) -> Any:
    """A value that a config takes: of a mapping without the parts that it refuses; or None."""
    if _fits(key, value):
        return value
    if not isinstance(value, dict):
        return None
    for part in value:
        rest = {k: v for k, v in value.items() if k != part}
        if rest and _fits(key, rest):
            return rest
    return None


def _fits(key: str, value: Any) -> bool:
    try:
        AboutConfig.model_validate({key: value})
    except ValidationError:
        return False
    return True
