"""How a release is used and cited: what its README and its file ``CITATION.cff`` say of it.

Both need nothing but the data package, so a reprint in other formats has lines of its own. Sources
of how files are loaded in Python, R, Stata and SPSS:
Lumley, R packages mitools (``imputationList``, ``MIcombine``) and survey (``svydesign``); Stata
Multiple-Imputation Reference Manual, "mi import flong" and "mi estimate"; IBM SPSS Missing Values,
"Analyzing Multiple Imputation Data".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from statpress.tasks.pages.rendering import escaped, markdown
from statpress.tasks.products.copied_records import OF_UNITS

USAGE = "## How to use this release"


@dataclass(frozen=True)
class Language:
    """How programs in a language load files.

    Attributes:
        fence: Its name for Markdown.
        reads: By format, the preferred first, what reads a path.
        setup: What is imported for a table, for a product that answers questions, and for copies.
        line: Of a table, with its ``name`` and what reads it (``read``).
        asked: Lines for a product that answers questions, with the arguments that open it.
        copied: By format the lines for copies, with what reads them (``read``), and the columns
            of the number of a copy (``copy``) and, for Stata, of a record (``record``).
    """

    fence: str
    reads: Mapping[str, str]
    setup: tuple[str, ...] = ("", "", "")
    line: str = "{read}"
    asked: str = ""
    copied: Mapping[str, str] = field(default_factory=dict)


_COPIES_IN_PYTHON = 'release.combine(lambda records: smf.ols("y ~ x", records).fit())'
_COPIES_IN_R = """\
library(mitools)
copies <- {read}
copies <- imputationList(split(copies, copies${copy}))
summary(MIcombine(with(copies, lm(y ~ x))))
library(survey)
design <- svydesign(ids = ~1, data = copies)
summary(MIcombine(with(design, svyglm(y ~ x))))"""
_DTA_IN_R = _COPIES_IN_R.replace("{read}", "subset({read}, {copy} > 0)")
_DTA_IN_STATA = """\
{read}
quietly ds {copy} {record}, not
local all = r(varlist)
quietly ds `all', has(type numeric)
mi import flong, m({copy}) id({record}) imputed(`r(varlist)') clear
mi estimate, esampvaryok nosmall: regress y x"""
_CSV_IN_STATA = """\
{read}
* of words: encode x, generate(x_coded), and i.x_coded in place of x
statsby _b _se, by({copy}) clear: regress y x
egen double estimate = mean(_b_x)
egen double within = mean(_se_x^2)
egen double between = sd(_b_x)
generate double error = sqrt(within + (1 + 1/_N) * between^2)
list estimate error in 1"""
_COPIES_IN_SPSS = """\
{read}
SORT CASES BY {copy}.
SPLIT FILE LAYERED BY {copy}.
REGRESSION /DEPENDENT y /METHOD=ENTER x."""
_R = {
    "csv": 'read.csv("{}", na.strings = "")',
    "parquet": 'arrow::read_parquet("{}")',
    "dta": 'haven::read_dta("{}")',
    "sav": 'haven::read_sav("{}")',
}
LANGUAGES = {
    "Python": Language(
        "python",
        {
            "parquet": 'pd.read_parquet("{}")',
            "csv": 'pd.read_csv("{}", keep_default_na=False, na_values=[""])',
            "dta": 'pd.read_stata("{}")',
            "sav": 'pd.read_spss("{}")',
        },
        setup=(
            "import pandas as pd",
            "import statpress",
            "import statsmodels.formula.api as smf",
        ),
        line="{name} = {read}",
        asked='release = statpress.open({asked})\nrelease.mean("y", by="x")',
        copied=dict.fromkeys(_R, _COPIES_IN_PYTHON),
    ),
    "R": Language(
        "r",
        _R,
        line="{name} <- {read}",
        copied=dict.fromkeys(_R, _COPIES_IN_R) | {"dta": _DTA_IN_R},
    ),
    "Stata": Language(
        "stata",
        {"dta": 'use "{}", clear', "csv": 'import delimited "{}", clear'},
        copied={"dta": _DTA_IN_STATA, "csv": _CSV_IN_STATA},
    ),
    "SPSS": Language("spss", {"sav": "GET FILE='{}'."}, copied={"sav": _COPIES_IN_SPSS}),
}


def usage_section(package: Mapping[str, Any], *, of_units: bool = False) -> str:
    """The section as Markdown, which ends with a line break; empty where no file is a table.

    Args:
        package: Of the bundle.
        of_units: Whether a unit may have several records, which copies do not tell apart.
    """
    files: dict[str, dict[str, Mapping[str, Any]]] = {}
    for resource in package["resources"]:
        if "schema" in resource:
            stem = PurePosixPath(resource["path"]).stem
            files.setdefault(stem, {})[resource["format"]] = resource
    if not files:
        return ""
    copied = next((stem for stem in files if f"{stem}_copies" in files), None)
    asked = next((stem for stem in files if f"{stem}_pairs" in files), None)
    main = copied or asked or next(iter(files))
    several = len({each.get("product") for each in package["resources"]}) > 1
    opened = f'".", product="{main}"' if several else '"."'
    blocks = {}
    for title, language in LANGUAGES.items():
        if not language.reads.keys() & files[main].keys():
            continue
        name = re.sub(r"\W", "_", f"data_{main}" if main[0].isdigit() else main)
        read, _ = _reading(language, files[main])
        used = zip(language.setup, (main, asked, copied), strict=True)
        setup = [line for line, use in used if line and use]
        lines = [language.line.format(name=name, read=read)]
        lines += [language.asked.format(asked=opened)] if asked and language.asked else []
        copies = files.get(f"{main}_copies", {})
        alone = of_units and title != "Python"  # it would take records of one unit as unrelated
        if copies.keys() & language.reads.keys() and language.copied and not alone:
            read, resource = _reading(language, copies)
            *_, record, copy = (field["name"] for field in resource["schema"]["fields"])
            code = language.copied[resource["format"]]
            lines.append(code.format(read=read, copy=copy, record=record))
        code = "\n".join([*setup, *([""] if setup else []), *lines])
        blocks[title] = f"```{language.fence}\n{code}\n```"
    return markdown("using.md.jinja", blocks=blocks, copied=copied)


def _reading(
    language: Language, files: Mapping[str, Mapping[str, Any]]
) -> tuple[str, Mapping[str, Any]]:
    """What reads a table from the file that a language likes best, and that file."""
    resource = next(files[form] for form in language.reads if form in files)
    return language.reads[resource["format"]].format(resource["path"]), resource


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


CITATION_NAME = "CITATION.cff"


def contributor(package: Mapping[str, Any], role: str) -> Mapping[str, Any] | None:
    """Who has a role, ``publisher`` or ``contact``; None if nobody is named."""
    named = (each for each in package.get("contributors", ()) if each.get("role") == role)
    return next(named, None)


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
    """A README with its sections of use and publication, in place of those that it may have."""
    for heading in (USAGE, HEADING):
        text, _, _ = text.partition(f"\n{heading}\n")
    sections = (
        text,
        usage_section(package, of_units=OF_UNITS in text),
        publication_section(package),
    )
    return "\n\n".join(each.rstrip() for each in sections if each) + "\n"


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
