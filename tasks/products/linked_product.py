"""Households and their persons in a bundle: two files with keys, and what they were made from.

Both files are of the same synthetic records. A household has its own columns, its number of persons
and its key, which the persons have too; they stand in the order of their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    Publication,
    column_field,
    describe_column,
    described,
)

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

    def publication(self, product: Planned, derived: DerivedMicrodata | None = None) -> Publication:
        """Households, persons, noisy tables, and what is known of each pair."""
        beside = super().publication(product, derived).tables[1:]
        tables = _Tables.of(product.domain)
        household, person = tables.keys()
        weight = weight_field(product.mechanism.weight, product.domain)
        inherited = {name: (sort, _WEIGHT_OF_PERSON) for name, (sort, _) in weight.items()}
        n = product.mechanism.records or product.target.n_records
        stems = f"{product.name}_households", f"{product.name}_persons"
        households = DataTable(
            stem=stems[0],
            fields=[
                *map(column_field, tables.households.columns),
                *described({household: _HOUSEHOLD} | weight),
            ],
            title="synthetic households",
            description=f"Their persons are in {stems[1]}, by {household}.",
            most_rows=n,
            domain=tables.households,
            keys=(household,),
        )
        persons = DataTable(
            stem=stems[1],
            fields=[
                *map(column_field, tables.persons.columns),
                *described({household: _OF_HOUSEHOLD, person: _PERSON} | inherited),
            ],
            title="synthetic persons",
            description=f"Their households are in {stems[0]}, by {household}.",
            most_rows=n * len(tables.places),
            domain=tables.persons,
            keys=(person,),
            refers=(household, stems[0]),
            check=partial(_disagreeing, stems=stems, household=household, size=tables.size),
        )
        if derived is not None:
            codes = derived.microdata.codes
            of_persons, belonging = tables.persons_of(codes)
            numbers = np.arange(1, len(codes[0]) + 1)
            weights = {name: derived.microdata.weights(codes) for name in weight}
            households = replace(
                households,
                expected=len(numbers),
                rows=_keyed(
                    tables.households,
                    [codes[i] for i in tables.own],
                    {household: numbers} | weights,
                ),
            )
            keys: dict[str, NDArray[Any]] = {
                household: numbers[belonging],
                person: np.arange(1, len(belonging) + 1),
            }
            keys |= {name: own[belonging] for name, own in weights.items()}
            persons = replace(
                persons,
                expected=len(belonging),
                rows=_keyed(tables.persons, of_persons, keys),
            )
        return Publication((households, persons, *beside))

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


_LINKED = (
    "**Linked records.** The unit of privacy is a household with all its persons. A column of "
    "persons was measured in every place of a household, in the order that `config.yaml` declares; "
    "tables of all persons are sums over the places. Intervals come from the noisy tables and "
    "never from the records."
)


def _keyed(domain: Domain, codes: Sequence[NDArray[Any]], more: Mapping[str, NDArray[Any]]) -> Rows:
    """Records with columns of numbers behind."""
    import pyarrow as pa

    rows = code_rows(domain, codes)
    behind = [pa.array(values) for values in more.values()]
    fields = [pa.field(n, v.type, nullable=False) for n, v in zip(more, behind, strict=True)]

    def batches() -> Iterator[list[Any]]:
        start = 0
        for arrays in rows.batches():
            end = start + len(arrays[0])
            yield [*arrays, *(values[start:end] for values in behind)]
            start = end

    return Rows(pa.schema([*rows.schema, *fields]), batches)


def _disagreeing(path: Path, stems: tuple[str, str], household: str, size: str) -> dict[str, int]:
    """In how many households of the other file the number of persons is not that of this one."""

    def column(own: Path, name: str) -> NDArray[np.int64]:
        parts = [batch.column(name).to_numpy(False) for batch in read_batches(own, None)]
        return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)

    other = path.with_name(f"{stems[0]}{path.suffix}")
    keys, sizes, belonging = column(other, household), column(other, size), column(path, household)
    most = max(int(keys.max(initial=0)), int(belonging.max(initial=0)))
    counted = np.bincount(belonging, minlength=most + 1)
    wanted = np.bincount(keys, weights=sizes, minlength=most + 1).astype(np.int64)
    return {"households of another size": int(np.sum(counted != wanted))}


FILES = LinkedRecords()
