"""How to cite a release, from its data package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def citation(package: Mapping[str, Any]) -> str:
    """One line: publisher, year of creation, title, where to find it, and what identifies it.

    The identifier is the config's, such as a DOI, or the run's; the latter is in the bundle's
    manifest too. In the order of the American Psychological Association (7th edition, 10.9).

    >>> citation({
    ...     "title": "Pay", "created": "2026-11-23T01:00:00Z", "id": "https://doi.org/10.1234/a",
    ...     "contributors": [{"title": "Office of Numbers", "role": "publisher"}]})
    'Office of Numbers. (2026). Pay [Data set]. https://doi.org/10.1234/a'
    """
    publisher = contributor(package, "publisher")
    year = str(package.get("created", ""))[:4] or "n.d."
    title = f"{package['title']} [Data set]"
    places = [package.get("homepage"), package.get("id")]
    if str(places[1]).startswith("http"):
        places = places[1:]
    where = " ".join(str(each) for each in places if each)
    if publisher is None:
        return f"{title}. ({year}). {where}".rstrip()
    return f"{str(publisher['title']).rstrip('.')}. ({year}). {title}. {where}".rstrip()


def contributor(package: Mapping[str, Any], role: str) -> Mapping[str, Any] | None:
    """Who has a role, ``publisher`` or ``contact``; None if nobody is named."""
    named = (each for each in package.get("contributors", ()) if each.get("role") == role)
    return next(named, None)
