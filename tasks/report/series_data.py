"""The figures of a series over its periods, from the public files of its bundles only.

A bundle counts if its seal holds, it may be published, and it says itself that it is of this series
and of the period in whose folder it lies. Of several bundles of a period the one counts that no
other supersedes. Neither ledger nor source is asked.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from statpress.configs.series import MARK, SeriesConfig, stated_series
from statpress.configs.yaml_text import parse
from statpress.mechanisms.errors import BundleVerificationError, StatpressError
from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.bundle.manifest import CONFIG, understood, verify_bundle
from statpress.tasks.catalogues.linked_data import Publication
from statpress.tasks.pages.blocks import PlaceMap
from statpress.tasks.products.distributions import TrackedFigure
from statpress.tasks.products.product_kind import kind_named

COLUMNS: Mapping[str, tuple[str, str]] = {
    "period": ("string", "The period of the release, as ISO 8601 and SDMX write it."),
    "product": ("string", "The product of the release that the figure is of."),
    "figure": (
        "string",
        "'share': of the records that have the category, of those that are missing in no column "
        "named; 'weighted share': the same by survey weights; or what is estimated.",
    ),
    "column": ("string", "Of a share, the column; null of an estimate."),
    "category": ("string", "Its value, as the files of the bundle have it."),
    "column_2": ("string", "Of a share of two columns together, the second column."),
    "category_2": ("string", "Its value."),
    "value": ("number", "As released; may lie outside what is possible. Null: there is none."),
    "lower": ("number", "Lower end of the interval. Null: it has none, or none is known."),
    "upper": ("number", "Upper end of the interval. Null: it has none, or none is known."),
    "standard_error": ("number", "Of the value. Null: it is not known."),
    "confidence": (
        "number",
        "Level of the interval, of each figure by itself. Null: none is known.",
    ),
    "of": (
        "string",
        "What the interval is about: 'records', those that were counted, so that it allows for "
        "noise only; or 'population', so that it allows for their sampling too.",
    ),
    "definition": (
        "integer",
        "1, then one more from each period on in which the columns of the figure are declared "
        "otherwise than before. Figures of different definitions are not comparable as they are.",
    ),
    "bundle": ("string", "Path of the bundle, from the folder of this file."),
}
"""Columns of ``series.csv``: type and description."""
KEYS = ("product", "figure", "column", "category", "column_2", "category_2")
"""Those that tell the lines of a series apart."""
_MOST_WORDS = 60
_WORDS = ("title", "description")

Row = Mapping[str, Any]


class Line(NamedTuple):
    """What a line of the series is of: its product, its name, and the columns with their values."""

    product: str
    figure: str
    cell: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Break:
    """A column that is declared otherwise than in the bundle before.

    Attributes:
        period: From which on.
        column: Its name.
        words: What changed, as sentences.
        cuts: Whether figures before and after are not comparable; else only words changed.
    """

    period: SeriesPeriod
    column: str
    words: str
    cuts: bool


@dataclass(frozen=True)
class SeriesBundle:
    """A bundle of a period.

    Attributes:
        path: From the folder of the series.
        period: That it is of.
        manifest: Its verified manifest.
        config: The values of its config.
        publication: Its public files.
    """

    path: str
    period: SeriesPeriod
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    publication: Publication

    @cached_property
    def columns(self) -> Mapping[str, Mapping[str, Any]]:
        """By name the declared columns that the data package describes."""
        package = self.publication.package
        fields = [
            field
            for resource in package["resources"]
            for field in resource.get("schema", {}).get("fields", ())
        ]
        described = (*fields, *package.get("columns", ()))
        return {each["name"]: each for each in described if "declared" in each}

    @cached_property
    def figures(self) -> Mapping[str, list[TrackedFigure]]:
        """By product the figures that a series tracks.

        Raises:
            BundleVerificationError: This version cannot read them.
        """
        publication, found = self.publication, {}
        with understood(publication.folder):
            for name, stated in publication.privacy["products"].items():
                kind = kind_named(stated["kind"], stated["mechanism"])
                own = [e for e in publication.package["resources"] if e.get("product") == name]
                found[name] = list(kind.tracked(publication.folder, name, stated, own))
        return found

    @cached_property
    def maps(self) -> Mapping[str, PlaceMap]:
        """By product the map of its report, if it has one.

        Raises:
            BundleVerificationError: This version cannot read its figures.
        """
        publication, found = self.publication, dict[str, PlaceMap]()
        with understood(publication.folder):
            for name, stated in publication.privacy["products"].items():
                own = [e for e in publication.package["resources"] if e.get("product") == name]
                if "geography" in stated and any(map(_has_outlines, own)):
                    kind = kind_named(stated["kind"], stated["mechanism"])
                    blocks = kind.part(publication.folder, name, stated, own).section.blocks
                    drawn = [each for each in blocks if isinstance(each, PlaceMap)]
                    found |= {name: drawn[0]} if drawn else {}
        return found


def _has_outlines(resource: Mapping[str, Any]) -> bool:
    """Whether a file says what a map of places looks like; there may be a million without one."""
    fields = resource.get("schema", {}).get("fields", ())
    return any(field["name"] == "outline" for field in fields)


@dataclass(frozen=True)
class SeriesData:
    """A series as its bundles have it.

    Attributes:
        bundles: One for each period that has any, in order of time.
        kept: By period its other bundles, which are superseded.
        left_out: By path of a bundle that does not count, why.
    """

    bundles: Sequence[SeriesBundle]
    kept: Mapping[SeriesPeriod, Sequence[SeriesBundle]]
    left_out: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The bundles in the folder of a series, of which none may count.

        Args:
            folder: Of the series, in the publishing directory; named after it.
        """
        found: list[SeriesBundle] = []
        left_out: dict[str, str] = {}
        for place in sorted(folder.glob("*/*")):
            path = place.relative_to(folder).as_posix()
            if place.parent.is_symlink() or not place.is_dir() or "." in (path[0], place.name[0]):
                continue
            try:
                found.append(_read(place, path, folder.name))
            except StatpressError as error:
                left_out[path] = error.what
        if not found:
            return cls((), {}, left_out)
        newest = max(found, key=lambda each: (each.period.end, each.manifest["created"]))
        ours: dict[SeriesPeriod, list[SeriesBundle]] = {}
        for bundle in found:
            if bundle.manifest["dataset"] != newest.manifest["dataset"]:
                left_out[bundle.path] = f"It is of the dataset '{bundle.manifest['dataset']}'."
            elif bundle.period.by != newest.period.by:
                left_out[bundle.path] = f"The series is by {newest.period.by}."
            else:
                ours.setdefault(bundle.period, []).append(bundle)
        chosen = {period: _current(ours[period]) for period in sorted(ours)}
        kept = {
            period: [each for each in ours[period] if each is not current]
            for period, current in chosen.items()
        }
        return cls(list(chosen.values()), kept, left_out)

    @property
    def newest(self) -> SeriesBundle:
        """The bundle of the last period."""
        return self.bundles[-1]

    @property
    def series(self) -> SeriesConfig:
        """The section of the newest config."""
        series = stated_series(self.newest.config)
        assert series is not None  # or the bundle would not count
        return series

    @cached_property
    def periods(self) -> list[SeriesPeriod]:
        """All from the first to the last that has a bundle, those without one too."""
        first, last = self.bundles[0].period, self.newest.period
        return [SeriesPeriod.at(n, first.by) for n in range(first.number, last.number + 1)]

    @property
    def missing(self) -> list[SeriesPeriod]:
        """The periods between that have none."""
        there = {each.period for each in self.bundles}
        return [period for period in self.periods if period not in there]

    @property
    def title(self) -> str:
        """That of the newest config, with the range of its periods for the period."""
        first, last = (str(period) for period in (self.periods[0], self.periods[-1]))
        span = first if first == last else f"{first} to {last}"
        return str(self.newest.config["title"]).replace(MARK, span)

    @cached_property
    def breaks(self) -> list[Break]:
        """Changes of declared columns, by period."""
        known: dict[str, Mapping[str, Any]] = {}
        found = []
        for bundle in self.bundles:
            for name, column in bundle.columns.items():
                if name in known and (change := changed(known[name], column)):
                    found.append(Break(bundle.period, name, *change))
                known[name] = column
        return found

    def cuts(self, columns: Sequence[str]) -> list[SeriesPeriod]:
        """The periods from which on some of these columns are declared otherwise, in order."""
        return sorted({b.period for b in self.breaks if b.cuts and b.column in columns})

    @cached_property
    def lines(self) -> Mapping[Line, Mapping[SeriesPeriod, TrackedFigure]]:
        """By line its figures by period; in the order of the newest bundle that has it."""
        found: dict[Line, dict[SeriesPeriod, TrackedFigure]] = {}
        for bundle in reversed(self.bundles):
            for product, figures in bundle.figures.items():
                for each in figures:
                    line = Line(product, each.name, each.cell)
                    found.setdefault(line, {})[bundle.period] = each
        return found

    def columns_of(self, line: Line) -> Sequence[str]:
        """The columns of the source that a line is about."""
        if line.cell:
            return [name for name, _ in line.cell]
        stated = (each.publication.privacy["products"] for each in reversed(self.bundles))
        return next(list(each[line.product]["columns"]) for each in stated if line.product in each)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of ``series.csv``, by period."""
        cuts = {line: self.cuts(self.columns_of(line)) for line in self.lines}
        for bundle in self.bundles:
            for product, figures in bundle.figures.items():
                for each in figures:
                    line = Line(product, each.name, each.cell)
                    (one, value), (two, other) = (*each.cell, (None, None), (None, None))[:2]
                    yield {
                        "period": str(bundle.period),
                        "product": product,
                        "figure": each.name,
                        "column": one,
                        "category": value,
                        "column_2": two,
                        "category_2": other,
                        **each.reading._asdict(),
                        "confidence": each.confidence,
                        "of": each.of,
                        "definition": 1 + sum(cut <= bundle.period for cut in cuts[line]),
                        "bundle": bundle.path,
                    }

    def csv_text(self) -> str:
        """``series.csv``."""
        written = io.StringIO()
        writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return written.getvalue()

    def package_text(self, files: Mapping[str, str]) -> str:
        """``datapackage.json``, which describes the files as Frictionless Data has it.

        Args:
            files: By path of a further file what it is.
        """
        kept = ("licenses", "contributors", "keywords", "homepage")
        own = self.newest.publication.package
        fields = [
            {"name": name, "type": kind, "description": words}
            for name, (kind, words) in COLUMNS.items()
        ]
        resources = [
            {
                "name": "series",
                "path": "series.csv",
                "title": "The figures of all periods",
                "profile": "tabular-data-resource",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "schema": {
                    "fields": fields,
                    "missingValues": [""],
                    "primaryKey": ["period", *KEYS],
                },
            },
            *({"name": p.replace(".", "-"), "path": p, "title": said} for p, said in files.items()),
        ]
        package = {
            "name": self.series.name.lower(),
            "title": self.title,
            **{key: own[key] for key in kept if key in own},
            "resources": resources,
        }
        return json.dumps(package, indent=2, ensure_ascii=False) + "\n"


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, bool] | None:
    """What differs between two descriptions of a column, and whether that cuts its line.

    >>> changed({"declared": {"categories": ["a"]}}, {"declared": {"categories": ["a", "b"]}})
    ("New values: 'b'.", True)

    Args:
        before: As the data package of the earlier bundle has it.
        after: The same of the later one.
    """
    one, other = before["declared"], after["declared"]
    words, cuts = [], []
    for key in dict.fromkeys((*one, *other)):
        old, new = one.get(key), other.get(key)
        if old == new or key == "name":
            continue
        if key == "categories" and isinstance(old, list) and isinstance(new, list):
            gone, come = ([v for v in a if v not in b] for a, b in ((old, new), (new, old)))
            cuts.append(bool(gone or come))
            words += [f"New values: {_listed(come)}."] if come else []
            words += [f"No longer there: {_listed(gone)}."] if gone else []
            words += [] if gone or come else ["Its values are in another order."]
            continue
        cuts.append(True)
        shown = f"'{key}' was {_text(old)} and is {_text(new)}."
        words.append(shown if len(shown) <= 2 * _MOST_WORDS else f"'{key}' changed.")
    if before.get("unit") != after.get("unit"):
        cuts.append(True)
        words.append(f"Its unit was {_text(before.get('unit'))} and is {_text(after.get('unit'))}.")
    labelled = [{e["value"]: e.get("label") for e in _labelled(each)} for each in (before, after)]
    relabelled = [value for value in labelled[0] if value in labelled[1]]
    relabelled = [value for value in relabelled if labelled[0][value] != labelled[1][value]]
    if relabelled:
        words.append(f"New words for the values {_listed(relabelled)}.")
    words += [f"Its {key} changed." for key in _WORDS if before.get(key) != after.get(key)]
    return (" ".join(words), any(cuts)) if words else None


def _labelled(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = (*field.get("categories", ()), *field.get("special", ()))
    return [each for each in listed if isinstance(each, Mapping)]


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(f"'{value}'" for value in values[:8])
    return shown + (f" and {len(values) - 8} more" if len(values) > 8 else "")


def _text(value: Any) -> str:
    return "not stated" if value is None else json.dumps(value, ensure_ascii=False)


def _read(place: Path, path: str, name: str) -> SeriesBundle:
    """A bundle that counts, with its figures.

    Raises:
        StatpressError: It does not; its words say why, without its place.
    """
    manifest = verify_bundle(place)
    if not manifest["publishable"]:
        raise BundleVerificationError("It is NOT PUBLISHABLE.")
    config = parse((place / CONFIG).read_text(encoding="utf-8"), CONFIG).value
    series = stated_series(config)
    if series is None or series.of is None or series.name != name:
        raise BundleVerificationError(f"It is not of the series '{name}'.")
    if str(series.of) != place.parent.name:
        raise BundleVerificationError(f"It is of the period {series.of}.")
    bundle = SeriesBundle(path, series.of, manifest, config, Publication(place))
    with understood(place):
        _ = bundle.columns, bundle.figures
    return bundle


def _current(bundles: Sequence[SeriesBundle]) -> SeriesBundle:
    """The one that no other supersedes; of several the one that was made last.

    A reprint stands for its original: it is superseded with it.
    """

    def seals(bundle: SeriesBundle) -> set[str]:
        original = bundle.manifest.get("reprint_of") or bundle.manifest
        return {bundle.manifest["seal"], original["seal"]}

    followed = {each.manifest.get("supersedes") for each in bundles}
    left = [each for each in bundles if not seals(each) & followed] or list(bundles)
    return max(left, key=lambda each: (str(each.manifest["created"]), each.path))
