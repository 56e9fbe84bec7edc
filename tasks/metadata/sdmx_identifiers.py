"""Identifiers of SDMX for names and values that were not made for it.

Source: SDMX 3.0, section 3A (SDMX-ML schemas, ``SDMXCommonReferences.xsd``): components and
agencies begin with an ASCII letter and go on with letters, digits, ``_`` and ``-``; codes may begin
with any of these, ``@`` or ``$``. Accents are taken off, anything else becomes ``_``, and of two
identifiers that would be the same the later one is numbered.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable


def agency(name: str) -> str:
    """An identifier of an agency.

    >>> agency("Institut für Statistik, Österreich")
    'INSTITUT_FUR_STATISTIK_OSTERREICH'
    >>> agency("統計局")
    'AGENCY'
    """
    return _component(name) or "AGENCY"


def components(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """Identifiers of components, concepts or code lists, in the order of their names.

    >>> components(["age", "Age", "2nd job", "α"], taken=["AGE"])
    ['AGE_2', 'AGE_3', 'C_2ND_JOB', 'C_4']
    """
    return _distinct(
        (_component(name) or f"C_{place}" for place, name in enumerate(names, 1)), taken
    )


def codes(values: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """Identifiers of codes, in the order of their values.

    >>> codes(["007", "a, b", "a. b", "-0.5", "é", ""])
    ['007', 'a_b', 'a_b_2', '-0_5', 'e', 'CODE_6']
    """
    found = (_ascii(value, r"[^A-Za-z0-9_@$-]+") for value in values)
    return _distinct((each or f"CODE_{place}" for place, each in enumerate(found, 1)), taken)


def _component(name: str) -> str:
    found = _ascii(name, r"[^A-Za-z0-9_-]+").upper()
    return found if not found or found[0].isalpha() else f"C_{found}"


def _ascii(text: str, others: str) -> str:
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return re.sub(others, "_", plain).strip("_")


def _distinct(found: Iterable[str], taken: Collection[str]) -> list[str]:
    used, distinct = set(taken), []
    for each in found:
        name, number = each, 2
        while name in used:
            name, number = f"{each}_{number}", number + 1
        used.add(name)
        distinct.append(name)
    return distinct
