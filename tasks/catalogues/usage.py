"""The section of a bundle's README that says how its files are loaded in Python, R, Stata and SPSS.

It needs nothing but the data package, so a reprint in other formats has lines of its own. Sources:
Lumley, R packages mitools (``imputationList``, ``MIcombine``) and survey (``svydesign``); Stata
Multiple-Imputation Reference Manual, "mi import flong" and "mi estimate"; IBM SPSS Missing Values,
"Analyzing Multiple Imputation Data".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from statpress.tasks.pages.rendering import markdown

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
_CSV_IN_STATA = "{read}\nstatsby _b _se, by({copy}) clear: regress y x"
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


def usage_section(package: Mapping[str, Any]) -> str:
    """The section as Markdown, which ends with a line break; empty where no file is a table."""
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
        if copies.keys() & language.reads.keys() and language.copied:
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
