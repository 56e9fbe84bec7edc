"""``report.html``: a bundle on one page, for reading; made from its public files only.

A bundle's public statements, read for its report.
The columns of a release: what they mean, their units, ranges and values.
How well the people behind a release are protected: for everybody, then for experts.
A product's section: its kind's part, with files, mechanism, and what was expected of it.
Where a release comes from, and how whoever has it can check that.
The head of a report: what is published, by whom, how well protected, and how good it is.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from statpress.configs.sources import AnySourceConfig
from statpress.configs.yaml_text import parse
from statpress.mechanisms.accounting.trade_off import missed_by_points
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.planning.plan import Verdict
from statpress.tasks.catalogues.data_package import ColumnFacts, citation, column_facts
from statpress.tasks.catalogues.metadata_files import sdmx_paths
from statpress.tasks.pages.blocks import (
    Bars,
    Block,
    Chart,
    Curves,
    Fact,
    Facts,
    Gallery,
    Grid,
    Line,
    Page,
    Prose,
    Section,
    Text,
    code,
    link,
    marked,
)
from statpress.tasks.pages.numbers import count, measured, size
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.kinds import kind_named
from statpress.tasks.products.product_kind import ReportPart
from statpress.tasks.report import privacy_page
from statpress.tasks.report.parameter_words import expected_rows, parameter_rows
from statpress.tasks.report.privacy_page import amount, cited, right_guesses, short, subject


@dataclass(frozen=True)
class PublicWords:
    """What a report is made of besides the data files.

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
        return cls(folder, stated, package, manifest)

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

    def source_kind(self) -> str | None:
        """What the records were counted from, in words without its place; None if unknown."""
        path = self.folder / "config.yaml"
        if not path.is_file():
            return None
        try:
            stated = parse(path.read_text(encoding="utf-8"), path.name).value["source"]
            kind: str = TypeAdapter(AnySourceConfig).validate_python(stated).kind
        except (ConfigError, ValidationError, KeyError, TypeError):
            return None  # of another version
        return kind

    @property
    def created(self) -> str:
        """When it was made, such as ``23 November 2026``."""
        day = datetime.datetime.fromisoformat(self.manifest["created"])
        return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"

    def contributors(self, role: str) -> Sequence[Mapping[str, str]]:
        """Publisher or contact, as far as they are named."""
        return [e for e in self.package.get("contributors", ()) if e.get("role") == role]

    def _owner(self, path: str) -> str | None:
        """The product of a file: the longest name that its own begins with."""
        stem = Path(path).stem
        owners = [n for n in self.stated["products"] if stem == n or stem.startswith(f"{n}_")]
        return max(owners, key=len, default=None)


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
"""In English whatever the machine's language."""


_MOST_VALUES = 12
_NOTE = (
    "What the columns of the source mean that this release was made of. Which values and cells "
    "there are was declared without looking at the data. `codebook.md` says it in full, with every "
    "column of every file."
)


def columns_section(words: PublicWords) -> Section | None:
    """A row for each column that is described; None where none is."""
    found = column_facts(words.package)
    if not found:
        return None
    rows = [_row(column) for column in found]
    kept = [place for place in range(4) if any(row[place] for row in rows)]
    grid = Grid(
        [("column", "meaning", "unit", "values")[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
    )
    return Section("columns", "What the columns mean", [Prose([marked(_NOTE)]), grid])


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


def privacy_section(words: PublicWords) -> Section:
    """Protection in natural frequencies with a picture, then all figures."""
    stated = words.stated
    return Section(
        "privacy",
        "How people are protected",
        _for_everybody(stated),
        [_limits(stated), _for_experts(stated)],
    )


def _for_everybody(stated: privacy_page.Stated) -> list[Block]:
    what, right = (
        privacy_page.subject(stated),
        privacy_page.right_guesses(stated["attack_advantage"]),
    )
    if "trade_off" in stated:
        paragraphs = [marked(text) for text in privacy_page.in_short(stated)]
    else:
        paragraphs = [
            marked(
                f"Imagine somebody who knows everything in the data but {what}, and must decide "
                "between two candidates for it, either as likely as the other. By tossing a coin "
                "they would be right 50 times in 100. With this release in hand no method is "
                f"right more than **{right} times in 100**."
            )
        ]
    names = ["by tossing a coin", "with this release", "with the data themselves"]
    chart = Chart(
        "How often an attacker guesses right, of 100 times",
        Bars(names, [50.0, float(right), 100.0], axis="right guesses of 100, at most"),
        f"Tossing a coin: 50. With this release: at most {right}. With the confidential data: 100.",
        Grid(
            ("with", "right of 100, at most"),
            [
                (names[0], "50"),
                (names[1], right),
                (names[2], "100"),
            ],
            title="Figures",
            folded=True,
        ),
    )
    return [Prose(paragraphs), chart]


def _limits(stated: privacy_page.Stated) -> Section:
    """What is not protected, a paragraph each."""
    outside = stated.get("not_covered") or [stated["outside_the_guarantee"]]
    return Section(
        "privacy-limits", "What this does not cover", [Prose([marked(text) for text in outside])]
    )


def _for_experts(stated: privacy_page.Stated) -> Section:
    rows = [Fact(*row) for row in privacy_page.parameter_rows(stated)]
    blocks: list[Block] = [
        Prose([marked(text) for text in privacy_page.unit_sentences(stated)]),
        Facts(rows),
        Prose([stated["meaning"], *map(marked, privacy_page.delta_sentences(stated))]),
        Gallery([_delta_curve(stated), _trade_off(stated)]),
        *_products(stated),
    ]
    if "lifetime" in stated:
        blocks += [
            Prose([marked(text) for text in privacy_page.lifetime_sentences(stated)]),
            Grid(
                ("measure", "spent before", "by this release", "left", "limit"),
                privacy_page.lifetime_rows(stated),
                title="What all releases of this dataset have spent",
            ),
        ]
    return Section("privacy-experts", "For experts", blocks)


def _delta_curve(stated: privacy_page.Stated) -> Chart:
    """Delta over epsilon, both bounds."""
    points = stated["curve"]
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
        f"Delta falls from {privacy_page.short(points[0]['delta_upper'])} at epsilon 0 to "
        f"{privacy_page.short(points[-1]['delta_upper'])} "
        f"at {privacy_page.short(points[-1]['epsilon'])}.",
        Grid(
            ("ε", "δ is at least", "δ is at most"),
            privacy_page.curve_rows(stated),
            title="Figures",
            folded=True,
        ),
        note,
    )


def _trade_off(stated: privacy_page.Stated) -> Chart:
    """Misses over false alarms of the best attack that is not excluded."""
    points = [(point["epsilon"], point["delta_upper"]) for point in stated["curve"]]
    alarms = [Fraction(each, 100) for each in range(101)]
    missed = missed_by_points(points, alarms)
    lines = [
        Line("no attack is below this", [float(each) for each in alarms], missed),
        Line("tossing a coin", [0.0, 1.0], [1.0, 0.0]),
    ]
    shown = (1, 5, 10, 25, 50)
    cells = [(f"{a} %", f"{privacy_page.per_hundred(missed[a], ROUND_FLOOR)} %") for a in shown]
    return Chart(
        "What any attack misses at least",
        Curves(lines, "false alarms", "misses", from_zero=True),
        f"With 5 % false alarms at least {cells[1][1]} are missed.",
        Grid(("false alarms", "misses, at least"), cells, title="Figures", folded=True),
        "The trade-off function, from the points of the curve of δ; the nearer to the straight "
        "line, the less an attack gains.",
    )


def _products(stated: privacy_page.Stated) -> list[Block]:
    """Each mechanism with its loss and where it is from."""
    rows = []
    for name, product in stated["products"].items():
        alone = (
            f"{privacy_page.amount(product['epsilon'])} at {privacy_page.amount(product['delta'])}"
        )
        rows.append((name, product["mechanism"], alone, privacy_page.cited(stated, name)))
    return [
        Grid(("product", "mechanism", "ε at δ, alone", "source"), rows, title="Mechanisms"),
        Prose(
            [
                *map(marked, privacy_page.composition_sentences(stated)),
                marked(f"*ε at δ, alone:* {privacy_page.EXPLANATIONS['products.epsilon']}"),
            ],
            "note",
        ),
    ]


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


def provenance_section(words: PublicWords) -> Section:
    """How to verify, and the numbers that this goes by."""
    manifest = words.manifest
    lead = Prose(
        [
            "To check that these are the files which were released, unchanged, run statpress "
            "verify on the folder that holds them. It needs neither the data nor the "
            "publisher: manifest.json has the size and hash of every file, and a seal over all.",
            "If there is a file signature.json, the publisher has signed that seal: with --key and "
            "the publisher's public key the same command says whether it was they.",
        ]
    )
    rows = [
        Fact("Command", code("statpress verify FOLDER"), "The folder is that of this page."),
        Fact("Run", code(manifest["run_id"]), f"Made at {manifest['created']}."),
    ]
    entry = manifest.get("ledger_entry")
    if entry:
        rows.append(
            Fact(
                "Entry in the publisher's ledger",
                code(f"{entry['sequence']}: {entry['hash']}"),
                "Where the privacy loss was charged before anything was drawn; the ledger is a "
                "chain of hashes, and its publisher can show this entry.",
            )
        )
    source = words.source_kind()
    if source is not None:
        rows.append(Fact("Counted from", source, "The confidential records; none is copied here."))
    rows += [
        Fact(
            "Hash of the config",
            code(manifest["config_sha256"]),
            "SHA-256 of config.yaml, which says everything that was asked for.",
        ),
        Fact(
            "Made with",
            ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        ),
    ]
    if manifest["overrides"]:
        listed = [f"{each['key']} = {each['value']}" for each in manifest["overrides"]]
        rows.append(Fact("Set apart from the config", "; ".join(listed)))
    if manifest.get("supersedes"):
        rows.append(Fact("Follows the release with the seal", code(manifest["supersedes"])))
    return Section("provenance", "Origin, and how to verify", [lead, Facts(rows)])


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
