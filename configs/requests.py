"""The products of a config, each with its mechanism, knobs, columns and share of the budget.

Statistics and functions that a config names as ``module:name`` are imported here.

Public totals that a config keeps in files of their own are read here. They are published with the
config, so a file must be a table of totals by its form: a CSV file of that very name below the
config's folder, a row for each combination of values at most, and never the source.

The section ``weight`` is checked here with what its files hold, without data. A file of its totals
is read by the same form, and has to list every cell: a population that is not listed is not one of
0.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import importlib.util
import io
import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.configs.checks import declared_columns
from statpress.configs.products import ProductConfig
from statpress.configs.release_config import ReleaseConfig
from statpress.configs.tables import LINKED_KIND
from statpress.configs.yaml_text import Document, Findings, placed, read_text
from statpress.mechanisms.domain.columns import Categorical, Column, Slot, labels
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, DuplicateColumnError
from statpress.mechanisms.mechanism import Kind, PlacedBy, UserDefined, own_keys
from statpress.mechanisms.places.tree import Geography
from statpress.mechanisms.planning.choice import AUTO, ProductRequest
from statpress.mechanisms.registry import KINDS, REGISTRY, serving

if TYPE_CHECKING:
    from statpress.mechanisms.marginals.survey_weights import SurveyWeight
    from statpress.mechanisms.marginals.target_tables import KnownTotal

_MERGED = {
    "mechanisms.accounting.analytic": "mechanisms.accounting.losses",
    "mechanisms.base": "mechanisms.mechanism",
    "mechanisms.domain.column": "mechanisms.domain.columns",
    "mechanisms.estimates.mechanism": "mechanisms.estimates.estimate",
    "mechanisms.inference.statistics": "mechanisms.estimates.statistics",
    "mechanisms.planning.registry": "mechanisms.registry",
    "mechanisms.tables.band_laws": "mechanisms.tables.bands",
    "mechanisms.tables.laplace": "mechanisms.tables.perturbed",
    "mechanisms.tables.mechanism": "mechanisms.tables.count_tables",
    "mechanisms.tables.perturbed_histogram": "mechanisms.tables.perturbed",
    "tasks.products.kind": "tasks.products.product_kind",
    "tasks.products.registry": "tasks.products.product_kind",
}
"""Modules of the first version that users' modules may import, and where their names are now."""
PLACED = "place_tables"
"""The mechanism whose tables give places to records."""
_FIRST_VERSION = re.compile(r"\b(?:mechanisms|configs|tasks|flows)(?:\.\w+)*")


def user_defined(name: str, noun: str) -> UserDefined:
    """The object ``module:name``.

    Args:
        name: As written in the config.
        noun: What it is to be, for the message.

    Raises:
        ConfigError: It cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        value: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module's own code runs, and may fail in any way
        raise ConfigError(
            f"There is no {noun} '{name}' ({type(error).__name__}).",
            where="function",
            next_step=_renamed(module, error)
            or f"Write module:name of a {noun} that can be imported where runs are made.",
        ) from None
    return UserDefined(name, value)


def _renamed(module: str, error: Exception) -> str:
    """What to write where a name of the first version's packages is imported; or nothing."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    *_, importing = (
        frame.line or ""
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
    )
    names = _FIRST_VERSION.findall(importing)
    if _present_name(module).count(".") > 1:  # else a folder of the user's may have this name
        names.append(module)
    for old in names:
        if f"{old}.".startswith(f"{error.name}."):
            return (
                f"Write '{_present_name(old)}' in place of '{old}'; the upgrade part of "
                "deploy/README.md lists what has moved."
            )
    return ""


def _present_name(old: str) -> str:
    """The module that has what one of the first version had, or the package that has it."""
    parts = old.split(".")
    for n in range(len(parts), 1, -1):
        head = ".".join(parts[:n])
        module = f"statpress.{_MERGED.get(head, head)}"
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(module):
                return module
    return f"statpress.{parts[0]}"


def further_of(kind: Kind, product: Any) -> Any:
    """What the config says of what is published besides a product; None if it says nothing.

    Raises:
        ConfigError: Nothing can be said of a product of this kind.
    """
    own = {f.name for f in fields(kind.further)} if kind.further else set()
    said = product.model_fields_set - ProductConfig.model_fields.keys() - {"kind", "mechanism"}
    named = REGISTRY.get(product.mechanism)
    knobs: Any = kind.left_open if named is None else named.knobs
    foreign = said - own - {f.name for f in fields(knobs)}
    for name in sorted(foreign):  # of another kind that the same model serves
        able = ", ".join(k.name for k in KINDS.values() if k.further)
        raise ConfigError(f"'{name}' is a key of products of kind {able}.", where=name)
    if not said & own or kind.further is None:
        return None
    return kind.further(**{name: getattr(product, name) for name in own})


def may_have_nulls(config: ReleaseConfig, product: Any) -> bool:
    """Whether the checks let pass values that count as the lowest of a column of the product."""
    return any(
        check.missing_at_most
        or check.unreadable_at_most
        or (check.outside_at_most and config.columns[name].type in ("categorical", "ordinal"))
        for name in product.columns
        if (check := config.limits.get(name))
    )


def requests_of(
    config: ReleaseConfig,
    domain: Domain,
    shares: Mapping[str, Decimal],
    document: Document,
    folder: Path,
    findings: Findings,
    places: Mapping[str, Geography],
) -> Iterator[ProductRequest]:
    """The products that are in order, without those of columns or places that are not.

    Microdata that list the column of the weight have it.

    Args:
        config: The config, as far as it is valid.
        domain: Of the columns that are in order.
        shares: Of the budget, by product.
        document: Places of the values, for messages.
        folder: Of the config, where paths of known totals go from.
        findings: Take what is wrong with the others.
        places: By column the geographies that are in order.
    """
    weight = _survey_weight(config, domain, document, folder, findings)
    declared = declared_columns(document)
    known_totals: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, product in config.products.items():
        known_columns = {*domain.names} | {column.name for column in domain.declared}
        if not known_columns >= {*product.columns}:
            continue  # which is said already
        mechanism, kind = product.mechanism, KINDS[product.kind]
        if mechanism == AUTO and [each.knobs for each in serving(kind)] == [kind.left_open]:
            mechanism = serving(kind)[0].name  # the only one, of which everything can be said
        weighted = weight is not None and kind.name in WEIGHTED and weight.column in product.columns
        if weighted and mechanism == AUTO:
            mechanism = WEIGHTED[kind.name]
        known = REGISTRY.get(mechanism)
        knobs = kind.left_open if known is None else known.knobs
        with findings.noting(), placed(document, ("products", name)):
            columns = tuple(product.columns)
            if config.linked is not None:
                columns = config.linked.of_product(kind.name, columns)
            elif kind.name == LINKED_KIND:
                raise ConfigError(
                    "The config has no 'tables' of households and persons.",
                    where="kind",
                    next_step="Write 'tables' in place of 'source' and 'domain', or another kind.",
                )
            values: dict[str, Any] = {
                knob.name: getattr(product, knob.name, knob.default) for knob in own_keys(knobs)
            }
            if weighted:
                assert weight is not None
                if mechanism != WEIGHTED[kind.name]:
                    raise ConfigError(
                        f"Microdata by '{mechanism}' have no weight.",
                        where="mechanism",
                        next_step=f"Write '{WEIGHTED[kind.name]}', or leave out '{weight.column}'.",
                    )
                weight.check(domain.project(columns))
                values["weight"] = weight
            if values.get("known"):
                own = domain.project(columns)
                values["known"] = with_counts(values["known"], own, folder, config.source.files)
                known_totals |= _agreeing(name, values["known"], own, places, known_totals)
            if values.get("places") is not None:
                values["places"] = _placed_by(values["places"], columns, config, domain, places)
                if values["places"] is None:
                    continue  # the other product is not in order, which is said already
            if values.get("function") is not None:
                values["function"] = user_defined(values["function"], kind.user_defined)
            if "geography" in values:
                values["geography"] = _geography(values["geography"], config, places)
                if values["geography"] is None and config.geography:
                    continue  # it is not in order, which is said already
            said = knobs(**values)
            kind.check_knobs(said)
            further = further_of(kind, product)
            if further is not None:
                own = domain.project(columns)
                kind.check_further(further, own, may_have_nulls(config, product))
            extra = kind.extra_columns(said)
            for column in extra:
                if column in domain.names or column not in declared:
                    domain[column]  # or an error
            yield ProductRequest(
                name=name,
                kind=kind,
                mechanism=mechanism,
                knobs=said,
                columns=tuple(dict.fromkeys((*columns, *extra))),
                share=shares[name],
                open_share=product.share is None,
                further=further,
                accepted=product.accept or (),
            )


def _agreeing(
    product: str,
    known: Mapping[str, KnownTotal],
    domain: Domain,
    places: Mapping[str, Geography],
    before: Mapping[str, tuple[tuple[int, ...], str]],
) -> dict[str, tuple[tuple[int, ...], str]]:
    """The counts of every column with known totals, and where the config has them.

    Args:
        product: Its name.
        known: Its known totals, with their counts.
        domain: Its columns.
        places: By column the geographies that are in order.
        before: What this gave for the products before.

    Raises:
        ConfigError: They differ from those of another product, or from the sizes of places.
    """
    found = {}
    for key, total in known.items():
        for column, counts in total.by_column(domain).items():
            geography, others = places.get(column), before.get(column)
            if geography is not None and geography.exact and geography.sizes is not None:
                sizes = geography.sizes[geography.leaves].tolist()
                others = tuple(map(round, sizes)), f"geography.{column}.sizes"
            if others is not None and others[0] != counts:
                raise ConfigError(
                    f"The known totals of column '{column}' are not those of '{others[1]}'.",
                    where=f"known.{key}",
                    next_step="Give totals that agree.",
                )
            found[column] = counts, f"products.{product}.known.{key}"
    return found


def _geography(
    named: str | None, config: ReleaseConfig, places: Mapping[str, Geography]
) -> Geography | None:
    """The geography that a product names, or the only one; None if it is not in order.

    Raises:
        ConfigError: The config declares none of this name, or several and the product names none.
    """
    declared = ", ".join(config.geography)
    if named is None and len(config.geography) > 1:
        raise ConfigError(
            "It is not clear which geography the product is of.",
            where="geography",
            next_step=f"Name one of {declared}.",
        )
    if named is not None and named not in config.geography:
        raise ConfigError(
            f"The config declares no geography '{named}'.",
            where="geography",
            next_step=f"Those that it declares: {declared or 'none'}.",
        )
    return places.get(next(iter(config.geography), "") if named is None else named)


def _placed_by(
    named: str,
    columns: Sequence[str],
    config: ReleaseConfig,
    domain: Domain,
    places: Mapping[str, Geography],
) -> PlacedBy | None:
    """The product whose tables tell the places of records; None if it is not in order.

    Raises:
        ConfigError: It has no tables of places, or the records cannot get places by them.
    """
    able = [each for each, other in config.products.items() if other.mechanism == PLACED]
    other: Any = config.products.get(named)
    if named not in able:
        raise ConfigError(
            f"'{named}' is not a product of tables of places.",
            where="places",
            next_step=f"Name one of {', '.join(able)}."
            if able
            else "Add one, 'kind: table' with 'at', whose tables say how many records of which "
            "sort every place has.",
        )
    try:
        geography = _geography(other.geography, config, places)
    except ConfigError:
        geography = None
    if geography is None:
        return None
    column, lowest = geography.column, geography.tree.levels[-1]
    if column in columns:
        raise ConfigError(
            f"The records get '{column}' by the tables of '{named}'.",
            where="columns",
            next_step=f"Leave '{column}' out of the columns, which are measured for the nation.",
        )
    if lowest not in other.at:
        raise ConfigError(
            f"The product '{named}' has no table of the level '{lowest}', so no record could get "
            f"its '{column}'.",
            where="places",
            next_step=f"Give it '{lowest}: [[]]' under 'at', for numbers of records at least.",
        )
    for zero in domain.patterns:
        if column in dict(zero.sets) and {each for each, _ in zero.sets} <= {*columns, column}:
            raise ConfigError(
                f"A structural zero names '{column}' and columns of the records, which get their "
                "places without regard to it.",
                where="places",
                next_step="Leave out the structural zero, or 'places'.",
            )
    categories = geography.tree.codes[-1]
    return PlacedBy(named, Categorical(name=column, categories=categories))


SECTION = "weight"


WEIGHTED = {"microdata": "marginals", LINKED_KIND: "linked_marginals"}
"""By kind the mechanism that has weights, imported only when a config has a product by it."""


def _survey_weight(
    config: ReleaseConfig, domain: Domain, document: Document, folder: Path, findings: Findings
) -> SurveyWeight | None:
    """The weight of a config; None if it has none, or one at fault.

    Args:
        config: As far as it is valid.
        domain: Of the columns that are in order.
        document: Places of the values, for messages.
        folder: Of the config, where paths of totals go from.
        findings: Take what is wrong.
    """
    said = config.weight
    if said is None:
        return None
    from statpress.mechanisms.marginals.survey_weights import SurveyWeight

    before = len(findings.errors)
    with findings.noting(), placed(document, (SECTION,)):
        if said.column in config.domain and config.linked is None:
            raise DuplicateColumnError(
                f"'{said.column}' is a column of 'domain' as well.",
                where="column",
                next_step="Leave it out of 'domain': its edges here declare it.",
            )
    with findings.noting(), placed(document, (SECTION,)):
        _check_listed(config)
    design = said.design
    own = domain
    if config.linked is not None:  # those of households, and their size
        own = Domain(tuple(c for c in domain.columns if not isinstance(c, Slot)))
    for key, name in (("strata", design.strata), ("cluster", design.cluster)):
        with findings.noting(), placed(document, (SECTION, "design")):
            if name is not None:
                _check_declared(name, key, said.column, own)
            if key == "cluster" and name is not None:
                _check_clusters(name, design.strata, own)
    totals = {}
    for name, given in said.calibrate.items():
        with findings.noting(), placed(document, (SECTION, "calibrate")):
            _check_declared(name, name, said.column, own)
            column = own[name]
            if isinstance(given, str):
                files = config.source.files
                given = list(counts_of_file(given, [column], folder, files, where=name, whole=True))
            if len(given) != column.size:
                raise ConfigError(
                    f"There are {len(given)} totals for the {column.size} cells of '{name}'.",
                    where=name,
                    next_step="Give one for every cell, 'other' and missing values too.",
                )
            totals[name] = tuple(map(float, given))
    with findings.noting(), placed(document, (SECTION, "calibrate")):
        _check_sums(totals, said.calibrate)
    if len(findings.errors) > before:
        return None
    return SurveyWeight(
        column=said.column, totals=totals, strata=design.strata, cluster=design.cluster
    )


def _check_listed(config: ReleaseConfig) -> None:
    assert config.weight is not None
    name = config.weight.column
    able = [each for each in config.products.values() if name in each.columns]
    if not any(each.kind in WEIGHTED for each in able):
        raise ConfigError(
            f"No records have the weight: none lists '{name}' among its columns.",
            where="column",
            next_step=f"List '{name}' among the columns of microdata by 'marginals', or of linked "
            "records.",
        )


def _check_declared(name: str, key: str, weight: str, domain: Domain) -> None:
    if name not in domain.names or name == weight:
        raise ConfigError(
            f"The domain declares no column '{name}'"
            + (" besides that of the weight." if name == weight else "."),
            where=key,
            next_step=f"Name one of: {', '.join(each for each in domain.names if each != weight)}.",
        )


def _check_clusters(name: str, strata: str | None, domain: Domain) -> None:
    """Refuse a column with a cell that is no cluster which was drawn."""
    if name == strata:
        raise ConfigError("The clusters are those of the strata.", where="cluster")
    column = domain[name]
    if column.missing or getattr(column, "other", False):
        raise ConfigError(
            f"'{name}' has a cell for missing or other values, which would count as a cluster.",
            where="cluster",
            next_step="Declare the clusters that were drawn, all of them and no others.",
        )


def _check_sums(totals: dict[str, tuple[float, ...]], given: object) -> None:
    """Refuse totals of nobody, and such as are of different populations."""
    assert isinstance(given, dict)
    first = ""
    for name, total in totals.items():
        file = f" ('{given[name]}')" if isinstance(given[name], str) else ""
        said = f"The totals of '{name}'{file} add up to {sum(total):,.0f}"
        if not sum(total):
            raise ConfigError(
                f"{said}.", where=name, next_step="Give the totals of the population."
            )
        if first and sum(total) != sum(next(iter(totals.values()))):
            raise ConfigError(
                f"{said}, and {first[0].lower()}{first[1:]}.",
                where=name,
                next_step="Give totals of one population.",
            )
        first = first or said


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
