"""Microdata by marginals in a bundle: a row for each record, and what they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.marginals.expected_error import records_kept
from mechanisms.marginals.marginals import Marginals, Microdata
from mechanisms.marginals.measurement import GRID
from mechanisms.marginals.released import NoisyMarginals
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.tables.kind import MICRODATA
from tasks.execution.resources import machine_memory
from tasks.formats.profile import profile_file
from tasks.formats.registry import read_batches
from tasks.formats.writing import Progress, write_batches, write_codes
from tasks.products.counts.fields import column_field, range_field
from tasks.products.counts.figures import not_in_it, unlisted_in_words, zeros_by_codes
from tasks.products.kind import Field, ProductKind, ReportPart, TableForm, described
from tasks.products.marginals.part import part_of
from tasks.products.marginals.tables_file import (
    drawn_tables,
    fields,
    raw_digest,
    write_tables,
)
from tasks.products.marginals.true_errors import marginals_errors
from tasks.products.true_errors import TrueErrors
from tasks.products.working_memory import WorkingMemory, of_rows

if TYPE_CHECKING:
    from configs.models.release import PublishConfig

Planned = PlannedProduct[Marginals]

_PAIRS: Mapping[str, tuple[str, str]] = {
    "column_1": ("string", "A column of the records."),
    "column_2": ("string", "Another."),
    "relation": (
        "string",
        "'measured': their joint table was. 'shrunk away': it was, and shows a relation weaker "
        "than its noise, or none. 'assumed independent': it was not measured, and the records have "
        "these two columns related only through others. 'known': it is public, and met exactly.",
    ),
    "standard_error": (
        "number",
        "Of the estimated count of one cell of their table; null if it was not measured.",
    ),
    "score_raw": (
        "integer",
        f"Noisy distance of their table from independence, in steps of 1/{GRID} of a record; "
        "null if pairs were not scored.",
    ),
}


@dataclass(frozen=True)
class DerivedMicrodata:
    """What was released, and the records that follow from it."""

    raw: NoisyMarginals
    microdata: Microdata


class MarginalMicrodata(ProductKind[Marginals, NoisyMarginals, DerivedMicrodata]):
    """Records, the noisy tables that they were fitted to, and what is known of each pair."""

    core = MICRODATA
    only = (Marginals.name,)

    @property
    def family(self) -> str:
        return "microdata by marginals"

    def postprocess(
        self, product: Planned, raw: NoisyMarginals, n_records: int
    ) -> DerivedMicrodata:
        return DerivedMicrodata(raw, product.mechanism.postprocess(raw))

    def forms(self, product: Planned) -> list[TableForm]:
        words = not_in_it(product.domain)
        spread = product.mechanism.uniform
        columns = [
            range_field(column) if spread and column.ends else column_field(column)
            for column in product.domain.columns
        ]
        most = max((len(group) for group, _ in product.mechanism.groups), default=1)
        return [
            TableForm(product.name, columns, words, "synthetic records"),
            TableForm(
                f"{product.name}_tables", fields(most), words, "noisy tables with standard errors"
            ),
            TableForm(
                f"{product.name}_pairs", described(_PAIRS), title="which pairs were measured"
            ),
        ]

    def write_table(
        self,
        form: TableForm,
        product: Planned,
        derived: DerivedMicrodata,
        path: Path,
        advance: Progress,
    ) -> None:
        found = derived.microdata
        part = form.stem.removeprefix(product.name)
        if not part:
            within = _within(derived.raw) if product.mechanism.uniform else None
            write_codes(product.domain, found.codes, path, advance, within, form.fields)
        elif part == "_tables":
            most = len([f for f in form.fields if f["name"].startswith("column_")])
            write_tables(derived.raw, found.residuals, most, path, form.fields)
        else:
            _write_pairs(product.domain, derived, path, form.fields)

    def rows(self, form: TableForm, product: Planned, derived: DerivedMicrodata) -> int:
        part = form.stem.removeprefix(product.name)
        if not part:
            return len(derived.microdata.codes[0])
        if part == "_tables":
            return sum(table.values.size for table in drawn_tables(derived.raw))
        return len(derived.microdata.relations)

    def profile_table(
        self, form: TableForm, product: Planned, derived: DerivedMicrodata, path: Path
    ) -> dict[str, int]:
        if form.stem == product.name:
            return profile_file(path, product.domain, spread=product.mechanism.uniform)
        names = [field["name"] for field in form.fields]
        figures = {"rows": 0, "schema": 0}
        for batch in read_batches(path, None):
            figures["rows"] += batch.num_rows
            figures["schema"] |= int(batch.schema.names != names)
        return figures

    def size(self, product: Planned) -> int:
        mechanism = product.mechanism
        records = mechanism.records or product.target.n_records
        return records * len(product.domain.columns) + 6 * mechanism.rows(n_cells=0)

    def working_memory(self, product: Planned) -> WorkingMemory:
        mechanism, n_records = product.mechanism, product.target.n_records
        published = mechanism.records or n_records
        fitting = product.expected_error.memory
        columns = product.domain.columns
        cells = mechanism.rows(n_cells=0)
        kept = records_kept(mechanism.sizes, published) + 64 * cells
        return WorkingMemory(
            draw=2**28 + 64 * cells,
            derive=fitting,
            write=of_rows(max(published, cells), columns),
            kept=kept,
            figure=f"{published:,} records of {len(columns)} columns",
            next_step="Ask for fewer 'records', or for fewer columns or cells.",
        )

    def rehearse(self, folder: Path, product: Planned, publish: PublishConfig) -> None:
        """Write every declared value and read it back, where there is memory for the records.

        Raises:
            ConfigError: A value does not come back as it was written, or the records would not
                fit into this machine's memory.
        """
        needed, there = self.working_memory(product).derive, machine_memory()
        if needed > there:
            raise ConfigError(
                f"Fitting the records needs up to {needed / 2**30:,.1f} GiB of memory, and this "
                f"machine has {there / 2**30:,.1f} GiB.",
                where=f"products.{product.name}",
                next_step="Ask for fewer records or cells, or run on a larger machine.",
            )
        domain = Domain(product.domain.columns)
        rows = np.arange(max(column.size for column in domain.columns))
        codes = [rows % column.size for column in domain.columns]
        fields = self.forms(product)[0].fields
        for suffix in publish.formats:
            path = folder / f"rehearsal.{suffix}"
            within = np.random.default_rng(0) if product.mechanism.uniform else None
            write_codes(domain, codes, path, spread=within, fields=fields)
            found = profile_file(path, domain, spread=within is not None)
            path.unlink()
            if found.pop("rows") != len(rows) or any(found.values()):
                raise ConfigError(
                    f"A declared value cannot be written to {suffix} and read back.",
                    where=f"products.{product.name}",
                )

    def stated(self, product: Planned, raw: NoisyMarginals) -> dict[str, Any]:
        """What was drawn with how much noise, and what no file holds."""
        names = product.domain.names

        def named(group: Sequence[int]) -> list[str]:
            return [names[column] for column in group]

        return {
            "unbiased": True,
            "structural_zeros": zeros_by_codes(product.domain),
            "absent_records": product.domain.absent,
            "grid": GRID,
            "tables": [
                {"columns": named(table.group), "scale": str(table.scale)}
                for table in drawn_tables(raw)
            ],
            "score_scale": str(raw.scores.scale) if raw.scores is not None else None,
            "known": [
                {"columns": named(group), "counts": counts.ravel().tolist()}
                for group, counts in raw.known.items()
            ],
            "raw_sha256": raw_digest(raw),
        }

    def advice(self, product: Planned, plan: Plan) -> str:
        name, error = product.name, product.expected_error
        padded = ""
        if product.domain.absent:
            padded = (
                " How many records units really have is private: the file has about as many, as "
                "estimated."
            )
        return (
            f"- `{name}`: synthetic records of {len(product.domain.columns)} columns, fitted to "
            f"noisy tables of single columns and of pairs. Expected: {error.summary()}.{padded} "
            f"For counts with standard errors use `{name}_tables` or `statpress query`; "
            f"`{name}_pairs` says which pairs of columns were measured."
        )

    def notes(self, products: Sequence[Planned]) -> list[str]:
        """How the records may be used, and what no file holds."""
        found = [
            "**Records by marginals** agree with the source in single columns and in the measured "
            "pairs, but for noise. Relations of three or more columns are those that follow from "
            "pairs. Intervals come from the noisy tables and never from the records: the file "
            "`_tables` has them for what was measured, with every estimate unbiased. Where noisy "
            "scores decided which pairs to measure, its standard errors hold given that decision."
        ]
        words = max((unlisted_in_words(product.domain) for product in products), key=len)
        return [*found, f"**Not in any file.** {words}"] if words else found

    def true_errors(self, product: Planned, derived: DerivedMicrodata, private: Any) -> TrueErrors:
        """Of columns and pairs, measured or not."""
        return marginals_errors(product, derived, private)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The columns and the pairs, as they were measured."""
        return part_of(folder, name, stated, resources)


def _write_pairs(
    domain: Domain, derived: DerivedMicrodata, path: Path, fields: Sequence[Field]
) -> None:
    """A row for each pair of columns."""
    import pyarrow as pa

    found, scores = derived.microdata, derived.raw.scores
    raw = dict(zip(scores.pairs, scores.values.tolist(), strict=True)) if scores else {}
    pairs = sorted(found.relations)
    errors = [
        found.residuals.table_variance(pair) ** 0.5 if pair in found.residuals.values else None
        for pair in pairs
    ]
    columns: list[list[Any]] = [
        [domain.names[a] for a, _ in pairs],
        [domain.names[b] for _, b in pairs],
        [found.relations[pair] for pair in pairs],
        errors,
        [raw.get(pair) for pair in pairs],
    ]
    types = {"string": pa.string(), "number": pa.float64(), "integer": pa.int64()}
    schema = pa.schema([(name, types[kind]) for name, (kind, _) in _PAIRS.items()])
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    write_batches(schema, [arrays], path, fields)


def _within(release: NoisyMarginals) -> np.random.Generator:
    """Draws where in their cells values lie; the same for every file, from what is public."""
    return release.public_generator().spawn(1)[0]
