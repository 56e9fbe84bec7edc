"""A published bundle as an analyst asks it: microdata, and figures with intervals.

``statpress.open`` gives a ``Release``, which needs neither data nor ledger and spends no budget.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.errors import BundleVerificationError, DependencyError, QueryError
from statpress.mechanisms.marginals.copied_analyses import HOUSEHOLDS, Copy, no_population_of_copies
from statpress.mechanisms.marginals.weighted_sums import SampleDesign
from statpress.tasks.bundle.file_formats import read_batches, text_of_csv, written_file
from statpress.tasks.bundle.locations import Folder, is_plain, location_of
from statpress.tasks.bundle.manifest import files_of, signed_by, verify_location
from statpress.tasks.catalogues.usage import citation
from statpress.tasks.ledger.entries import read_public_key
from statpress.tasks.products.answer_words import MISSING, standing
from statpress.tasks.products.publication import size_stated
from statpress.tasks.release.answers import Estimates, change_of, check_definitions, shares_of_all
from statpress.tasks.release.combining import combine_copies, complete, fitted, of_linked
from statpress.tasks.release.formulas import columns_in
from statpress.tasks.release.query import (
    ABLE,
    MIDDLES,
    Copied,
    Measured,
    Question,
    answer,
    codes_of,
    nearest,
    no_persons,
    opened,
    regress,
    with_prior,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

Of = Literal["records", "population", "persons", "persons of a population"]
By = Literal["tables", "copies", "prior"]
Frame = Literal["pandas", "polars", "arrow"]
Values = str | int | float | None
Where = Mapping[str, Values | Sequence[Values]]
_OF_RECORDS = Question(conditions={})


class Release:
    """A published bundle; see ``statpress.open``.

    Methods that estimate take ``where``, values by column, ``by``, columns whose cells are told
    apart, ``of``: ``"records"`` for the records that were counted, ``"population"`` if these are a
    random sample of one, or of linked records ``"persons"`` for all persons that were counted, and
    ``"persons of a population"`` of whose households these are a random sample; and ``weight``:
    whether records count by their survey weight, where they have one. Values are written as in the
    files, ``"missing"`` for nulls.

    Attributes:
        where: The folder, zip file or address.
        manifest: What was released, at what cost, and each file with its size and SHA-256.
    """

    def __init__(
        self, where: str, folder: Path, manifest: Mapping[str, Any], product: str | None, held: Any
    ) -> None:
        self.where, self.manifest = where, manifest
        self._folder, self._product, self._held = folder, product, held
        self._by: By = "tables"
        self._earlier: Release | None = None

    def __repr__(self) -> str:
        return f"<statpress release {self.manifest.get('title', '')!r} at {self.where}>"

    @functools.cached_property
    def _package(self) -> Mapping[str, Any]:
        text = (self._folder / "datapackage.json").read_text(encoding="utf-8")
        package: Mapping[str, Any] = json.loads(text)
        return package

    @functools.cached_property
    def _measured(self) -> Measured:
        measured = opened(self._folder, self._product, verified=True)
        if self._by == "prior":
            return with_prior(measured)
        if self._by == "tables":
            return measured
        return Copied(**vars(measured), copies=tuple(self._copies_of(measured)))

    def _copies_of(self, measured: Measured) -> Iterator[Copy]:
        """The records of each copy, with their weights and design if they have any."""
        domain = measured.domain
        if measured.stated["kind"] == "linked":
            frame, codes = self._households_of_copies(measured)
        else:
            frame = self.copies(measured.name)
            codes = np.column_stack([codes_of(each, frame[each.name]) for each in domain.columns])
        number = frame[frame.columns[-1]].to_numpy()
        weights: NDArray[np.float64] | None = None
        design: list[NDArray[np.int64] | None] = [None, None]
        if "weight" in measured.stated:
            weights = frame[measured.weight["records"]].to_numpy(np.float64)
            design = [
                None if name is None else codes[:, domain.names.index(name)]
                for name in (measured.weight["strata"], measured.weight["cluster"])
            ]
        for each in np.unique(number):
            own = number == each
            yield Copy(
                codes[own],
                None if weights is None else weights[own],
                SampleDesign(*(None if part is None else part[own] for part in design)),
            )

    def _households_of_copies(self, measured: Measured) -> tuple[Any, NDArray[np.int64]]:
        """Of copies the frame of households, and the codes of their records, persons included."""
        import pandas as pd

        name, columns = measured.name, measured.domain.columns
        households, persons = (each(name, copies=True) for each in (self.households, self.persons))
        rows = pd.Index(households[self._key]).get_indexer(persons[self._key])
        place = persons.groupby(self._key).cumcount().to_numpy() + 1
        codes = np.empty((len(households), len(columns)), dtype=np.int64)
        for at, column in enumerate(columns):
            if not isinstance(column, Slot):
                codes[:, at] = codes_of(column, households[column.name])
                continue
            there = place == column.place
            codes[:, at] = column.absent_code
            codes[rows[there], at] = codes_of(column.of, persons.loc[there, column.of.name])
        return households, codes

    @property
    def on_copies(self) -> Release:
        """The release with every question answered by its copies in place of the noisy tables.

        It answers what was not measured, too: there copies guess, and differ by what may be.

        >>> where = {"happy": "very happy", "female": 1}
        >>> round(release.on_copies.mean("prestige", where=where).value)
        45
        """
        earlier = self._earlier and self._earlier._like("copies")
        return self._like("copies", earlier=earlier)

    @property
    def with_prior(self) -> Release:
        """The release with every question answered with the help of its prior, if it has one.

        Intervals are narrower than those of the release alone, and conditional: they hold as far as
        columns drift since the earlier release as its model supposes. There are none of changes.

        Raises:
            QueryError: When a question is asked: the release has no prior.
        """
        if self._earlier is not None:
            raise self._unchanging()
        return self._like("prior")

    def change(self, earlier: Release) -> Release:
        """The release with every answer less that of an earlier release.

        Cells are told apart by their values. Beside each change stand both estimates, its interval,
        a ``p_value``, and whether something ``changed``, at the confidence of all cells together.

        >>> release.change(release).mean("prestige").value
        0.0
        """
        if "prior" in (self._by, earlier._by):
            raise self._unchanging()
        return self._like(self._by, earlier=earlier._like(self._by))

    def _unchanging(self) -> QueryError:
        return QueryError(
            "There are no changes with the prior: what an earlier release said is in both figures.",
            where=self.where,
            next_step="Ask for changes without it.",
        )

    def _like(self, by: By, earlier: Release | None = None) -> Release:
        other = copy.copy(self)
        if by != self._by:
            vars(other).pop("_measured", None)
        other._by, other._earlier = by, earlier
        return other

    def _before(self, names: Iterable[str], question: Question = _OF_RECORDS) -> Release:
        """The earlier release, if these columns are declared alike."""
        assert self._earlier is not None
        then, now = (each._measured.asked(question) for each in (self._earlier, self))
        check_definitions(then, now, names)
        return self._earlier

    def changes(
        self,
        earlier: Release,
        *columns: str,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """What changed: the shares of all values of some columns, by default of all.

        >>> release.changes(release, "happy").frame()["changed"].tolist()
        [False, False, False]

        Args:
            earlier: The release to compare with.
            columns: Those that are in both by default, whose ranges are declared alike.
            of: Whose shares.
            confidence: Of each interval, and of what is called changed, for all values together.
            weight: Whether records count by their survey weight.
        """
        compared = self.change(earlier)
        names = columns or compared._alike()
        if not names:
            raise QueryError("The releases have no column in common.", where=earlier.where)
        before, now = compared._before(names), self._like(self._by)
        asked: Any = {"of": of, "confidence": confidence, "weight": weight}
        then, since = (
            shares_of_all({n: own.share(n, **asked).facts for n in names}) for own in (before, now)
        )
        return Estimates(change_of(then, since))

    def _alike(self) -> list[str]:
        """Columns that are in the earlier release too, with the same ranges."""
        found = []
        for name in self._measured.with_shares:
            try:
                self._before([name])
            except QueryError:
                continue
            found.append(name)
        return found

    def citation(self) -> str:
        """How to cite the release, in one line; ``CITATION.cff`` in the bundle is for programs.

        >>> release.citation().startswith("Happiness in the United States")
        True
        """
        return citation(self._package)

    @property
    def columns(self) -> dict[str, list[str]]:
        """By column the values of its cells, as conditions write them.

        >>> release.columns["happy"]
        ['not too happy', 'pretty happy', 'very happy']
        """
        from statpress.tasks.products.answer_words import named_cells

        return {column.name: named_cells(column) for column in self._measured.domain.columns}

    def microdata(self, product: str | None = None, *, as_: Frame = "pandas") -> Any:
        """The synthetic records; intervals made from them as if they were real are too short.

        >>> release.microdata().shape
        (17137, 6)

        Args:
            product: Which microdata; by default the only ones.
            as_: ``"pandas"`` for a DataFrame with categories in their declared order, ``"polars"``
                for one of Polars, or ``"arrow"`` for a table of pyarrow.

        Raises:
            QueryError: There are none of this name.
            DependencyError: Polars is not installed.
        """
        name = self._named(product)[0]
        return _frame(*self._table_of(name), as_)

    def households(
        self, product: str | None = None, *, copies: bool = False, as_: Frame = "pandas"
    ) -> Any:
        """The synthetic households of linked records, with a key that their persons have too.

        Args:
            product: Which linked records; by default the only ones.
            copies: Whether to give all copies, with the number of each in the last column. No two
                households of them have one key.
            as_: As of ``microdata``.

        Raises:
            QueryError: There are none of this name, or the config asked for no copies.
            DependencyError: Polars is not installed.
        """
        return self._linked("households", product, copies, as_)

    def persons(
        self, product: str | None = None, *, copies: bool = False, as_: Frame = "pandas"
    ) -> Any:
        """The synthetic persons of linked records, in the order of their households.

        Takes and raises what ``households`` does.
        """
        return self._linked("persons", product, copies, as_)

    @property
    def _key(self) -> str:
        """The column by which linked households and their persons are merged."""
        name = self._named(None, "linked")[0]
        key: str = self._resource(f"{name}_households")["schema"]["primaryKey"][0]
        return key

    def _linked(self, table: str, product: str | None, copies: bool, as_: Frame) -> Any:
        name = self._named(product, "linked")[0]
        return _frame(*self._table_of(f"{name}_{table}{'_copies' * copies}"), as_)

    def copies(self, product: str | None = None, *, as_: Frame = "pandas") -> Any:
        """All copies of the synthetic records, with the number of each in the last column.

        Those of linked records are ``households(copies=True)`` and ``persons(copies=True)``.

        >>> release.copies().groupby("copy").size().tolist()
        [17137, 17137, 17137, 17137, 17137, 17137, 17137, 17137, 17137, 17137]

        Args:
            product: Which microdata; by default the only ones.
            as_: As of ``microdata``.

        Raises:
            QueryError: There are none of this name, or the config asked for no copies.
            DependencyError: Polars is not installed.
        """
        import pyarrow.compute as pc

        name = self._named(product)[0]
        of_records = {field["name"] for field in self._table_of(name)[1]}
        table, fields = self._table_of(f"{name}_copies")
        table = table.filter(pc.greater(table.column(-1), 0))  # Stata's begin with a blank one
        places = [i for i, field in enumerate(fields[:-1]) if field["name"] in of_records]
        places.append(table.num_columns - 1)
        return _frame(table.select(places), [fields[place] for place in places], as_)

    def combine(
        self,
        fit: Callable[..., Any],
        *,
        product: str | None = None,
        of: Of | None = None,
        confidence: float = 0.95,
        freedom: float = math.inf,
    ) -> Estimates:
        """Any figures, computed on each copy of the records and combined by Rubin's rule.

        >>> import numpy as np
        >>> def mean_of_logs(records):
        ...     values = np.log1p(records["tvhours"].dropna())
        ...     return values.mean(), values.var() / len(values)
        >>> release.combine(mean_of_logs).frame()["estimate"].round(2).tolist()
        [1.23]

        Args:
            fit: Takes the records of one copy, a DataFrame, or two of linked records: households
                and persons. It gives a fitted model with ``params`` and ``bse`` as statsmodels has
                them, or figures with their variances as a pair: two numbers, arrays, mappings or
                Series. For ``of="records"`` the figures alone will do.
            product: Which records; by default the only ones.
            of: Whose figures: of a population that the records are a sample of, or of the
                confidential records themselves. By default of the population, and of the records
                where a person may have several, since copies do not say whose a record is.
            confidence: Of each interval.
            freedom: Degrees of freedom of a variance of one copy, where they are few: of a survey's
                clusters their number less that of strata.

        Raises:
            QueryError: There are no copies, ``fit`` gives something else or no finite number, or
                of units with several records a population is asked for.
        """
        named = self._named(product, "microdata", "linked")
        of = of or ("records" if _has_several(named[1]) else "population")
        return self._combined(
            fit, named, self._frames(*named), of=of, confidence=confidence, freedom=freedom
        )

    def _frames(self, name: str, stated: Mapping[str, Any]) -> list[pd.DataFrame]:
        """The frames of all copies: of the records, or of households and of persons."""
        if stated["kind"] == "linked":
            return [each(name, copies=True) for each in (self.households, self.persons)]
        return [self.copies(name)]

    def _combined(
        self,
        fit: Callable[..., Any],
        product: tuple[str, Mapping[str, Any]],
        frames: Sequence[pd.DataFrame],
        *,
        of: Of,
        confidence: float,
        freedom: float,
    ) -> Estimates:
        """``combine`` of frames that are there."""
        population = _checked(of).endswith("population")
        if population and _has_several(product[1]):
            raise no_population_of_copies()
        binned = any(len(frame.iloc[:, :-1].select_dtypes("number").columns) for frame in frames)
        cells, notes = combine_copies(
            fit, frames, size=size_stated(product[1]), population=population,
            confidence=confidence, freedom=freedom,
        )  # fmt: skip
        return Estimates(
            {
                "product": product[0],
                "columns": ["term"],
                "where": {},
                "statistic": "combined",
                "statistic_of": [getattr(fit, "__name__", "figures")],
                "cells": cells,
                "confidence": confidence,
                "of": of,
                "sample": {} if population else None,
                **standing(product[1]),
                "chosen_by_noisy_scores": False,
                "notes": [*notes, MIDDLES] if binned else notes,
            }
        )

    def _named(self, product: str | None, *kinds: str) -> tuple[str, Mapping[str, Any]]:
        """The name of a product and what the privacy statement has of it.

        Args:
            product: Its name; by default the only one of the first kind of which there are any.
            kinds: Those that will do; by default microdata.
        """
        kinds = kinds or ("microdata",)
        stated = json.loads((self._folder / "privacy.json").read_text(encoding="utf-8"))["products"]
        by_kind = [
            [name for name, each in stated.items() if each.get("kind") == kind] for kind in kinds
        ]
        first: list[str] = next((names for names in by_kind if names), [])
        known = [name for names in by_kind for name in names]
        product = product or self._product or (first[0] if len(first) == 1 else "")
        if product not in known:
            of = " or ".join(kinds)
            raise QueryError(
                f"It is not clear which product of kind '{of}': "
                f"{', '.join(known) or 'there are none'}.",
                where=self.where,
                next_step=nearest(product, known) + f"Name a product of kind {of}.",
            )
        return product, stated[product]

    def pairs(self) -> pd.DataFrame:
        """Every pair of columns: whether it was measured, how strong it is, and how sure.

        ``relation`` says whether the pair was measured; ``kept`` how strong it is in the records;
        ``standard_error`` is that of a cell, in records. ``measured`` is true where its tables
        answer questions.
        """
        measured = self._measured
        frame: pd.DataFrame = _frame(*self._table_of(f"{measured.name}_pairs"), "pandas")
        names = list(measured.domain.names)
        groups = [
            tuple(sorted(map(names.index, pair)))
            for pair in zip(frame["column_1"], frame["column_2"], strict=True)
        ]
        return frame.assign(measured=[group in measured.residuals.values for group in groups])

    def table(
        self,
        *by: str,
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """Counts of all cells of some columns, or of the records that meet conditions.

        >>> release.table("happy").frame()["estimate"].round().tolist()
        [2076.0, 9788.0, 5273.0]
        """
        return self._ask("count", (), by, where, of, confidence, weight=weight)

    def mean(
        self,
        column: str,
        *,
        by: str | Sequence[str] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The mean of a column of numbers.

        >>> round(release.mean("educ").value, 2)
        13.37
        """
        return self._ask("mean", (column,), by, where, of, confidence, weight=weight)

    def total(
        self,
        column: str,
        *,
        by: str | Sequence[str] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The sum of a column of numbers.

        >>> round(release.total("tvhours").value)
        35623
        """
        return self._ask("total", (column,), by, where, of, confidence, weight=weight)

    def share(
        self,
        column: str,
        *,
        by: str | Sequence[str] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The share of every value of a column, of the records that are not missing there.

        >>> release.share("happy", where={"female": 1}).frame()["estimate"].round(3).tolist()
        [0.127, 0.567, 0.306]
        """
        return self._ask("share", (column,), by, where, of, confidence, weight=weight)

    def quantile(
        self,
        column: str,
        share: float,
        *,
        by: str | Sequence[str] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The value below which a share of the numbers of a column lies.

        Numbers count as evenly spread over their cells.

        >>> round(release.quantile("tvhours", 0.9).value, 2)
        5.56
        """
        return self._ask(
            "quantile", (column,), by, where, of, confidence, share=share, weight=weight
        )

    def median(
        self,
        column: str,
        *,
        by: str | Sequence[str] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The median of a column of numbers; see ``quantile``.

        >>> round(release.median("tvhours").value, 2)
        2.0
        """
        return self.quantile(
            column, 0.5, by=by, where=where, of=of, confidence=confidence, weight=weight
        )

    def difference(
        self,
        column: str,
        by: str,
        *,
        base: str | None = None,
        values: Values | Sequence[Values] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The mean of a column among each value of another, less that among one of them.

        Of a column without numbers it is the share of each of its values.

        >>> release.difference("prestige", by="female").frame()["p_value"].round(3).tolist()
        [0.002]
        >>> release.difference("happy", by="female").frame()["estimate"].round(3).tolist()
        [0.013, -0.009, -0.004]

        Args:
            column: Of the numbers or shares.
            by: The column whose values are compared.
            base: The value that the others are compared with; by default the first.
            values: Compare the share of records with one of these.
            where: Conditions that all records meet.
            of: Whose means or shares.
            confidence: Of each interval; its ``p_value`` is of equal means.
            weight: Whether records count by their survey weight.
        """
        those = tuple(map(_written, [values] if isinstance(values, Values) else values))
        return self._ask(
            "difference",
            (column,),
            by,
            where,
            of,
            confidence,
            weight=weight,
            base=base,
            values=those,
        )

    def correlation(
        self,
        one: str,
        other: str,
        *,
        by: str | Sequence[str] = (),
        where: Where | None = None,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """The correlation of two columns of numbers.

        >>> round(release.correlation("educ", "prestige").value, 2)
        0.52
        """
        return self._ask("correlation", (one, other), by, where, of, confidence, weight=weight)

    def regress(
        self,
        formula: str,
        *,
        of: Of = "records",
        confidence: float = 0.95,
        weight: bool = False,
    ) -> Estimates:
        """Least squares, as ``"prestige ~ educ + C(region) + female"``.

        >>> release.regress("prestige ~ educ").frame()["estimate"].round(1).tolist()
        [14.2, 2.2]

        Args:
            formula: Of columns, as formulaic reads it; ``C()`` makes categories of numbers. Notes
                of the answer say how missing values count.
            of: Whose coefficients. Of a population errors of one variance are assumed unless all
                columns were measured together. On copies they are assumed, and records with a
                missing number are left out.
            confidence: Of each interval.
            weight: Whether records count by their survey weight. Then errors need not have one
                variance on copies.
        """
        question = Question(
            conditions={},
            confidence=confidence,
            population=_checked(of).endswith("population"),
            weight=weight,
            persons=of.startswith("persons"),
        )
        if self._earlier is not None:
            columns = self._measured.asked(question).domain.names
            named = columns_in(formula, columns)
            before = self._before(named, question).regress(
                formula, of=of, confidence=confidence, weight=weight
            )
            now = self._like(self._by).regress(formula, of=of, confidence=confidence, weight=weight)
            return Estimates(change_of(before.facts, now.facts))
        if self._by == "copies":
            return self._regress_copies(formula, question, of)
        return Estimates(regress(self._measured, formula, question))

    def _regress_copies(self, formula: str, question: Question, of: Of) -> Estimates:
        """``regress`` on copies: by errors of one variance, or by the design that is declared."""
        fit: Callable[..., Any] = functools.partial(fitted, formula)
        freedom, weighted = math.inf, {}
        name, stated = self._named(self._product, "microdata", "linked")
        if question.persons and stated["kind"] != "linked":
            raise no_persons(name, str(self._folder))
        drawn: dict[str, str | None] = {"strata": None, "cluster": None}
        if question.weight:
            measured = self._measured.asked(question)
            assert isinstance(measured, Copied)
            by = measured.weight
            drawn = {key: by[key] for key in drawn}
            fit = functools.partial(fit, weight=by["records"])
            freedom, weighted = measured.freedom, {"weighted_by": by["column"]}
        by_household = question.persons and not any(drawn.values())
        if question.persons and question.population:
            drawn["cluster"] = drawn["cluster"] or self._key
        fit = functools.partial(fit, **drawn)
        if stated["kind"] == "linked":
            fit = functools.partial(of_linked, fit, self._key, question.persons)
        frames, left_out = zip(
            *(complete(formula, frame) for frame in self._frames(name, stated)), strict=True
        )
        made = self._combined(
            fit, (name, stated), frames, of=of, confidence=question.confidence, freedom=freedom
        ).facts
        facts = {**made, "statistic_of": [formula], **weighted}
        facts["notes"] = [*made["notes"], *itertools.chain(*left_out)]
        if stated.get("mechanism") in ABLE:
            tables = opened(self._folder, name, verified=True)
            tables = tables.asked(replace(question, weight=False))
            facts["guessed"] = tables.not_measured(columns_in(formula, tables.domain.names))
        if question.population and (question.weight or question.persons):
            sampling = HOUSEHOLDS if by_household else self._measured.weights.design
            facts["cells"] = [cell | {"sampling": sampling} for cell in made["cells"]]
        return Estimates(facts)

    def _ask(
        self,
        statistic: str,
        columns: tuple[str, ...],
        by: str | Sequence[str],
        where: Where | None,
        of: Of,
        confidence: float,
        **more: Any,
    ) -> Estimates:
        conditions = {
            name: tuple(map(_written, [values] if isinstance(values, Values) else values))
            for name, values in (where or {}).items()
        }
        question = Question(
            columns=(by,) if isinstance(by, str) else tuple(by),
            conditions=conditions,
            statistic=statistic,
            of=columns,
            confidence=confidence,
            population=_checked(of).endswith("population"),
            persons=of.startswith("persons"),
            **more,
        )
        return self.ask(question)

    def ask(self, question: Question) -> Estimates:
        """Answer a question as the command line puts it."""
        if self._earlier is None:
            return Estimates(answer(self._measured, question))
        named = {*question.columns, *question.of, *question.conditions}
        before = self._before(named, question)
        return Estimates(change_of(before.ask(question).facts, answer(self._measured, question)))

    def _resource(self, stem: str) -> Mapping[str, Any]:
        """A file of the bundle's data, as the data package describes it."""
        path = written_file(self._folder, stem)
        if path is None:
            raise QueryError(f"The bundle has no file data/{stem}.", where=self.where)
        name = path.relative_to(self._folder).as_posix()
        found: Mapping[str, Any] = next(
            each for each in self._package["resources"] if each["path"] == name
        )
        return found

    def _table_of(self, stem: str) -> tuple[pa.Table, Sequence[Mapping[str, Any]]]:
        """A file of the bundle's data, and its columns with the values that they list as text."""
        import pyarrow as pa

        resource = self._resource(stem)
        path = self._folder / resource["path"]
        fields = [dict(each) for each in resource["schema"]["fields"]]
        text = pa.schema(
            [(each["name"], pa.string()) for each in fields if each["type"] == "string"]
        )
        table = pa.Table.from_batches(list(read_batches(path, text)))
        plain = text_of_csv if path.suffix == ".csv" else str
        for each in fields:
            listed = each.get("constraints", {}).get("enum", ())
            each["listed"] = [*map(plain, listed)] if each["type"] == "string" else []
        return table.rename_columns([each["name"] for each in fields]), fields


def _has_several(stated: Mapping[str, Any]) -> bool:
    """Whether a unit may have none or several records, which copies do not tell apart."""
    several = int(stated.get("unit_records", 1)) > 1 or bool(stated.get("absent_records"))
    return stated["kind"] != "linked" and several


def _frame(table: pa.Table, fields: Sequence[Mapping[str, Any]], as_: Frame) -> Any:
    """A table as a data frame; of pandas with categories in their order."""
    if as_ == "arrow":
        return table
    if as_ == "polars":
        try:
            import polars
        except ImportError:
            raise DependencyError(
                "Polars is not installed.", next_step="Install it, or use as_='pandas'."
            ) from None
        return polars.from_arrow(table)
    if as_ != "pandas":
        raise QueryError("as_ is 'pandas', 'polars' or 'arrow'.", where="as_")
    import pandas as pd

    frame = table.to_pandas()
    for field in fields:
        if field["listed"]:
            ordered = field.get("declared", {}).get("kind") == "ordinal"
            frame[field["name"]] = pd.Categorical(
                frame[field["name"]], categories=field["listed"], ordered=ordered
            )
    return frame


def _written(value: Values) -> str:
    """A value as conditions name it: numbers of frames are floats, and their nulls are missing."""
    if value is None or value != value:
        return MISSING
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _checked(of: Of) -> Of:
    """Whom a question is of, if it is one of those."""
    if of not in get_args(Of):
        raise QueryError(
            "'of' is 'records' or 'population', or of linked records 'persons' or 'persons of a "
            f"population', and not {of!r}.",
            where="of",
        )
    return of


def open_release(
    bundle: str | PathLike[str],
    *,
    product: str | None = None,
    keys: Iterable[str | PathLike[str]] = (),
) -> Release:
    """Verify a bundle and open it for questions; for arguments see ``statpress.open``."""
    location = location_of(str(bundle))
    manifest = verify_location(location)
    signed_by(location.where, manifest, [read_public_key(Path(key)) for key in keys])
    if isinstance(location, Folder):
        return Release(location.where, Path(bundle), manifest, product, None)
    held = tempfile.TemporaryDirectory(prefix="statpress-")
    for name, (size, digest) in files_of(manifest).items():
        if name in ("privacy.json", "datapackage.json") or name.startswith("data/"):
            content = location.text(name, size) if is_plain(name) else None
            if content is None or hashlib.sha256(content).hexdigest() != digest:
                raise BundleVerificationError(f"{name} was changed.", where=location.where)
            path = Path(held.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return Release(location.where, Path(held.name), manifest, product, held)
