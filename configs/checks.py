"""What the sections of a config must be to each other, in whole and in part.

No file of the source is opened here: whether it has the declared columns is checked where it is
read (``tasks.source.engine.check_source_columns``).

Of a faulty config the parts that are in order are checked as well, so that their faults are named
in the same run: the declared domain, the limits of the checks on the input, and what the formats
cannot hold.

Public totals that a config keeps in files of their own are read here. They are published with the
config, so a file must be a table of totals by its form: a CSV file of that very name below the
config's folder, a row for each combination of values at most, and never the source.
"""

from __future__ import annotations

import csv
import glob
import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import ValidationError

from statpress.configs import formats
from statpress.configs.declared_columns import build_zero
from statpress.configs.formats import fault_of, stored_name
from statpress.configs.release_config import CheckConfig, ReleaseConfig
from statpress.configs.yaml_text import Document, Findings, lines_of, placed, read_text
from statpress.configs.yaml_text import Place as Keys
from statpress.mechanisms.domain.columns import Categorical, Column, Numeric, Slot, labels
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError, DuplicateColumnError

if TYPE_CHECKING:
    from statpress.mechanisms.marginals.target_tables import KnownTotal

_NAMED = ("domain", "geography", "products", "checks")
_STAND_INS: dict[str, Any] = {
    "title": "-",
    "about": {},
    "dataset": "-",
    "source": {"path": "-"},
    "privacy": {"adjacency": "replace_one", "unit": "record", "n_records": 1},
    "budget": {"epsilon": 1, "delta": 0},
    "publish": {"directory": "-"},
    "resources": {},
}
"""For sections at fault. Nothing comes of them: a config with a fault is never returned."""


def rest_of(document: Document) -> ReleaseConfig | None:
    """The config without the columns, products, checks and sections that are at fault.

    Returns:
        None if too little is left to be checked.
    """
    if not isinstance(document.value, dict):
        return None
    value = dict(document.value)
    try:
        return ReleaseConfig.model_validate(value)
    except ValidationError as error:
        places = [detail["loc"] for detail in error.errors(include_url=False)]
    except ConfigError:
        return None
    if () in places:  # the config as a whole
        return None
    for part, *inner in places:
        if part in _NAMED and inner and isinstance(value.get(part), dict):
            value[part] = {k: v for k, v in value[part].items() if k != inner[0]}
        elif part in _STAND_INS:
            value[part] = _STAND_INS[part]
        else:
            value.pop(part, None)
    try:
        return ReleaseConfig.model_validate(value)
    except (ValidationError, ConfigError):
        return None


def declared_columns(document: Document) -> frozenset[str]:
    """Names of all columns of the domain, those at fault as well."""
    written = document.value if isinstance(document.value, dict) else {}
    sections = [written.get("domain")]
    if isinstance(tables := written.get("tables"), dict):
        sections = [each.get("domain") for each in tables.values() if isinstance(each, dict)]
        sections.append({f"n_{name}": None for name in tables})
    weight = _written(document, "weight").get("column")
    if isinstance(weight, str):
        sections.append({weight.partition(".")[2] if isinstance(tables, dict) else weight: None})
    return frozenset(name for each in sections if isinstance(each, dict) for name in each)


def place_of_column(config: ReleaseConfig, name: str) -> Keys:
    """Where a column is declared."""
    if config.weight is not None and name == config.weight.column:
        return ("weight", "edges")
    return ("domain", name) if config.linked is None else config.linked.place_of(name)


def columns_in_order(
    config: ReleaseConfig, document: Document, folder: Path, findings: Findings
) -> dict[str, Column]:
    """The columns that are in order, by name."""
    columns = {}
    for name, column in config.columns.items():

        def read_lines(relative: str, name: str = name) -> list[str]:
            if (listed := lines_of(relative)) is not None:
                return [line for line in listed if line.strip()]
            where = document.where((*place_of_column(config, name), "categories"))
            path = (folder / relative).resolve()
            if path.suffix != ".txt" or folder.resolve() not in path.parents:
                # Its lines are published, so it must not be a data file by mistake.
                raise ConfigError(
                    f"'{relative}' is not a .txt file in or below the config's folder.",
                    where=where,
                    next_step="Keep the categories in a .txt file in the config's folder.",
                )
            text = read_text(path, f"{where}: {relative}")
            return [line for line in text.splitlines() if line.strip()]

        with findings.noting(), placed(document, place_of_column(config, name)):
            columns[name] = column.build(name, read_lines)
            source = config.source if config.linked is None else config.linked.source_of(name)
            source.check_column(columns[name])
    return columns


def domain_of(
    config: ReleaseConfig, columns: dict[str, Column], document: Document, findings: Findings
) -> Domain:
    """The domain of the columns that are in order."""
    linked = config.linked
    with placed(document, ("domain",)):
        domain = Domain(tuple(columns.values() if linked is None else linked.flat(columns)))
    zeros: list[ZeroPattern] = []
    rules: list[ZeroPattern] = []
    for i, declared in enumerate(config.structural_zeros):
        if not columns.keys() >= declared.keys() & config.columns.keys():
            continue  # of a column that is not in order, which is said already
        with findings.noting(), placed(document, ("structural_zeros", i)):
            zero = build_zero(declared, columns)
            patterns = [zero] if linked is None else list(linked.patterns(zero))
            (zeros if patterns == [zero] else rules).extend(patterns)
    for i, rule in enumerate(config.rules if linked is not None else ()):
        with findings.noting(), placed(document, ("rules", i)):
            assert linked is not None
            rules.extend(linked.broken(rule, columns))
    with placed(document, ("structural_zeros",)):
        # A unit of one record lacks none, and needs no cell for what it lacks.
        full = Domain(domain.columns, tuple(zeros), absent=config.privacy.pads, rules=tuple(rules))
    with placed(document, ("rules",)):
        if linked is not None:
            linked.check_possible(full)
    return full


_PARTS = (
    "", "_debiased", "_estimates", "_table", "_raw", "_distribution", "_cells_band",
    "_cumulative_band", "_households", "_persons",
)  # fmt: skip
"""Of the names of files."""
RESERVED_COLUMNS = ("estimate", "projected", "raw", "raw_block", "standard_error")
OF_BANDS = ("count_lower", "count_upper", "share_lower", "share_upper")
OF_PLACES = ("lower", "upper")


def check_product_columns(document: Document, findings: Findings) -> None:
    """Check names of columns and of files; what is wrong with them goes to the findings.

    Products and checks with other faults are checked as well.
    """
    stems: set[str] = set()
    declared = declared_columns(document)
    for product, said in _written(document, "products").items():
        parts = (*_PARTS, *_parts_of_places(said))
        written = {f"{product}{part}".casefold() for part in parts}
        twice = len(written) < len(parts)
        if twice or written & stems:
            which = "Two tables of this product" if twice else "This product and another"
            found = ConfigError(
                f"{which} would be written to the same file.",
                where=document.where(("products", product)),
                next_step="Name each level once in 'at', or rename a level of the geography."
                if twice
                else "Rename one of them.",
            )
            findings.errors.append(found)
        stems |= written
        before: list[str] = []
        for place, name in _named_columns(said):
            with findings.noting():
                where = document.where(("products", product, *place))
                if name in OF_BANDS and said.get("bands"):
                    raise ConfigError(
                        f"'{name}' is the name of a column of every band.",
                        where=where,
                        next_step="Rename the column in the source, or leave out 'bands'.",
                    )
                _check_column(name, before, declared, where)
            before.append(name)
        for place, name, is_level in _names_at_levels(said):
            with findings.noting():
                where = document.where(("products", product, *place))
                if name in (*OF_PLACES, *(RESERVED_COLUMNS if is_level else ())):
                    raise ConfigError(
                        f"'{name}' is the name of a column of every table of places.",
                        where=where,
                        next_step="Rename the column in the source, or the level.",
                    )
                if not is_level and place[0] == "at":
                    _check_column(name, (), declared, where)
    for name in _written(document, "checks"):
        if name not in declared:
            findings.errors.append(_undeclared(name, document.where(("checks", name))))


def _written(document: Document, section: str) -> dict[str, Any]:
    """A section as it is written, with the entries that are at fault."""
    said = document.value.get(section) if isinstance(document.value, dict) else None
    if not isinstance(said, dict):
        return {}
    return {key: value for key, value in said.items() if isinstance(key, str)}


def _named_columns(product: Any) -> list[tuple[Keys, str]]:
    """The columns of a product as it is written, with their places; none that are not all names."""
    written = product if isinstance(product, dict) else {}
    found: list[tuple[Keys, Any]] = _listed(("columns",), written.get("columns", []))
    statistic = written.get("statistic")
    regression = statistic.get("regression") if isinstance(statistic, dict) else None
    if isinstance(regression, dict):
        place: Keys = ("statistic", "regression")
        found.append(((*place, "of"), regression.get("of")))
        on = regression.get("on")
        found += [((*place, "on"), on)] if isinstance(on, str) else _listed((*place, "on"), on)
    return found if all(isinstance(name, str) for _, name in found) else []


def _names_at_levels(product: Any) -> Iterator[tuple[Keys, str, bool]]:
    """The names of columns of tables of places, with their places and whether they are levels."""
    at = product.get("at") if isinstance(product, dict) else None
    if isinstance(at, list):
        found = [(place, name, True) for place, name in _listed(("at",), at)]
        found += [(place, name, False) for place, name in _named_columns(product)]
    else:
        found = []
        for level, groups in at.items() if isinstance(at, dict) else ():
            found.append((("at", level), level, True))
            for i, group in enumerate(groups if isinstance(groups, list) else ()):
                own = _listed(("at", level, i), group)
                found += [(place, name, False) for place, name in own]
    return (each for each in found if isinstance(each[1], str))


def _parts_of_places(product: Any) -> list[str]:
    """Of the names of files of tables of places."""
    at = product.get("at") if isinstance(product, dict) else None
    if not isinstance(at, dict | list):
        return []
    parts = ["_places", *(f"_{level}" for level in at)]
    for level, groups in at.items() if isinstance(at, dict) else ():
        further = len(groups) if isinstance(groups, list) else 0
        parts += [f"_{level}_{number}" for number in range(2, further + 1)]
    return parts


def _listed(place: Keys, values: Any) -> list[tuple[Keys, Any]]:
    """The values of a list with their places; what is not a list as it is."""
    if not isinstance(values, list):
        return [(place, None)]
    return [((*place, i), value) for i, value in enumerate(values)]


def _check_column(name: str, before: Sequence[str], declared: Collection[str], where: str) -> None:
    """Refuse a column of a product that is not declared, is reserved, or is named twice."""
    if name not in declared:
        raise _undeclared(name, where)
    if name in RESERVED_COLUMNS:
        raise ConfigError(
            f"'{name}' is the name of a column of every debiased table.",
            where=where,
            next_step="Rename the column in the source.",
        )
    if name in before:
        raise DuplicateColumnError(f"Column '{name}' is named twice.", where=where)


def _undeclared(name: str, where: str) -> ConfigError:
    return ConfigError(f"The domain declares no column '{name}'.", where=where)


Fate = Literal["missing", "outside", "unreadable"]
"""What a value can be besides one of a declared cell of its own."""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True)
class Limits:
    """The largest shares of a column's values that the input gate accepts.

    Attributes:
        missing: Of nulls.
        outside: Of undeclared or clamped values; None if they are not limited.
        unreadable: Of values that are there and cannot be read as declared.
    """

    missing: Decimal
    outside: Decimal | None
    unreadable: Decimal


def limits(column: Column, checks: Mapping[str, CheckConfig]) -> Limits:
    """What the input gate accepts of a column, in every place of a household alike.

    Without a declaration a value that has no cell of its own is not accepted, nor is one that
    cannot be read; clamped values are not limited.
    """
    if isinstance(column, Slot):
        column = column.of
    declared = checks.get(column.name) or CheckConfig()
    missing, outside = declared.missing_at_most, declared.outside_at_most
    if missing is None:
        missing = Decimal(1) if column.missing else Decimal(0)
    if outside is None and column.kind in ("categorical", "ordinal") and column.other_code is None:
        outside = Decimal(0)
    return Limits(missing, outside, declared.unreadable_at_most or Decimal(0))


def compared(
    domain: Domain, checks: Mapping[str, CheckConfig]
) -> Iterator[tuple[str, Fate, Decimal]]:
    """The counts that the input gate compares: column, fate, and the largest share that passes.

    A share of 1 is never passed, so it is not compared.
    """
    for column in domain.columns:
        most = limits(column, checks)
        for fate in FATES:
            share = getattr(most, fate)
            if share is not None and share < 1:
                yield column.name, fate, share


def check_exports(
    config: ReleaseConfig, columns: Mapping[str, Column], document: Document, findings: Findings
) -> None:
    """Check names and values for CSV, Stata and SPSS, and that SDMX knows its agency.

    Args:
        config: As far as it is valid.
        columns: Those that are in order.
        document: Places of the values, for messages.
        findings: Take what is wrong.
    """
    publish = config.publish
    if "csv" in publish.formats:
        released = {name for product in config.products.values() for name in product.columns}
        for name in config.columns:
            if name in released and name.startswith(tuple(formats.FORMULA_MARKS)):
                findings.errors.append(
                    ConfigError(
                        f"A spreadsheet would take the name of the column {name!r} for a formula "
                        "in the header of CSV files.",
                        where=document.where(place_of_column(config, name)),
                        next_step="Rename it in the source, or leave 'csv' out of publish.formats.",
                    )
                )
    for form in (each for each in formats.STAT if each in publish.formats):
        where = document.where(("publish", "formats"))
        for fault, change in _faults(config, columns, form):
            findings.errors.append(
                ConfigError(
                    f"{fault} in files of {formats.PACKAGES[form]}.",
                    where=where,
                    next_step=f"{change}, or leave '{form}' out of publish.formats.",
                )
            )
    if publish.sdmx and config.about.publisher is None:
        findings.errors.append(
            ConfigError(
                "SDMX names the agency that maintains a table's structure, and the config names no "
                "publisher.",
                where=document.where(("publish", "sdmx")),
                next_step="Add a publisher with its name to the section 'about', or leave out "
                "'sdmx'.",
            )
        )


def _faults(
    config: ReleaseConfig, columns: Mapping[str, Column], form: str
) -> Iterator[tuple[str, str]]:
    """Names of two columns that become one, values that would not come back; and what to do."""
    used: dict[str, None] = {}
    for product in config.products.values():
        names = {name: stored_name(name, form) for name in product.columns}
        taken = {each: each for each in (*RESERVED_COLUMNS, *OF_BANDS)}
        for name, stored in names.items():
            other = taken.setdefault(stored.casefold(), name)
            if other != name:
                yield (
                    f"The columns '{other}' and '{name}' would both be called '{stored}'",
                    f"Rename '{name}' in the source",
                )
        used |= dict.fromkeys(names)
    for name in used:
        for value in _values(columns.get(name)):
            fault = fault_of(value, form)
            if fault is not None:
                what = f"The value {value!r} of '{name}' would be lost ({fault})"
                yield what, "Declare another value"


def _values(column: Column | None) -> list[object]:
    """The declared values that may be beyond what a file holds."""
    if isinstance(column, Categorical):
        return list(column.categories)
    if isinstance(column, Numeric):
        return [*column.edge_array.tolist(), *column.special]
    return []


COUNT = "count"
"""Name of the column of totals."""
_MOST_CELLS = 12  # of a column that a message lists
_NEXT = "Write a CSV file with a header: the columns' names, then 'count'; a row for each cell."


def with_counts(
    known: Mapping[str, KnownTotal],
    domain: Domain,
    folder: Path,
    sources: Sequence[str],
) -> dict[str, KnownTotal]:
    """The totals of a product with the counts of their files, by cells.

    Args:
        known: As the config has them.
        domain: The product's columns.
        folder: Of the config.
        sources: Paths of private files, as the config has them.

    Raises:
        ConfigError: A file is missing, not of that form, or the source.
    """
    from statpress.mechanisms.marginals.target_tables import KnownTotal

    totals = {}
    for name, total in known.items():
        columns = total.columns or (name,)
        for column in columns:
            if column not in domain.names:
                able = [c.name for c in domain.columns if not isinstance(c, Slot)]
                raise ConfigError(
                    f"The product has no column '{column}' of which totals may be known.",
                    where=f"known.{name}",
                    next_step=f"Those that it has: {', '.join(able)}.",
                )
        counts = total.counts
        if counts is None:
            assert total.file is not None
            own = [domain[column] for column in columns]
            counts = counts_of_file(total.file, own, folder, sources, where=f"known.{name}")
        totals[name] = KnownTotal(columns=columns, counts=counts)
    return totals


def counts_of_file(
    relative: str,
    columns: list[Column],
    folder: Path,
    sources: Sequence[str],
    *,
    where: str,
    whole: bool = False,
) -> tuple[int, ...]:
    """The counts of a CSV file of public totals, the last column's cells running fastest.

    Args:
        relative: Path of the file from the config's folder.
        columns: Whose combinations of cells it lists.
        folder: Of the config.
        sources: Paths of private files, as the config has them.
        where: The key that names the file, for messages.
        whole: Whether every cell has to be listed; else one that is not counts 0.

    Raises:
        ConfigError: The file is missing, not of that form, or the source.
    """
    try:
        path = public_path(relative, folder, sources, "totals", where=where)
        return _counts(read_text(path, relative), columns, relative, whole=whole)
    except ConfigError as error:
        error.where = where
        raise


def public_path(
    relative: str,
    folder: Path,
    sources: Sequence[str],
    noun: str,
    *,
    where: str,
    endings: Sequence[str] = (".csv",),
) -> Path:
    """The path of a file that is published with the config; for arguments see ``with_counts``.

    Raises:
        ConfigError: It is not below the config's folder, or it is the source.
    """
    path, listed = None, " or ".join(endings)
    if "\0" not in relative:
        path = (folder / relative).resolve()
    if path is None or path.suffix not in endings or folder.resolve() not in path.parents:
        raise ConfigError(
            f"'{relative}' is not a {listed} file in or below the config's folder.",
            where=where,
            next_step=f"Keep public {noun} in a {listed} file in the config's folder.",
        )
    files = [file for each in sources for file in (folder / each, *_globbed(folder, each))]
    if any(_same(path, each) for each in files):
        raise ConfigError(
            f"'{relative}' is the private source, whose records would be published as {noun}.",
            where=where,
            next_step=f"Name a file of public {noun}.",
        )
    return path


def _globbed(folder: Path, source: str) -> list[Path]:
    """The files of a source that is a pattern, relative or absolute; names are looked at only."""
    try:
        found = glob.glob(str(Path(glob.escape(str(folder))) / source), recursive=True)
    except (ValueError, OSError):
        return []
    return list(map(Path, found))


def _same(path: Path, other: Path) -> bool:
    """Whether two paths name one file, by whatever links."""
    try:
        return path == other.resolve() or path.samefile(other)
    except (ValueError, OSError):
        return False


def _counts(text: str, columns: list[Column], name: str, *, whole: bool) -> tuple[int, ...]:
    """Counts of all combinations of the columns' cells, the last column's running fastest."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:
        raise _problem("The file is not CSV", name, None) from None
    header = [*(column.name for column in columns), COUNT]
    if not rows or rows[0] != header:
        raise _problem(f"The file must begin with the line '{','.join(header)}'", name, 1)
    cells = math.prod(column.size for column in columns)
    if len(rows) - 1 > cells:
        raise _problem(f"The file has more rows than there are cells ({cells:,})", name, None)
    places = [
        {label or "": code for code, label in enumerate(labels(column))} for column in columns
    ]
    found: dict[int, int] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise _problem("A row does not have as many values as the header", name, line)
        cell = 0
        for column, place, value in zip(columns, places, row, strict=False):
            if value not in place:
                able = ", ".join(f"'{each}'" for each in [*place][:_MOST_CELLS])
                more = ", …" if len(place) > _MOST_CELLS else ""
                what = f"The column '{column.name}' has no such cell"
                raise _problem(what, name, line, next_step=f"Those that it has: {able}{more}.")
            cell = cell * column.size + place[value]
        if cell in found:
            raise _problem("A cell is listed twice, which no table of totals does", name, line)
        if not (row[-1].isascii() and row[-1].isdigit()) or len(row[-1]) > 15:
            raise _problem("A count is not a whole number of at least 0", name, line)
        found[cell] = int(row[-1])
    if whole and len(found) < cells:
        cell = next(cell for cell in range(cells) if cell not in found)
        labelled = []
        for column in reversed(columns):
            cell, code = divmod(cell, column.size)
            labelled.append(f"{column.name} = {labels(column)[code] or 'missing'}")
        raise _problem(f"The file has no row for {', '.join(reversed(labelled))}", name, None)
    return tuple(found.get(cell, 0) for cell in range(cells))


def _problem(what: str, name: str, line: int | None, next_step: str = _NEXT) -> ConfigError:
    place = f"'{name}'" if line is None else f"'{name}', line {line}"
    return ConfigError(f"{what} ({place}).", next_step=next_step)
