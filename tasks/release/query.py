"""Questions to a published bundle: estimates with intervals, without data, ledger or budget.

Answers come from the noisy tables that were measured, never from synthetic records.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Column, Date
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import NotMeasuredError, QueryError
from statpress.mechanisms.marginals.analyses import Analyses, Kept, numbers_of
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses, Copy, persons_of
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.linked_marginals import LinkedMarginals
from statpress.mechanisms.marginals.marginals import Marginals
from statpress.mechanisms.marginals.persons import PersonResiduals
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import NoisyMarginals, Residuals
from statpress.mechanisms.marginals.weighted_sums import SampleDesign, Weights
from statpress.mechanisms.marginals.with_prior import PriorAnalyses
from statpress.mechanisms.places.estimates import PlaceEstimates
from statpress.mechanisms.places.place_analyses import PlaceAnalyses, leaves_of
from statpress.mechanisms.places.place_tables import NoisyPlaces, PlaceTables
from statpress.tasks.bundle.file_formats import written_file
from statpress.tasks.bundle.manifest import understood, verify_bundle
from statpress.tasks.products.answer_words import named_cells, standing
from statpress.tasks.products.noisy_tables import (
    published_marginals,
    published_places,
    weights_of,
    with_scores,
)
from statpress.tasks.release.formulas import regressors_of

if TYPE_CHECKING:
    import pandas as pd

_MOST_CELLS = 10_000
MIDDLES = (
    "Numbers are the middles of their cells, as they are published, and no interval allows for "
    "what that hides."
)
_ANY = (
    "Nothing is known of a correlation from -1 to 1, whatever its estimate: the noise hides how "
    "much one of the columns varies. 'statpress regress' may still tell by how much one rises with "
    "the other."
)
_NUMBERS = f"{MIDDLES} Records without a number do not count."
_EVENLY = (
    "Numbers count as evenly spread over their cells, and no interval allows for what that hides; "
    "records without a number do not count."
)


Where = dict[str, Collection[int]]
"""Per column the codes that a condition counts."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        columns: Whose cells are listed; empty for one figure.
        conditions: Per further or listed column the values to count, as they are published.
        statistic: One of ``STATISTICS``.
        of: The columns that it is of; none of a count.
        share: Of the records below a quantile.
        base: The value with which a difference compares; by default the first.
        values: A difference is of the share of records with one of these; by default of the
            column's means, or of the share of each of its values if it has no numbers.
        product: Which one; by default the only one that can answer.
        confidence: Of the intervals.
        population: Whether the privacy units are a random sample of the population that is asked
            for. Counts are then the expected number of records of as many units.
        weight: Whether records count by their survey weight.
        persons: Whether it is of all persons of linked records, and not of their households.
    """

    columns: tuple[str, ...] = ()
    conditions: Mapping[str, tuple[str, ...]]
    statistic: str = "count"
    of: tuple[str, ...] = ()
    share: float = 0.5
    base: str | None = None
    values: tuple[str, ...] = ()
    product: str | None = None
    confidence: float = 0.95
    population: bool = False
    weight: bool = False
    persons: bool = False


def no_persons(product: str, where: str) -> QueryError:
    """That persons are asked for of other records."""
    return QueryError(
        f"The records of '{product}' are not households with persons.",
        where=where,
        next_step="Ask without --of persons.",
    )


@dataclass(frozen=True, eq=False)
class Measured:
    """A product by marginals of a verified bundle.

    Attributes:
        folder: Of the bundle.
        name: Of the product.
        stated: What ``privacy.json`` says of it.
        domain: Its declared columns.
        n_records: Their public number, absent ones included; None where it is private.
        residuals: Its noisy tables, combined.
        listing: The file that lists its pairs.
    """

    folder: Path
    name: str
    stated: Mapping[str, Any]
    domain: Domain
    n_records: int | None
    residuals: Residuals
    listing: str

    @functools.cached_property
    def _tables(self) -> dict[str, set[str]]:
        """The files of the other tables of the release, with the columns that they count."""
        return {
            found.name: {*facts["columns"]}
            for name, facts in _products(self.folder).items()
            if name != self.name and facts["kind"] == "table"
            if (found := written_file(self.folder, name)) is not None
        }

    def beside(self, names: Iterable[str]) -> list[str]:
        """Notes on tables of the same release that count just these columns."""
        asked = {*names}
        return [
            f"data/{file}, a table of the same release, counts the same columns with errors of its"
            " own, which may be smaller."
            for file, columns in self._tables.items()
            if columns == asked
        ]

    def analyses(self, question: Question) -> Analyses:
        """The figures of its columns."""
        most, sample = self.stated["unit_records"], None
        if question.population:
            if self.n_records is None:
                raise QueryError(
                    "How many units there are is private, and answers for a population need it.",
                    where=str(self.folder),
                    next_step="Ask without --population: about the units that were counted.",
                )
            sample = Sample(
                n_units=self.n_records // most,
                unit_records=most * self.residuals.unit_records,
                absent=self.domain.absent or isinstance(self.residuals, PersonResiduals),
            )
        return Analyses(
            domain=self.domain,
            residuals=self.residuals,
            sample=sample,
            confidence=question.confidence,
            weights=self.weights if question.weight else None,
        )

    @property
    def counted(self) -> str:
        """Of what the figures are."""
        persons = isinstance(self.residuals, PersonResiduals)
        return "the persons of these households" if persons else "these records"

    @property
    def _whole(self) -> str:
        persons = isinstance(self.residuals, PersonResiduals)
        return "the persons of a population" if persons else "a population"

    def asked(self, question: Question) -> Measured:
        """The tables that a question is put to: those of persons, where it is of them.

        Raises:
            QueryError: There are none, or it is of the weighted persons of a population.
        """
        if not question.persons:
            return self
        self._check_persons()
        if question.population and question.weight:
            copies = "Ask the copies (--copies), or ask" if self._has_copies else "Ask"
            raise QueryError(
                "Persons of a household were drawn together, which noisy tables do not show with "
                "their weights: weighted figures of them have no intervals for a population.",
                where=str(self.folder),
                next_step=f"{copies} without weights, or about the persons that were counted.",
            )
        return self._of_persons()

    def _check_persons(self) -> None:
        if self.stated["mechanism"] != LinkedMarginals.name:
            raise no_persons(self.name, str(self.folder))

    def _of_persons(self) -> Self:
        domain, residuals = PersonResiduals.of(self.residuals, self.domain)
        return replace(self, domain=domain, residuals=residuals)

    @property
    def weight(self) -> Mapping[str, Any]:
        """What ``privacy.json`` says of the survey weight.

        Raises:
            QueryError: The records have none.
        """
        if "weight" not in self.stated:
            raise QueryError(
                f"The records of '{self.name}' have no survey weight.",
                where=str(self.folder),
                next_step="Ask without weights; a config declares them in its section 'weight'.",
            )
        stated: Mapping[str, Any] = self.stated["weight"]
        return stated

    @property
    def weights(self) -> Weights:
        """The survey weights of its records, with their design.

        Raises:
            QueryError: The records have none.
        """
        found = weights_of(self.weight, self.domain, self.residuals)
        if isinstance(self.residuals, PersonResiduals):  # whose public totals are of households
            return replace(found, total=None)
        return found

    @property
    def with_shares(self) -> Sequence[str]:
        """Names of the columns that shares can be of."""
        return self.domain.names

    def column(self, name: str) -> Column:
        """A column by its name.

        Raises:
            QueryError: There is none.
        """
        if name not in self.domain.names:
            raise QueryError(
                f"The product '{self.name}' has no column '{name}'.",
                where=str(self.folder),
                next_step=f"{nearest(name, self.domain.names)}"
                f"Its columns: {', '.join(self.domain.names)}.",
            )
        return self.domain[name]

    def listed(self, name: str, codes: Iterable[int], where: Kept) -> list[int]:
        """Those of a column's codes whose cells are listed under some conditions."""
        del name, where
        return list(codes)

    @contextmanager
    def told(self, names: Sequence[str], *, weighted: bool = False) -> Iterator[None]:
        """Say of which columns a question failed since they were not measured together."""
        try:
            yield
        except NotMeasuredError as error:
            pairs = self.not_measured(names)
            error.where = "; ".join(pairs[:5]) or ", ".join(
                name for name in self.domain.names if name in names
            )
            weight = self.stated["weight"]["column"] if weighted else ""
            if weight and not pairs and weight not in names:
                listed = ", ".join(dict.fromkeys((*names, weight)))
                error.where = listed
                copies = "ask the copies, or " if self._has_copies else ""
                error.next_step = (
                    "Weighted figures of several columns need their table with the weight: "
                    f"{copies}name {{columns: [{listed}]}} under 'groups' in another release."
                )
                raise
            error.next_step = (
                f"{self._elsewhere(names)}Ask about columns that were measured together: see "
                f"{self.listing}. Another release measures those that its config names under "
                f"'pairs' or 'groups'.{self._otherwise}"
            )
            raise

    def _elsewhere(self, names: Sequence[str]) -> str:
        """The tables of the release that have all these columns, in words; blank if none has."""
        stated = json.loads((self.folder / "privacy.json").read_text(encoding="utf-8"))["products"]
        paths = [
            f"data/{found.name}"
            for name, facts in stated.items()
            if facts["kind"] == "table" and {*names} <= {*facts["columns"]}
            if (found := written_file(self.folder, name)) is not None
        ]
        return f"They are in {' and '.join(paths)}, with standard errors. " if paths else ""

    def not_measured(self, names: Iterable[str]) -> list[str]:
        """The pairs of some columns that no noisy table holds, as ``a and b``."""
        places = sorted({self.domain.names.index(name) for name in names})
        return [
            " and ".join(self.domain.names[column] for column in pair)
            for pair in itertools.combinations(places, 2)
            if not self.residuals.holds(pair)
        ]

    @property
    def _has_copies(self) -> bool:
        stems = f"{self.name}_copies", f"{self.name}_households_copies"
        return any(written_file(self.folder, stem) is not None for stem in stems)

    @property
    def _otherwise(self) -> str:
        """What else may know of columns that were not measured together."""
        ways = []
        if self._has_copies:
            ways.append("the copies (--copies), which guess it, near to unrelated")
        if self.stated.get("prior") and not isinstance(self, WithPrior):
            ways.append("the tables with the earlier release (--with-prior)")
        return f" Or ask {', or '.join(ways)}." if ways else ""

    def _weighting(self, question: Question) -> dict[str, Any]:
        """By what records count, and the public total that sums are scaled to, if there is one."""
        total = self.weights.total if question.statistic in ("count", "total") else None
        scaled = {} if total is None else {"scaled_to": total}
        return {"weighted_by": self.weight["column"], **scaled}

    def facts(self, question: Question) -> dict[str, Any]:
        """What holds of every answer to a question."""
        sample = self.analyses(question).sample
        return {
            "confidence": question.confidence,
            "of": self.counted if not question.population else self._whole,
            **(self._weighting(question) if question.weight else {}),
            **standing(self.stated, asdict(sample) if sample else None),
        }


@dataclass(frozen=True, eq=False)
class Copied(Measured):
    """A product that answers by the copies of its records.

    Attributes:
        copies: The records of each, with their weights if they have any.
    """

    copies: tuple[Copy, ...]

    def asked(self, question: Question) -> Measured:
        if not question.persons:
            return self
        self._check_persons()
        found = self._of_persons()
        assert isinstance(found.residuals, PersonResiduals)
        persons = tuple(persons_of(each, found.residuals) for each in self.copies)
        return replace(found, copies=persons)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance of a weighted figure of one copy."""
        return max(each.design.freedom for each in self.copies)

    def analyses(self, question: Question) -> Analyses:
        own = super().analyses(question)
        n_records = self.n_records or self.residuals.present(None)
        whole = self.domain.absent or isinstance(self.residuals, PersonResiduals)
        scale = 1.0 if whole else n_records / len(self.copies[0])
        fields = {name: getattr(own, name) for name in ("domain", "residuals", "sample")}
        copies = self.copies
        if question.weight:
            fields["weights"] = own.weights
        else:
            copies = tuple(replace(each, weights=None, design=SampleDesign()) for each in copies)
        return CopiedAnalyses(**fields, confidence=question.confidence, copies=copies, scale=scale)

    def facts(self, question: Question) -> dict[str, Any]:
        named = {*question.columns, *question.of, *question.conditions}
        return super().facts(question) | {"on_copies": True, "guessed": self.not_measured(named)}


@dataclass(frozen=True, eq=False)
class WithPrior(Measured):
    """A product that answers by what it measured and what its prior says.

    Attributes:
        released: All that was measured, with the prior.
    """

    released: NoisyMarginals

    def analyses(self, question: Question) -> PriorAnalyses:
        return PriorAnalyses(**vars(super().analyses(question)), released=self.released)

    def facts(self, question: Question) -> dict[str, Any]:
        return super().facts(question) | {"with_prior": self.stated["prior"]}


@dataclass(frozen=True, eq=False)
class MeasuredPlaces(Measured):
    """Tables of places of a verified bundle; every level is a column too.

    Attributes:
        release: Its noisy tables.
        estimates: All of them combined.
    """

    release: NoisyPlaces
    estimates: PlaceEstimates

    @classmethod
    def of(cls, folder: Path, name: str, stated: Mapping[str, Any], release: NoisyPlaces) -> Self:
        """Combine the tables of a product."""
        estimates, geography = release.estimates(), release.geography
        tree, others = geography.tree, release.domain.columns
        columns = (
            *(
                Categorical(name=level, categories=codes)
                for level, codes in zip(tree.levels, tree.codes, strict=True)
            ),
            *(column for column in others if column.name != geography.column),
        )
        return cls(
            folder, name, stated, Domain(columns), release.n_records,
            estimates.union(np.ones(tree.sizes[-1], dtype=bool)), f"data/{name}_places",
            release, estimates,
        )  # fmt: skip

    @property
    def with_shares(self) -> Sequence[str]:
        """Names of the columns but those of places, of which there are only counts."""
        return [name for name in self.domain.names if name not in self.estimates.tree.levels]

    def analyses(self, question: Question) -> PlaceAnalyses:
        if question.population:
            raise QueryError(
                "Tables of places answer for the records that were counted only: how many units a "
                "place has is private.",
                where=str(self.folder),
                next_step="Ask without --population.",
            )
        return PlaceAnalyses(
            domain=self.release.domain,
            residuals=self.residuals,
            confidence=question.confidence,
            estimates=self.estimates,
        )

    def listed(self, name: str, codes: Iterable[int], where: Kept) -> list[int]:
        """Of a level the places that have something in common with those of the conditions."""
        tree = self.estimates.tree
        if name not in tree.levels:
            return list(codes)
        inside = leaves_of(tree, where).astype(np.float64)
        for level in range(len(tree.levels) - 1, tree.levels.index(name), -1):
            inside = tree.sums(level, inside)
        return [code for code in codes if inside[code]]

    @contextmanager
    def told(self, names: Sequence[str], *, weighted: bool = False) -> Iterator[None]:
        try:
            yield
        except NotMeasuredError as error:
            error.where = ", ".join(names)
            measured = [
                f"{each['level']}: {' and '.join(each['columns']) or 'records'}"
                for each in self.stated["tables"]
            ]
            error.next_step = (
                "Ask about columns that were measured together at that level of places or below: "
                f"{'; '.join(measured)}."
            )
            raise


def codes_of(column: Column, values: pd.Series) -> NDArray[np.int64]:
    """int64[n]: the codes of a column of published records, nulls with that of missing ones."""
    listed = column.decode(np.arange(column.size - column.missing)).tolist()
    known = {value: code for code, value in enumerate(listed)}

    def code(value: Any) -> int:
        if value is None or value != value:
            return column.null_code
        if value in known:
            return known[value]
        dated = isinstance(column, Date) and isinstance(value, str)
        return column.code_of(datetime.date.fromisoformat(value) if dated else value)

    places, uniques = values.factorize(use_na_sentinel=False)
    return np.asarray(np.array([code(each) for each in uniques], dtype=np.int64)[places])


def with_prior(measured: Measured) -> WithPrior:
    """A product that answers with its prior.

    Raises:
        BundleVerificationError: The files are not what the bundle says of them.
        QueryError: It has no prior.
    """
    folder, name, stated = measured.folder, measured.name, measured.stated
    if "prior" not in stated:
        raise QueryError(
            f"The product '{name}' has no earlier release as its prior.",
            where=str(folder),
            next_step="Ask without it; a config names one under 'prior', and a series under "
            "'carry'.",
        )
    released = published_marginals(folder, name, stated, _resources(folder))
    return WithPrior(**vars(measured), released=with_scores(released, folder, name, stated))


def _resources(folder: Path) -> list[Mapping[str, Any]]:
    """The files of a bundle as its data package describes them."""
    with understood(folder):
        package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        return list(package["resources"])


def _products(folder: Path) -> dict[str, dict[str, Any]]:
    """What a bundle's privacy statement says of its products, by name."""
    with understood(folder):
        text = (folder / "privacy.json").read_text(encoding="utf-8")
        return dict(json.loads(text)["products"])


ABLE = (Marginals.name, LinkedMarginals.name, PlaceTables.name)


def opened(folder: Path, product: str | None = None, *, verified: bool = False) -> Measured:
    """A product of a bundle that answers questions.

    Args:
        folder: Of the bundle.
        product: Its name; by default the only one that can answer.
        verified: Whether the bundle was verified before.

    Raises:
        BundleVerificationError: The bundle is not whole, or not readable by this version.
        QueryError: No product can answer, or it is not clear which.
    """
    if not verified:
        verify_bundle(folder)
    stated = _products(folder)
    with understood(folder):
        able = [name for name, facts in stated.items() if facts["mechanism"] in ABLE]
        tables = {name for name, facts in stated.items() if facts["kind"] == "table"}
    name, resources = _chosen(product, able, tables, folder), _resources(folder)
    if stated[name]["mechanism"] == PlaceTables.name:
        places = published_places(folder, name, stated[name], resources)
        return MeasuredPlaces.of(folder, name, stated[name], places)
    release = published_marginals(folder, name, stated[name], resources)
    return Measured(
        folder, name, stated[name], release.domain, release.n_records, release.residuals(),
        next(r["path"] for r in resources if r["path"].startswith(f"data/{name}_pairs.")),
    )  # fmt: skip


STATISTICS: dict[str, Callable[[Analyses, Question, Where], Interval]] = {
    "count": lambda asked, _, where: asked.count(where),
    "mean": lambda asked, q, where: asked.mean(q.of[0], where),
    "total": lambda asked, q, where: asked.total(q.of[0], where),
    "share": lambda asked, q, where: asked.share(
        q.of[0], where[q.of[0]], {name: where[name] for name in where if name not in q.of}
    ),
    "quantile": lambda asked, q, where: asked.quantile(q.of[0], q.share, where),
    "correlation": lambda asked, q, where: asked.correlation(q.of[0], q.of[1], where),
}
"""Figures of the records that meet conditions; a difference is of two such sets of records."""


def ask(folder: Path, question: Question) -> dict[str, Any]:
    """Answer a question from a bundle; as ``answer``, for what it raises see ``opened`` too."""
    return answer(opened(folder, question.product), question)


def answer(measured: Measured, question: Question) -> dict[str, Any]:
    """Answer a question.

    Returns:
        The product, and ``cells``: of each its values, estimate, standard error and interval, of
        counts in records; of these for a population also the ``sample``, and the share and its
        limits if every unit is one record.

    Raises:
        QueryError: A column or a value is not there, or has no such figure.
        NotMeasuredError: No measured table holds these columns together.
    """
    measured = measured.asked(question)
    domain, analyses = measured.domain, measured.analyses(question)
    listed = (*question.columns, *(question.of if question.statistic == "share" else ()))
    names = tuple(dict.fromkeys((*listed, *question.conditions, *question.of)))
    if not names:
        raise QueryError("No column is named.", next_step="Name some with --columns or --where.")
    columns = {name: measured.column(name) for name in names}
    conditions = {
        name: _values(columns[name], written) for name, written in question.conditions.items()
    }
    allowed = {name: _codes(columns[name], values) for name, values in conditions.items()}
    every = {
        name: measured.listed(name, allowed.get(name, range(columns[name].size)), allowed)
        for name in listed
    }
    if question.statistic == "share":
        every |= {q: [c for c in every[q] if c != columns[q].missing_code] for q in question.of}
    if np.prod([float(len(codes)) for codes in every.values()]) > _MOST_CELLS:
        raise QueryError(
            f"These columns have more than {_MOST_CELLS:,} cells to list.",
            next_step="Use fewer columns, or conditions on them.",
        )
    of_counts, sample = question.statistic == "count", analyses.sample
    correlated = question.statistic == "correlation"
    cells = []
    with measured.told(names, weighted=question.weight):
        for values, figure in _figures(domain, analyses, question, allowed, every):
            share = {}
            exact = of_counts and figure.by == "binomial"
            if exact and sample is not None and not sample.absent:
                assert measured.n_records is not None
                ends = {"share": figure.value, "share_lower": figure.lower}
                ends |= {"share_upper": figure.upper}
                share = {key: each / measured.n_records for key, each in ends.items()}
            named = {name: named_cells(domain[name])[code] for name, code in values.items()}
            cells.append({"values": named, **stated_interval(figure, question.statistic), **share})
    shares = question.values or any(
        name in cell["values"] for cell in cells for name in question.of
    )
    notes = [] if of_counts or shares else [_NUMBERS]
    unknown = [math.isnan(cell["estimate"]) for cell in cells]
    if cells and all(unknown):
        raise QueryError(
            "A copy has too few records for this figure.",
            next_step="Ask for larger groups, or with fewer conditions.",
        )
    if any(unknown):
        notes.append("Where no estimate stands, a copy has too few records of the group.")
    if any(cell["lower"] <= -1 and cell["upper"] >= 1 for cell in cells if correlated):
        notes.append(_ANY)
    if of_counts or question.statistic == "share":
        notes += measured.beside(names)
    if question.statistic == "quantile":
        notes = [_EVENLY]
    return {
        "product": measured.name,
        "columns": list(cells[0]["values"]) if cells else list(listed),
        "where": {column: list(values) for column, values in conditions.items()},
        **measured.facts(question),
        "statistic": question.statistic,
        "statistic_of": [
            f"{question.of[0]} = " + " or ".join(_values(columns[question.of[0]], question.values))
        ]
        if question.values
        else list(question.of),
        **({"share_below": question.share} if question.statistic == "quantile" else {}),
        "notes": notes,
        "cells": cells,
    }


def _figures(
    domain: Domain,
    analyses: Analyses,
    question: Question,
    allowed: Mapping[str, Collection[int]],
    every: Mapping[str, Sequence[int]],
) -> Iterator[tuple[dict[str, int], Interval]]:
    """Per cell that is listed its codes, and its figure."""
    if question.statistic != "difference":
        figure = STATISTICS[question.statistic]
        for cell in itertools.product(*every.values()):
            values = dict(zip(every, cell, strict=True))
            where = {**allowed, **{name: [code] for name, code in values.items()}}
            yield values, figure(analyses, question, where)
        return
    if len(every) != 1:
        raise QueryError(
            "A difference is between the values of one column.", next_step="Name one, with --by."
        )
    ((name, codes),) = every.items()
    column = domain[name]
    base = _codes(column, _values(column, [question.base]))[0] if question.base else codes[0]
    (of,) = question.of
    compared = domain[of]
    apart: list[list[int] | None] = [None]
    if question.values:
        apart = [_codes(compared, _values(compared, question.values))]
    elif not np.isfinite(numbers_of(compared)).any():
        apart = [[c] for c in range(compared.size) if c != compared.missing_code]
    for code, those in itertools.product(codes, apart):
        if code != base:
            where, other = {**allowed, name: [code]}, {**allowed, name: [base]}
            values = {name: code} | ({of: those[0]} if those and not question.values else {})
            yield values, analyses.difference(of, where, other, those)


def regress(measured: Measured, formula: str, question: Question) -> dict[str, Any]:
    """Least squares by a formula, such as ``y ~ a + C(b)``.

    Args:
        measured: The product.
        formula: Names of columns as formulaic reads them.
        question: For its confidence, and whether a population is asked for.

    Raises:
        QueryError: The formula is not understood, or a column is not there or has no numbers.
        NotMeasuredError: No measured table holds two of the columns together.
    """
    measured = measured.asked(question)
    analyses = measured.analyses(question)
    terms = regressors_of(formula, analyses, measured.column)
    with measured.told(terms.columns, weighted=question.weight):
        figures = analyses.regression(terms.outcome, list(terms.regressors.values()))
    cells = [
        {"values": {"term": name}, **stated_interval(figure, "coefficient")}
        for name, figure in zip(terms.regressors, figures, strict=True)
    ]
    return {
        "product": measured.name,
        "columns": ["term"],
        "where": {},
        **measured.facts(question),
        "statistic": "coefficient",
        "statistic_of": [formula],
        "notes": [*terms.notes, MIDDLES],
        "cells": cells,
    }


TESTED = ("difference", "correlation", "coefficient", "combined")
"""Statistics with a test of whether they are 0."""


def stated_interval(figure: Interval, statistic: str) -> dict[str, Any]:
    """An estimate with its set as an answer has it."""
    return {
        "estimate": figure.value,
        "standard_error": figure.standard_error,
        "lower": figure.lower,
        "upper": figure.upper,
        **({"p_value": figure.p_value} if statistic in TESTED else {}),
        **({"method": figure.by} if statistic != "count" else {}),
        **({"sampling": figure.sampling} if figure.sampling else {}),
    }


def _chosen(wanted: str | None, able: Sequence[str], tables: set[str], folder: Path) -> str:
    """The name of the product that answers; of others tables are what a reader may mean."""
    if wanted is None and len(able) == 1:
        return able[0]
    if wanted is not None and wanted in able:
        return wanted
    if not able:
        raise QueryError(
            "No product of this bundle answers questions.",
            where=str(folder),
            next_step="Microdata by 'marginals' and tables by 'place_tables' do. Counts of other"
            " tables are in data/, each with its standard error.",
        )
    problem = f"The product '{wanted}' cannot" if wanted else "It is not clear which product should"
    found = written_file(folder, wanted) if wanted in tables else None
    own = "" if found is None else f"Its figures with their errors are in data/{found.name}. "
    raise QueryError(
        f"{problem} answer questions.",
        where=str(folder),
        next_step=f"{own}Products that can, by --product: {', '.join(able)}.",
    )


def _values(column: Column, written: Sequence[str]) -> tuple[str, ...]:
    """The values that a condition names; of parts that make values with commas, the longest."""
    known, values, start = named_cells(column), [], 0
    while start < len(written):
        ends = range(len(written), start, -1)
        end = next((end for end in ends if ",".join(written[start:end]) in known), None)
        if end is None:
            shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise QueryError(
                f"The column '{column.name}' has no cell '{written[start]}'.",
                where=column.name,
                next_step=f"{nearest(written[start], known)}Its cells: {shown}.",
            )
        values.append(",".join(written[start:end]))
        start = end
    return tuple(dict.fromkeys(values))


def _codes(column: Column, values: Sequence[str]) -> list[int]:
    """The codes that a condition counts."""
    return [code for code, label in enumerate(named_cells(column)) if label in values]


def nearest(name: str, known: Sequence[str]) -> str:
    """The nearest known names as a sentence; blank if none is near."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"Nearest: {', '.join(near)}. " if near else ""
