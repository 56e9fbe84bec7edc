"""Households and their persons in a bundle: two files with keys, and what they were made from.

Both files are of the same synthetic records. A household has its own columns, its number of persons
and its key, which the persons have too; they stand in the order of their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.linked_marginals import LINKED
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.residuals import NoisyMarginals
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.bundle.file_formats import read_batches, read_rows, written_file
from statpress.tasks.bundle.rows import Rows, code_rows
from statpress.tasks.pages.blocks import Block, Grid, Prose, Section
from statpress.tasks.products.copied_records import COPY, free_name, note
from statpress.tasks.products.marginal_product import (
    DerivedMicrodata,
    MarginalMicrodata,
    Planned,
    kept_in_words,
    list_of_pairs,
    weight_field,
    weight_words,
)
from statpress.tasks.products.product_kind import ReaderWords, ReportPart
from statpress.tasks.products.publication import (
    DataTable,
    Field,
    column_field,
    describe_column,
    described,
)

_FILES_OF = "households", "persons"  # the ends of their stems
_WEIGHT_OF_PERSON = "The weight of the person's household, and so the person's."
_HOUSEHOLD = ("integer", "The household's number, made up with it; from 1.")
_OF_HOUSEHOLD = ("integer", "The household that the person belongs to.")
_PERSON = ("integer", "The person's number, made up with it; from 1, no two persons share one.")


@dataclass(frozen=True)
class _Tables:
    """The columns of both files.

    Attributes:
        households: Their columns, with the number of persons last.
        persons: Their columns.
        own: Positions of the former in a household's record.
        places: Of each place, positions of the latter.
    """

    households: Domain
    persons: Domain
    own: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, domain: Domain) -> _Tables:
        presence = Presence.of(domain)
        assert presence is not None  # the kind has checked it
        columns = domain.columns
        own = [i for i in range(len(columns)) if i not in presence.columns and i != presence.size]
        own.append(presence.size)
        slots = [columns[i] for i in presence.places[0]]
        return cls(
            Domain(tuple(columns[i] for i in own)),
            Domain(tuple(slot.of for slot in slots if isinstance(slot, Slot))),
            tuple(own),
            presence.places,
        )

    @property
    def size(self) -> str:
        """Name of the column with the number of persons."""
        return self.households.names[-1]

    def keys(self) -> tuple[str, str]:
        """Names of the columns that number households and persons, which no column has."""
        taken = {name.casefold() for name in (*self.households.names, *self.persons.names)}
        names = []
        for name in ("household_id", "person_id"):
            while name in taken:
                name += "_"
            names.append(name)
        return names[0], names[1]

    def persons_of(
        self, codes: Sequence[NDArray[Any]]
    ) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
        """Codes of all persons, household by household, and the household of each, from 0."""
        most = len(self.places)
        there = np.arange(most) < codes[self.own[-1]].astype(np.int64)[:, None]
        found = [
            np.stack([codes[place[column]] for place in self.places], axis=1)[there]
            for column in range(len(self.persons.columns))
        ]
        return found, np.nonzero(there)[0]


class LinkedRecords(MarginalMicrodata):
    """Households, persons, the noisy tables that they were fitted to, and what pairs are known."""

    core = LINKED

    def record_files(self, product: Planned, derived: DerivedMicrodata | None) -> list[DataTable]:
        """Households and persons, and further sets of both."""
        number = product.mechanism.copies
        files = _files(product, derived)
        return [*files, *(_files(product, derived, number) if number else ())]

    def stated(self, product: Planned, raw: NoisyMarginals | None = None) -> dict[str, Any]:
        """With the columns of a household's record, which no file has."""
        stated = super().stated(product, raw)
        if raw is not None:
            stated["record"] = [describe_column(column) for column in product.domain.columns]
        return stated

    def words(self, product: Planned, plan: Plan) -> ReaderWords:
        """How the two files go together."""
        name, tables = product.name, _Tables.of(product.domain)
        household, _ = tables.keys()
        most = len(tables.places)
        item = (
            f"- `{name}`: synthetic households and their persons. `{name}_households` and "
            f"`{name}_persons` are merged by `{household}`; every household has as many persons as "
            f"its `{tables.size}` says. Of larger households the first {most} persons were used, "
            f"so `{tables.size}` is {most} for all that have {most} or more. Expected of pairs of "
            f"columns: {product.expected_error.summary()}. For counts with standard errors use "
            f"`{name}_tables` or `statpress query`, where `COLUMN_1` is that of the person in the "
            "first place of a household."
        )
        own, notes = weight_words(product)
        if own:
            own += " Persons have that of their household."
        if copies := product.mechanism.copies:
            own += (
                f" For intervals of anything else compute it on each of the {copies} sets in "
                f"`{name}_households_copies` and `{name}_persons_copies`, and combine the results "
                "as below."
            )
            notes = {"copies of records": f"{note(1)} {_COPIES}", **notes}
        return ReaderWords(item + own, {"linked records": _LINKED} | notes)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """How large households are, and which pairs were measured."""
        lead = Prose(
            [
                "Households and persons are distributed in these records as in the confidential "
                "ones, but for noise: columns of households, of persons, of a household and a "
                "person of it, and of two persons of one household."
            ]
        )
        parts, opening = [], ""
        households, pairs = (
            written_file(folder, f"{name}_{stem}") for stem in ("households", "pairs")
        )
        if households is not None and pairs is not None:
            size = next(
                field["name"]
                for each in resources
                if Path(each["path"]).stem == f"{name}_households"
                for field in reversed(each["schema"]["fields"])
                if "declared" in field
            )
            sizes = Counter(
                value for batch in read_batches(households, None)
                for value in batch.column(size).to_pylist()
            )  # fmt: skip
            rows = [(f"{each:,}", f"{sizes[each]:,}") for each in sorted(sizes)]
            grid = Grid(("persons", "synthetic households"), rows, title="Households by size")
            parts.append(Section(f"product-{name}-sizes", "Sizes", [grid]))
            listed = list(read_rows(pairs))
            opening = f"In {name} {kept_in_words(listed)}"
            blocks: list[Block] = [Prose([kept_in_words(listed)]), list_of_pairs(name, listed, {})]
            parts.append(Section(f"product-{name}-pairs", "Pairs of columns", blocks))
        return ReportPart(
            "synthetic households and persons",
            Section(f"product-{name}", name, [lead], parts),
            opening=opening,
        )


_COPIES = (
    "Figures of persons whose variance is computed on a copy, for a population, need clusters: the "
    "persons of a household were drawn together. Intervals from copies of households are "
    "somewhat too short: at .95 they held in .74 to .93 of cases on two public tables, and less "
    "often in regressions of persons. How several persons of one household are related is far less "
    "sure than the copies show. Where the noisy tables answer, take their intervals."
)


def _files(
    product: Planned, derived: DerivedMicrodata | None, copies: int = 0
) -> tuple[DataTable, DataTable]:
    """Households and persons, of the records or of so many copies one after the other."""
    tables = _Tables.of(product.domain)
    household, person = tables.keys()
    weight = weight_field(product.mechanism.weight, product.domain)
    inherited = {name: (sort, _WEIGHT_OF_PERSON) for name, (sort, _) in weight.items()}
    n = (product.mechanism.records or product.target.n_records) * max(copies, 1)
    copied = {free_name("copy", product.domain): COPY} if copies else {}
    more = f"{copies} more sets of " if copies else ""
    stems = [f"{product.name}_{each}{'_copies' * bool(copies)}" for each in _FILES_OF]
    households = DataTable(
        stem=stems[0],
        fields=[
            *map(column_field, tables.households.columns),
            *described({household: _HOUSEHOLD} | weight | copied),
        ],
        title=f"{more}synthetic households",
        description=f"Their persons are in {stems[1]}, by {household}.",
        most_rows=n,
        domain=tables.households,
        keys=(household,),
    )
    persons = DataTable(
        stem=stems[1],
        fields=[
            *map(column_field, tables.persons.columns),
            *described({household: _OF_HOUSEHOLD, person: _PERSON} | inherited | copied),
        ],
        title=f"{more}synthetic persons",
        description=f"Their households are in {stems[0]}, by {household}.",
        most_rows=n * len(tables.places),
        domain=tables.persons,
        keys=(person,),
        refers=(household, stems[0]),
        check=partial(
            _disagreeing, stems=stems, household=household, person=person, size=tables.size
        ),
    )
    if derived is None:
        return households, persons
    found = derived.microdata
    sets: list[Sequence[NDArray[Any]]] = [found.codes]
    if copies:
        sets = [tuple(each.T) for each in found.copies.sets]
    sizes = [set_[tables.own[-1]].sum(dtype=np.int64) for set_ in sets]
    before = np.cumsum([0, *sizes]).tolist()

    @lru_cache(maxsize=1)
    def weights(number: int) -> NDArray[np.float64]:
        return found.weights(sets[number])

    def of_households() -> Iterator[tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]]:
        for number, codes in enumerate(sets):
            n_own = len(codes[0])
            keys: dict[str, NDArray[Any]] = {household: number * n_own + np.arange(1, n_own + 1)}
            keys |= {name: weights(number) for name in weight}
            yield (
                [codes[i] for i in tables.own],
                keys | dict.fromkeys(copied, np.full(n_own, number + 1)),
            )

    def of_persons() -> Iterator[tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]]:
        for number, (codes, (_, keys)) in enumerate(zip(sets, of_households(), strict=True)):
            members, belonging = tables.persons_of(codes)
            own = {name: values[belonging] for name, values in keys.items()}
            numbers = before[number] + np.arange(1, len(belonging) + 1)
            yield members, {household: own.pop(household), person: numbers, **own}

    return (
        replace(
            households,
            expected=sum(len(set_[0]) for set_ in sets),
            rows=_keyed(tables.households, households.fields, of_households),
        ),
        replace(
            persons,
            expected=before[-1],
            rows=_keyed(tables.persons, persons.fields, of_persons),
        ),
    )


_LINKED = (
    "**Linked records.** The unit of privacy is a household with all its persons. A column of "
    "persons was measured in every place of a household, in the order that `config.yaml` declares; "
    "tables of all persons are sums over the places. Intervals come from the noisy tables and "
    "never from the records."
)


def _keyed(
    domain: Domain,
    fields: Sequence[Field],
    sets: Callable[[], Iterator[tuple[Sequence[NDArray[Any]], Mapping[str, NDArray[Any]]]]],
) -> Rows:
    """Sets of records one after the other, with columns of numbers behind, as the fields say.

    Args:
        domain: Of the records' codes.
        fields: Of the file.
        sets: Gives the codes of each set, and by name its further columns.
    """
    import pyarrow as pa

    types = {"integer": pa.int64(), "number": pa.float64()}
    behind = [
        pa.field(each["name"], types[each["type"]], nullable=False)
        for each in fields[len(domain.columns) :]
    ]

    def batches() -> Iterator[list[Any]]:
        for codes, more in sets():
            start = 0
            for arrays in code_rows(domain, codes).batches():
                end = start + len(arrays[0])
                yield [*arrays, *(pa.array(more[field.name][start:end]) for field in behind)]
                start = end

    return Rows(pa.schema([*code_rows(domain, ()).schema, *behind]), batches)


def _disagreeing(
    path: Path, stems: Sequence[str], household: str, person: str, size: str
) -> dict[str, int]:
    """Keys that do not rise, and households whose number of persons is not that of this file."""

    def columns(own: Path, *names: str) -> list[NDArray[np.int64]]:
        parts: list[list[NDArray[Any]]] = [[np.zeros(0, np.int64)] for _ in names]
        for batch in read_batches(own, None):
            for part, name in zip(parts, names, strict=True):
                part.append(batch.column(name).to_numpy(False).astype(np.int64))
        return [np.concatenate(part) for part in parts]

    keys, sizes = columns(path.with_name(f"{stems[0]}{path.suffix}"), household, size)
    belonging, persons = columns(path, household, person)
    not_rising = sum(int(np.sum(np.diff(numbers) <= 0)) for numbers in (keys, persons))
    most = max(int(keys.max(initial=0)), int(belonging.max(initial=0)))
    counted = np.bincount(belonging, minlength=most + 1)
    wanted = np.bincount(keys, weights=sizes, minlength=most + 1).astype(np.int64)
    return {
        "keys that do not rise": not_rising,
        "households of another size": int(np.sum(counted != wanted)),
    }


FILES = LinkedRecords()
