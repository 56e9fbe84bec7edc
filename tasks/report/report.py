"""``report.html``: a bundle on one page, for reading; made from its public files only.

The prose of the page is in the template ``report.html.jinja``, and what it says of the guarantee in
``privacy_words.md.jinja``. Here are the values that these show, the charts and tables, and the
section of each product, which its kind makes.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from statpress.configs.series import stated_series
from statpress.configs.sources import AnySourceConfig
from statpress.configs.yaml_text import parse
from statpress.mechanisms.accounting.trade_off import missed_by_points
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.workload import workload_words
from statpress.mechanisms.mechanism import shown
from statpress.mechanisms.planning.plan import ADVICE, Verdict
from statpress.tasks.catalogues.data_package import ColumnFacts, column_facts
from statpress.tasks.catalogues.metadata_files import sdmx_paths
from statpress.tasks.catalogues.usage import citation
from statpress.tasks.pages.blocks import (
    Bars,
    Block,
    Chart,
    Curves,
    Gallery,
    Grid,
    Line,
    Page,
    Prose,
    Section,
    Text,
    link,
    marked,
)
from statpress.tasks.pages.numbers import amount, measured, per_hundred, share, short, size
from statpress.tasks.pages.rendering import paragraphs, rendered
from statpress.tasks.products.answer_words import kept_words
from statpress.tasks.products.product_kind import ReportPart, kind_named
from statpress.tasks.report.privacy_page import Protection

if TYPE_CHECKING:
    from markupsafe import Markup

NAME = "report.html"
UNSHOWN = "This page could not show {}. Its files are whole, and say everything."
"""In place of a product's part that could not be made."""
_LOG = logging.getLogger(__name__)
_REHEARSED = "NOT PUBLISHABLE: a rehearsal on made-up data, which says nothing about anybody."
_SEEDED = "NOT PUBLISHABLE: drawn from a known seed, for tests only. No guarantee holds."
_MOST_VALUES = 12
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
"""In English whatever the machine's language."""
_TITLE = "Mechanism, parameters, and the errors expected before anything was drawn"
_CHOSEN = (
    "Known without any data. Mechanisms were compared before the parameters of all products were "
    "settled together, so that a figure may differ a little from the one expected below."
)
PARAMETERS: Mapping[str, str] = {
    "scale": "How wide the noise on each count is spread.",
    "pseudocount": "Added to the count of every cell before records are drawn, so that every "
    "combination of values can occur; the estimates have it taken off again.",
    "records": "How many synthetic records are drawn.",
    "published_records": "How many synthetic records are published.",
    "blocks": "Neighbouring cells that share a further noisy count.",
    "uniform": "This share of the records is drawn from nothing but the list of cells.",
    "bins": "Into how many cells a column is cut.",
    "bandwidth": "How far the estimate is smoothed.",
    "degree": "How fine a shape the released polynomial can take.",
    "order": "How often the approximation is repeated; the more often, the less it is smoothed.",
    "shape": "What the function is known to be, and made to be.",
    "noise": "The distribution that the noise is drawn from.",
    "confidence": "How often an interval holds the true value.",
    "replicates": "How often the records are drawn again to see how estimates vary.",
    "subsamples": "Into how many parts the records are split.",
    "subsample_size": "How many records each part has.",
    "mu": "The whole loss as the distance of two normal distributions that it is as hard to tell "
    "apart (Gaussian differential privacy).",
    "groups": "Which tables of several columns get noise and are published.",
    "within_cells": "Where in its cell a number of the synthetic records lies.",
    "epsilon_per_record": "What the choice of one quantile costs.",
    "distance": "How near the drawn records are kept to the confidential ones.",
    "candidates": "Among how many synthetic tables one is chosen.",
}
"""By the name of a parameter what it does; others are left to ``privacy.json``."""

_EXPECTED: Mapping[str, tuple[str, str]] = {
    "cell_sd_average": ("typical standard error of a cell", "In records, over all cells."),
    "cell_sd_empty": ("standard error of an empty cell", "In records."),
    "cell_sd_most": ("standard error of the fullest cell that there could be", "In records."),
    "total_variation": (
        "share of records in the wrong cell, estimates as they are",
        "Total variation distance between estimates and source, at most, on average.",
    ),
    "projected_total_variation": (
        "share of records in the wrong cell, negative counts corrected",
        "The same of the file's column 'projected'.",
    ),
    "kolmogorov_smirnov": (
        "largest error of a cumulative share",
        "Kolmogorov-Smirnov distance, on average.",
    ),
    "one_way_total_variation": (
        "share of records in the wrong cell, of one column",
        "Total variation distance of the distribution of a single column, on average.",
    ),
    "pair_total_variation": (
        "share of records in the wrong cell, of two columns",
        "The same of the joint table of two columns.",
    ),
    "independent_total_variation": (
        "the same if no pair were measured",
        "Of records in which no column says anything of another.",
    ),
    "least_association": (
        "weakest relation of which the records keep half, as Cramér's V",
        "Of three pairs in five; weaker ones are mostly lost.",
    ),
    "least_slope": (
        "weakest slope that the records keep",
        "In standard deviations of one column for one of the other.",
    ),
    "uniform_share": (
        "share of records that are uniform",
        "They were drawn from the list of cells; the estimates have them taken off.",
    ),
    "width": ("width of the interval", "In the units of the quantity."),
    "noise_sd": (
        "standard deviation of the noise in the estimate",
        "In the units of the quantity, without the sampling of the records.",
    ),
    "sup_error": ("largest error of the function", "In its units, at the worst point."),
    "bound_95": (
        "largest error of the function, with 95 %",
        "Whatever the data are, it is not above this more often than 1 time in 20.",
    ),
    "noise": ("what noise adds to the largest error", "In the units of the function."),
    "approximation": (
        "what the polynomial misses of the function",
        "In its units; without any noise there would be this error still.",
    ),
    "noise_sd_middle": ("standard deviation of the noise in the middle", "In its units."),
    "confidence": ("level of the bands", "How often no limit is wrong."),
    "cell_band_records": ("half the width of the band of cells", "In records."),
    "cell_band_share": ("half the width of the band of cells", "In shares of the population."),
    "cumulative_band_records": ("half the width of the cumulative band", "In records."),
    "cumulative_band_share": (
        "half the width of the band of the distribution function",
        "In shares of the population.",
    ),
}
"""By the name of an expected error its words, and what it means."""

_ALSO = "An expected error by which plans are compared."
_SHARES = ("total_variation", "uniform_share", "kolmogorov_smirnov", "band_share")
Parts = Mapping[str, ReportPart]


def write_report(folder: Path, manifest: Mapping[str, Any], *, pictures: bool = True) -> list[str]:
    """Write the page of a bundle, from ``privacy.json``, ``datapackage.json`` and ``data/``.

    The page asks no other host for anything, and holds no script. Without data files, as in a
    rehearsal, it is the same page without what is drawn.

    Args:
        folder: Of the bundle, which has no manifest yet.
        manifest: The facts that the manifest will have.
        pictures: Whether charts are drawn; if not, their figures stand as tables.

    Returns:
        What the report, and the bundle's README, begin with.
    """
    words = PublicWords.of(folder, manifest)
    parts = {name: _part(words, name) for name in words.stated["products"]}
    page = _page(words, parts, pictures=pictures)
    (folder / NAME).write_text(page, encoding="utf-8")
    return [part.opening for part in parts.values() if part.opening]


def _page(words: PublicWords, parts: Parts, *, pictures: bool) -> str:
    stated, protection = words.stated, Protection(words.stated)
    products = said_once([product_section(words, name, part) for name, part in parts.items()])
    publisher = "; ".join(each["title"] for each in words.contributors("publisher"))
    by = f" by {publisher}" if publisher else ""
    return rendered(
        Page(
            words.package["title"],
            products,
            subtitle=f"Rehearsed on {words.created}"
            if stated.get("rehearsal")
            else f"Published{by} on {words.created}",
            marks=_marks(words),
            banner=_REHEARSED if stated.get("rehearsal") else "",
        ),
        pictures=pictures,
        template="report.html.jinja",
        words=words,
        protection=protection,
        kept_words=kept_words,
        say=lambda macro, tone="": _said(protection, macro, tone),
        figure=next((part.figure for part in parts.values() if part.figure is not None), None),
        openings=[part.opening for part in parts.values() if part.opening],
        relations=next((p.relations for p in parts.values() if p.relations is not None), None),
        contents=contents(words, parts),
        columns=columns_grid(words.package),
        guesses=_guesses(protection),
        curves=Gallery([_delta_curve(protection), _trade_off(stated)]),
        mechanisms=_mechanisms(protection),
        spent=_spent(protection) if "lifetime" in stated else None,
    )


def _said(protection: Protection, macro: str, tone: str) -> Markup:
    """Paragraphs of what a privacy statement means."""
    from markupsafe import Markup

    opening = Markup('<p class="{}">').format(tone) if tone else Markup("<p>")
    texts = paragraphs("privacy_words.md.jinja", macro, protection)
    return Markup("\n").join(opening + text + Markup("</p>") for text in texts)


@dataclass(frozen=True)
class PublicWords:
    """What a report is made of besides the data files, and what its template says of that.

    Attributes:
        folder: Of the bundle.
        stated: ``privacy.json``.
        package: ``datapackage.json``.
        manifest: The facts that the manifest will have: run, time, versions, what it follows.
    """

    folder: Path
    stated: Mapping[str, Any]
    package: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, manifest: Mapping[str, Any]) -> PublicWords:
        """Read them out of the folder of a bundle."""
        stated, package = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("privacy.json", "datapackage.json")
        )
        absent = dict.fromkeys(("ledger_entry", "supersedes", "reprint_of"))
        return cls(folder, stated, package, absent | dict(manifest))

    def resources(self, product: str) -> Sequence[Mapping[str, Any]]:
        """The files of a product; those of a bundle that does not say go by their names."""
        return [
            each
            for each in self.package["resources"]
            if each.get("product", self._owner(each["path"])) == product
        ]

    def words(self, product: str) -> Mapping[str, str]:
        """What the config says of a product: ``title`` and ``description``, if it does."""
        own = (each for each in self.package.get("products", ()) if each["name"] == product)
        return next(own, {})

    def title_of(self, product: str) -> str:
        """A product's title, or its name."""
        return self.words(product).get("title", product)

    @functools.cached_property
    def _config(self) -> Any:
        """The values of ``config.yaml``; None if it cannot be read."""
        path = self.folder / "config.yaml"
        try:
            return parse(path.read_text(encoding="utf-8"), path.name).value
        except (ConfigError, FileNotFoundError):
            return None

    @functools.cached_property
    def source_kind(self) -> str | None:
        """What the records were counted from, in words without its place; None if unknown."""
        try:
            stated = self._config["source"]
            kind: str = TypeAdapter(AnySourceConfig).validate_python(stated).kind
        except (ValidationError, KeyError, TypeError):
            return None  # of another version
        return kind

    @property
    def period(self) -> str:
        """Of a series the period that the release is of; empty for other releases."""
        series = stated_series(self._config)
        return "" if series is None or series.of is None else str(series.of)

    @property
    def created(self) -> str:
        """When it was made, such as ``23 November 2026``."""
        day = datetime.datetime.fromisoformat(self.manifest["created"])
        return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"

    def contributors(self, role: str) -> Sequence[Mapping[str, str]]:
        """Publisher or contact, as far as they are named."""
        return [e for e in self.package.get("contributors", ()) if e.get("role") == role]

    @property
    def description(self) -> list[str]:
        """The publisher's words about the release, in paragraphs."""
        text = self.package.get("description")
        return text.split("\n\n") if text else []

    @property
    def odds(self) -> float:
        """By how much one unit's data can move the odds of a guess, at most."""
        return math.exp(min(float(self.stated["epsilon"]), 50))

    @property
    def spent_before(self) -> float | None:
        """The epsilon that earlier releases had spent; None if the account is not of epsilon."""
        before = self.stated.get("lifetime", {}).get("spent_before", {})
        return float(before["epsilon"]) if "epsilon" in before else None

    @property
    def limits(self) -> list[Markup]:
        """What is not protected, a paragraph each."""
        return [marked(text) for text in Protection(self.stated).not_covered]

    @property
    def citation(self) -> str:
        """How to cite it."""
        return citation({"created": self.manifest["created"], **self.package})

    @property
    def contacts(self) -> Text:
        """Whom to ask; empty if nobody is named."""
        return _joined(map(self.party, self.contributors("contact")))

    @property
    def licences(self) -> Text:
        """On what terms it may be used; empty if nobody says."""
        return _joined(map(self._licence, self.package.get("licenses", ())))

    @property
    def versions(self) -> str:
        """Of what the bundle was made with."""
        return ", ".join(f"{name} {version}" for name, version in self.manifest["versions"].items())

    @property
    def about(self) -> Iterator[tuple[str, Text]]:
        """What else the config says of the release."""
        package = self.package
        if temporal := package.get("temporal"):
            ends = [temporal[key] for key in ("start", "end") if key in temporal]
            yield "Period", " to ".join(dict.fromkeys(ends))
        if spatial := package.get("spatial"):
            path = spatial.get("path", "")
            yield "Place", link(path, spatial.get("title", path))
        if keywords := package.get("keywords"):
            yield "Keywords", ", ".join(keywords)
        if homepage := package.get("homepage"):
            yield "More", link(homepage, homepage)

    def settings(self, equals: str, separator: str) -> str:
        """What was set apart from the config."""
        overrides = self.manifest["overrides"]
        return separator.join(f"{each['key']}{equals}{each['value']}" for each in overrides)

    def party(self, named: Mapping[str, str]) -> Markup:
        """A person or an office, with their address."""
        from markupsafe import escape

        title = named["title"]
        shown = link(named["path"], title) if "path" in named else escape(title)
        if "email" in named and named["email"] != title:
            return shown + ", " + link(f"mailto:{named['email']}", named["email"])
        return link(f"mailto:{title}", title) if "email" in named else shown

    def _licence(self, licence: Mapping[str, str]) -> Markup:
        from markupsafe import escape

        title = licence.get("title") or licence.get("name") or licence["path"]
        return link(licence["path"], title) if "path" in licence else escape(title)

    def _owner(self, path: str) -> str | None:
        """The product of a file: the longest name that its own begins with."""
        stem = Path(path).stem
        owners = [n for n in self.stated["products"] if stem == n or stem.startswith(f"{n}_")]
        return max(owners, key=len, default=None)


def columns_grid(package: Mapping[str, Any]) -> Grid | None:
    """A row for each column that is described; None where none is."""
    rows = [_row(column) for column in column_facts(package)]
    kept = [place for place in range(4) if any(row[place] for row in rows)]
    headings = [("column", "meaning", "unit", "values")[place] for place in kept]
    return Grid(headings, [[row[place] for place in kept] for row in rows]) if rows else None


def _row(column: ColumnFacts) -> Sequence[Text]:
    said = [text.rstrip(".") for text in (column.title, column.description) if text]
    return column.name, ". ".join(said), column.unit, _values(column)


def _values(column: ColumnFacts) -> str:
    """A range with its cells, or the categories with their labels."""
    listed = [f"{value} = {label}" if label else value for value, label in column.categories]
    if listed:
        said = "; ".join(listed[:_MOST_VALUES])
        more = len(listed) - _MOST_VALUES
        said += f"; and {more:,} more" if more > 0 else ""
        said += "; or other" if "for all others" in column.cells else ""
    else:
        said = "; ".join(each for each in (column.range, column.cells.partition(";")[0]) if each)
    return said + ("; or missing" if "cell of their own" in column.missing else "")


def _guesses(protection: Protection) -> Chart:
    """How often an attacker is right."""
    right = protection.right
    names = ["by tossing a coin", "with this release", "with the data themselves"]
    rows = list(zip(names, ("50", right, "100"), strict=True))
    return Chart(
        "How often an attacker guesses right, of 100 times",
        Bars(names, [50.0, float(right), 100.0], axis="right guesses of 100, at most"),
        f"Tossing a coin: 50. With this release: at most {right}. With the confidential data: 100.",
        Grid(("with", "right of 100, at most"), rows, title="Figures", folded=True),
    )


def _delta_curve(protection: Protection) -> Chart:
    """Delta over epsilon, both bounds."""
    points = protection.stated["curve"]
    epsilon = [point["epsilon"] for point in points]
    bounds = [
        [point[key] if point[key] > 0 else math.nan for point in points]
        for key in ("delta_upper", "delta_lower")
    ]
    lines = [
        Line(label, epsilon, bound)
        for label, bound in zip(("guaranteed", "proven lower bound"), bounds, strict=True)
        if np.isfinite(bound).any()
    ]
    note = "Between the points that were computed the lines are straight."
    return Chart(
        "The smallest δ that holds with each ε",
        Curves(lines, "ε", "δ", log_y=bool(lines)),
        f"Delta falls from {short(points[0]['delta_upper'])} at epsilon 0 to "
        f"{short(points[-1]['delta_upper'])} "
        f"at {short(points[-1]['epsilon'])}.",
        Grid(
            ("ε", "δ is at least", "δ is at most"),
            protection.curve_rows,
            title="Figures",
            folded=True,
        ),
        note,
    )


def _trade_off(stated: Mapping[str, Any]) -> Chart:
    """Misses over false alarms of the best attack that is not excluded."""
    points = tuple((point["epsilon"], point["delta_upper"]) for point in stated["curve"])
    alarms = tuple(Fraction(each, 100) for each in range(101))
    missed = missed_by_points(points, alarms)
    lines = [
        Line("no attack is below this", [float(each) for each in alarms], missed),
        Line("tossing a coin", [0.0, 1.0], [1.0, 0.0]),
    ]
    shown = (1, 5, 10, 25, 50)
    cells = [(f"{a} %", f"{per_hundred(missed[a], ROUND_FLOOR)} %") for a in shown]
    return Chart(
        "What any attack misses at least",
        Curves(lines, "false alarms", "misses", from_zero=True),
        f"With 5 % false alarms at least {cells[1][1]} are missed.",
        Grid(("false alarms", "misses, at least"), cells, title="Figures", folded=True),
        "The trade-off function, from the points of the curve of δ; the nearer to the straight "
        "line, the less an attack gains.",
    )


def _mechanisms(protection: Protection) -> Grid:
    """Each mechanism with its loss and where it is from."""
    rows = []
    for name, product in protection.stated["products"].items():
        mechanism = product["mechanism"]
        alone = f"{amount(product['epsilon'])} at {amount(product['delta'])}"
        rows.append((name, mechanism, alone, protection.cited(mechanism)))
    return Grid(("product", "mechanism", "ε at δ, alone", "source"), rows, title="Mechanisms")


def _spent(protection: Protection) -> Grid:
    """The account."""
    return Grid(
        ("measure", "spent before", "by this release", "left", "limit"),
        protection.lifetime_rows,
        title="What all releases of this dataset have spent"
        + (", of one person" if "design" in protection.stated["lifetime"] else ""),
    )


def contents(words: PublicWords, parts: Parts) -> Grid:
    """A line for each product, with its files."""
    rows: list[Sequence[Text]] = []
    for name, part in parts.items():
        stems = dict.fromkeys(Path(each["path"]).stem for each in words.resources(name))
        paths = (path for stem in stems for path in sdmx_paths(stem))
        in_sdmx = ({"path": path} for path in paths if (words.folder / path).is_file())
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


def _joined(listed: Iterable[Text]) -> Markup:
    from markupsafe import Markup

    return Markup(", ").join(listed)


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
        blocks=[
            *before,
            *part.section.blocks,
            _made(words, name),
        ],
    )


def noise_warning(stated: Mapping[str, Any]) -> str:
    """What a reader must know of a product whose verdict a config has to accept; else empty."""
    found = Verdict.stated(stated)
    if found is None or found.name not in ADVICE:
        return ""
    known = (
        "Whoever published it accepted that"
        if stated["verdict"].get("accepted", True)
        else "Therefore"
    )
    return f"This is {found.words}. {known}: {ADVICE[found.name]}."


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


def _made(words: PublicWords, name: str) -> Grid:
    """Mechanism, parameters and expected errors, folded away."""
    stated = words.stated["products"][name]
    works = Protection(words.stated).cited(stated["mechanism"])
    rows = [("mechanism", stated["mechanism"], works or "By which it was made private.")]
    if "function" in stated:
        rows.append(("function", str(stated["function"]), "What was released."))
    rows.append(("columns", ", ".join(stated["columns"]), "Of the source, that it is made of."))
    if "chosen" in stated:
        rows.append(("why this mechanism", str(stated["chosen"]), _CHOSEN))
    rows += _parameter_rows(stated)
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
    rows += [(f"expected: {label}", value, said) for label, value, said in _expected_rows(stated)]
    return Grid(("what", "value", "meaning"), rows, title=_TITLE, folded=True)


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
    rehearsal = stated.get("rehearsal", False)
    found = [] if stated["publishable"] else [_REHEARSED if rehearsal else _SEEDED]
    found += stated.get("warnings", [])
    for verdict in ADVICE:
        named = [
            name
            for name, each in stated["products"].items()
            if each.get("verdict", {}).get("name") == verdict
        ]
        if named:
            found.append(f"{verdict.replace('_', ' ').capitalize()}: {', '.join(named)}.")
    return found


def _parameter_rows(stated: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The parameters of a product's mechanism: name, value, what it does."""
    if "workload" in stated:
        stated = {**stated, "groups": workload_words(stated["workload"])}
    for name, explanation in PARAMETERS.items():
        for label, value in shown({k: v for k, v in stated.items() if k == name}):
            # Noise of estimates and functions is on a grid, whose steps mean nothing.
            if name == "scale" and ("quantity_1" in stated or "step_bits" in stated):
                continue
            yield label, value, explanation


def _expected_rows(stated: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What errors were expected before anything was drawn: name, value, what it means."""
    compared = kind_named(stated["kind"], stated["mechanism"]).core.compared
    for name, value in stated["expected_error"].items():
        known = _EXPECTED.get(name)
        if known is None and name in compared:
            known = compared[name], _ALSO
        values = value if isinstance(value, list) else [value]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if known is None or not numbers or (name == "uniform_share" and not any(numbers)):
            continue
        write = share if name.endswith(_SHARES) else measured
        yield known[0], ", ".join(write(number) for number in numbers), known[1]
