"""Everything that can be wrong with a run: how to make it so, and the error it must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from statpress.mechanisms import errors

N = 400
CANARY = "Zyx-canary-7719"
RARE = 48_151_623.42
Break = Callable[[Any], None]


def text(old: str, new: str) -> Break:
    """A change of the config's text."""
    return lambda agency: agency.replace(old, new)


def _too_many_cells(agency: Any) -> None:
    width = "lower: 0, upper: 99, width: 10"
    agency.replace(width, "lower: -9007199254740992, upper: 9007199254740991")
    agency.replace("[region, age, pay]", "[region, age, pay, born]")


def _missing_file(agency: Any) -> None:
    agency.source.unlink()


def _unreadable(agency: Any) -> None:
    agency.source.write_bytes(b"PAR1" + CANARY.encode() * 20 + b"PAR1")


def _not_parquet(agency: Any) -> None:
    agency.source.write_text(f"region,age\n{CANARY},{RARE}\n")


def _truncated(agency: Any) -> None:
    agency.source.write_bytes(agency.source.read_bytes()[:-40])


def _column_absent(agency: Any) -> None:
    table = pq.read_table(agency.source)
    agency.write_source(table.rename_columns(["region", "age", "salary", "born"]))


def _wrong_type(agency: Any) -> None:
    table = pq.read_table(agency.source)
    pay = pa.array([CANARY] * N)
    agency.write_source(table.set_column(2, "pay", pay))


def _text_dates(agency: Any) -> None:
    table = pq.read_table(agency.source)
    agency.write_source(table.set_column(3, "born", pa.array([CANARY] * N)))


def _empty(agency: Any) -> None:
    agency.write_source(pq.read_table(agency.source).slice(0, 0))


def _other_size(agency: Any) -> None:
    agency.write_source(pq.read_table(agency.source).slice(1))


def _nulls_without_cell(agency: Any) -> None:
    table = pq.read_table(agency.source)
    age = pa.array([None, *table["age"].to_pylist()[1:]], pa.int64())
    agency.write_source(table.set_column(1, "age", age))


def _undeclared_category(agency: Any) -> None:
    agency.replace("other: true, missing: true", "missing: true")


def _not_utf8(agency: Any) -> None:
    agency.config.write_bytes(agency.config.read_bytes() + b"\xff\xfe")


def _config_gone(agency: Any) -> None:
    agency.config.unlink()


def _output_is_a_file(agency: Any) -> None:
    agency.releases.write_text("in the way")


def _output_in_kernel(agency: Any) -> None:
    agency.replace("directory: releases", "directory: /proc/statpress")


def _bundle_there(agency: Any) -> None:
    (agency.releases / "first").mkdir(parents=True)


def _ledger_gone(agency: Any) -> None:
    for path in agency.home.root.glob("ledger.sqlite*"):
        path.unlink()


def _ledger_is_text(agency: Any) -> None:
    _ledger_gone(agency)
    agency.home.ledger.write_text("not a database, " * 100)


CASES: dict[str, tuple[Break, type[errors.StatpressError]]] = {
    "missing file": (_missing_file, errors.SourceNotFoundError),
    "unreadable Parquet": (_unreadable, errors.SourceUnreadableError),
    "text named Parquet": (_not_parquet, errors.SourceUnreadableError),
    "truncated Parquet": (_truncated, errors.SourceUnreadableError),
    "column absent": (_column_absent, errors.ColumnNotFoundError),
    "wrong type": (_wrong_type, errors.ColumnTypeError),
    "text for dates": (_text_dates, errors.ColumnTypeError),
    "empty source": (_empty, errors.EmptySourceError),
    "another number of records": (_other_size, errors.QualityGateError),
    "nulls without a cell": (_nulls_without_cell, errors.QualityGateError),
    "undeclared category": (_undeclared_category, errors.QualityGateError),
    "unknown key": (text("title:", "titel:"), errors.UnknownKeyError),
    "malformed YAML": (text("title: Test", "title: [Test"), errors.YamlError),
    "not UTF-8": (_not_utf8, errors.ConfigNotFoundError),
    "config gone": (_config_gone, errors.ConfigNotFoundError),
    "duplicate column": (
        text("columns: [born]", "columns: [born, born]"),
        errors.DuplicateColumnError,
    ),
    "duplicate key": (text("  born:", "  age:"), errors.DuplicateColumnError),
    "unsorted edges": (
        text("lower: 0, upper: 100, bins: 5", "edges: [0, 9, 5]"),
        errors.EdgesError,
    ),
    "overlapping edges": (
        text("lower: 0, upper: 100, bins: 5", "edges: [0, 9, 9]"),
        errors.EdgesError,
    ),
    "bins that do not tile": (text("width: 10", "width: 7"), errors.EdgesError),
    "epsilon zero": (text("epsilon: 1.0", "epsilon: 0"), errors.BudgetValueError),
    "epsilon negative": (text("epsilon: 1.0", "epsilon: -1"), errors.BudgetValueError),
    "epsilon NaN": (text("epsilon: 1.0", "epsilon: .nan"), errors.BudgetValueError),
    "delta one": (text("delta: 1.0e-6", "delta: 1"), errors.BudgetValueError),
    "delta NaN": (text("delta: 1.0e-6", "delta: .NaN"), errors.BudgetValueError),
    "shares that do not sum": (text("share: 0.5}", "share: 0.6}"), errors.BudgetValueError),
    "records zero": (text("[born], share", "[born], records: 0, share"), errors.RecordsError),
    "pseudocount NaN": (
        text("[born], share", "[born], pseudocount: .nan, share"),
        errors.RecordsError,
    ),
    "n_records zero": (text("n_records: 400", "n_records: 0"), errors.RecordsError),
    "domain too large": (_too_many_cells, errors.DomainTooLargeError),
    "records past the budget": (
        text("[born], share", "[born], records: 10000000, pseudocount: 1, share"),
        errors.InfeasibleBudgetError,
    ),
    "budget exceeded": (text("epsilon: 1.0", "epsilon: 3.5"), errors.InsufficientBudgetError),
    "unregistered dataset": (
        text("dataset: testdata", "dataset: other"),
        errors.UnregisteredDatasetError,
    ),
    "another size registered": (
        text("n_records: 400", "n_records: 399"),
        errors.PolicyMismatchError,
    ),
    "output is a file": (_output_is_a_file, errors.OutputNotWritableError),
    "output not writable": (_output_in_kernel, errors.OutputNotWritableError),
    "bundle already there": (_bundle_there, errors.BundleExistsError),
    "ledger gone": (_ledger_gone, errors.LedgerUnavailableError),
    "ledger is text": (_ledger_is_text, errors.LedgerIntegrityError),
}
