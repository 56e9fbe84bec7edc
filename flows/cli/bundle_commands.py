"""Commands on a bundle, which need neither data nor a ledger: parse, call, return the result."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from csv import DictWriter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from statpress.configs.formats import Format
from statpress.flows.cli.options import HomeFolder, Json, Overrides, Result, home_of, order_of
from statpress.mechanisms.errors import BundleVerificationError, ConfigError, QueryError

if TYPE_CHECKING:
    from statpress.tasks.release.answers import Estimates
    from statpress.tasks.release.opened import Of, Release

Consistent = Annotated[
    bool,
    Parameter(
        help="Make the tables agree on every marginal they share; lists every cell, at most "
        "10,000,000 in a table."
    ),
]
Integers = Annotated[
    bool,
    Parameter(help="Round to integers that add up to the number of records, absent ones left out."),
]
Products = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True, help="Names of products; by default all whose counts are published."
    ),
]


Listed = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True, help="Columns whose cells are listed; without any, one sum is."
    ),
]
Columns = Annotated[list[str] | None, Parameter(consume_multiple=True)]
By = Annotated[
    list[str] | None,
    Parameter(consume_multiple=True, help="Columns whose cells have a figure each."),
]
Csv = Annotated[bool, Parameter(help="Print CSV.")]
Copies = Annotated[
    bool,
    Parameter(
        help="Answer by the copies of the records, combined by Rubin's rule, in place of the noisy "
        "tables: also what was not measured, which copies guess."
    ),
]
WithPrior = Annotated[
    bool,
    Parameter(
        help="Answer with the help of the earlier release that the bundle has as its prior. The "
        "intervals are narrower, and hold as far as its model of the drift since then does."
    ),
]
Population = Annotated[bool, Parameter(negative="--no-population")]
Weight = Annotated[bool, Parameter(help="Records count by their survey weight.")]
Counted = Annotated[
    Literal["records", "persons"],
    Parameter(name="--of", help="Of linked records: of households, or of all their persons."),
]
Since = Annotated[
    str | None,
    Parameter(help="An earlier bundle, whose figures are subtracted: what changed since."),
]
Plot = Annotated[
    Path | None,
    Parameter(help="Draw the estimates with their intervals to a file .png, .svg or .pdf as well."),
]
Conditions = Annotated[
    list[str] | None,
    Parameter(
        help="A condition COLUMN=VALUE, or COLUMN=VALUE,VALUE for any of several; may be repeated."
    ),
]


def verify(
    bundle: str,
    *,
    key: list[Path] | None = None,
    public_key: list[Path] | None = None,
    home: HomeFolder = None,
    max_bytes: int = 10_000_000_000,
    max_seconds: int = 3600,
    json: Json = False,
) -> Result:
    """Check every file of a bundle against its manifest, its signature and its approval.

    No ledger is needed. Of a folder, a reprint must also follow from what was drawn for its
    original, and with --home the ledger must know the bundle or its original, the charge and the
    approval.

    Args:
        bundle: The bundle's folder, a zip file of it, or the address below which its files lie
            (https://host/path/).
        key: PEM file of a public key that the publisher is known by; one of them must have signed
            it. Without any, a valid signature is reported with the fingerprint of its key.
        public_key: PEM file of a trusted officer's key; one of them must have approved it.
        max_bytes: Bytes that are fetched at most from an address.
        max_seconds: Seconds that fetching them may take.
    """
    from statpress.flows import facts as reports
    from statpress.tasks.bundle.locations import Folder, location_of
    from statpress.tasks.bundle.manifest import approved_by, signed_by, verify_location
    from statpress.tasks.ledger.entries import read_public_key

    location = location_of(bundle, most=max_bytes, seconds=max_seconds)
    publishers = [read_public_key(path) for path in key or []]
    officers = [read_public_key(path) for path in public_key or []]
    if home is not None and not isinstance(location, Folder):
        raise BundleVerificationError(
            "A ledger is asked only about a bundle that is a folder.",
            where=location.where,
            next_step="Unpack or download it, or leave out --home.",
        )
    manifest = verify_location(location)
    signed = signed_by(location.where, manifest, publishers)
    approval = approved_by(location, manifest, officers)
    rederived = None
    if manifest.get("reprint_of") and isinstance(location, Folder):
        from statpress.tasks.release.reprint import check_reprint

        rederived = check_reprint(Path(bundle))
    if home is not None:
        from statpress.tasks.release.ledger_check import check_bundle

        check_bundle(home_of(home), Path(bundle), manifest)

    def facts() -> dict[str, Any]:
        decision = {"approval": reports.decision_facts(approval)} if approval else {}
        checks = {"against_ledger": home is not None, "rederived": rederived}
        seen = {"signature": signed, "others_looked_for": location.lists}
        return {"verified": True, **checks, **seen, **decision, **manifest}

    def report() -> Iterator[str]:
        yield whole_report(location.where, manifest, lists=location.lists, rederived=rederived)
        yield signature_report(signed)
        if home is not None:
            yield "The ledger has the charge for it."
        if approval:
            yield reports.decision_report(approval)

    return Result(json=json, facts=facts, report=report)


def refine(
    bundle: Path,
    *,
    output: Path,
    consistent: Consistent = False,
    integers: Integers = False,
    products: Products = None,
    format: Format = "parquet",
    json: Json = False,
) -> Result:
    """Derive better tables from a bundle, without data or ledger; costs no budget.

    Args:
        bundle: The bundle's folder.
        output: A new folder for the tables, beside the bundle.
        format: Of the tables.
    """
    from statpress.flows.terminal import Progress
    from statpress.tasks.release.refine import Options
    from statpress.tasks.release.refine import refine as refined

    options = Options(
        consistent=consistent,
        integers=integers,
        products=None if products is None else tuple(products),
        format=format,
    )
    with Progress(shown=not json) as progress:
        facts = refined(bundle, output, options, progress.announce)
    return Result(
        json=json,
        facts=lambda: {"output": str(output), **facts},
        report=lambda: refinement_report(output, facts),
    )


def query(
    bundle: str,
    *,
    columns: Listed = None,
    where: Conditions = None,
    mean: str | None = None,
    total: str | None = None,
    share: str | None = None,
    median: str | None = None,
    quantile: Annotated[
        str | None, Parameter(help="COLUMN=SHARE: what so many of its numbers lie below.")
    ] = None,
    difference: Annotated[
        str | None,
        Parameter(
            help="Means of this column among the values of the one that --by names, less that "
            "among the first or the --base; of a column without numbers shares of its values, and "
            "with COLUMN=VALUE,VALUE the share of these."
        ),
    ] = None,
    base: Annotated[
        str | None, Parameter(help="The value with which --difference compares the others.")
    ] = None,
    correlation: Annotated[
        list[str] | None, Parameter(consume_multiple=True, help="The correlation of two columns.")
    ] = None,
    by: By = None,
    product: str | None = None,
    confidence: float = 0.95,
    population: Population = False,
    weight: Weight = False,
    counted: Counted = "records",
    copies: Copies = False,
    with_prior: WithPrior = False,
    since: Since = None,
    plot: Plot = None,
    csv: Csv = False,
    json: Json = False,
) -> Result:
    """Estimate counts, means, shares or quantiles from a bundle's noisy tables; costs no budget.

    Answers never come from the single file of synthetic records. What was not measured is refused,
    except on copies.

    Args:
        bundle: The bundle's folder, a zip file of it, or the address below which its files lie.
        mean: The mean of a column of numbers.
        total: The sum of a column of numbers.
        share: The share of every value of a column.
        median: The median of a column of numbers.
        product: Microdata by marginals or tables of places; by default the only such product.
        confidence: Of the intervals.
        population: Intervals for the population, if the units are a random sample of it.
    """
    from statpress.tasks.release.query import Question

    below = 0.5
    if median is not None:
        quantile = f"{median}={below}" if quantile is None else ""
    if quantile:
        quantile, below = _column_and_share(quantile)
    asked = {
        "mean": mean, "total": total, "share": share, "quantile": quantile,
        "difference": difference, "correlation": correlation,
    }  # fmt: skip
    named = [name for name, column in asked.items() if column]
    if len(named) > 1 or (median and not quantile) or (columns and (named or by)):
        raise QueryError(
            "One question asks for one figure.",
            where=", ".join(f"--{name}" for name in (*named, *(["columns"] if columns else []))),
            next_step="Ask once for each; figures by groups take --by, and counts --columns.",
        )
    if base is not None and not difference:
        raise QueryError(
            "Only differences have a base.", where="--base", next_step="Ask for --difference too."
        )
    of = asked[named[0]] if named else ()
    values: tuple[str, ...] = ()
    if difference and "=" in difference:
        ((of, values),) = conditions_of([difference]).items()
    question = Question(
        columns=tuple(columns or by or ()),
        conditions=conditions_of(where or ()),
        statistic=named[0] if named else "count",
        of=(of,) if isinstance(of, str) else tuple(of or ()),
        confidence=confidence,
        population=population,
        weight=weight,
        persons=counted == "persons",
        share=below,
        base=base,
        values=values,
    )
    release = _opened(bundle, product, copies, with_prior, since)
    return _answered(release.ask(question), plot, csv, json)


def conditions_of(written: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Conditions as a command line has them, ``column=value,value``."""
    conditions: dict[str, tuple[str, ...]] = {}
    for condition in written:
        column, equals, values = condition.partition("=")
        if not equals or not column or not values:
            raise QueryError(
                f"'{condition}' is not a condition.", next_step="Write COLUMN=VALUE after --where."
            )
        if column in conditions:
            raise QueryError(
                f"The column '{column}' has two conditions.",
                next_step="Name all its values in one, with commas between them.",
            )
        conditions[column] = tuple(values.split(","))
    return conditions


def regress(
    bundle: str,
    formula: str,
    *,
    product: str | None = None,
    confidence: float = 0.95,
    population: Population = False,
    weight: Weight = False,
    counted: Counted = "records",
    copies: Copies = False,
    with_prior: WithPrior = False,
    since: Since = None,
    plot: Plot = None,
    csv: Csv = False,
    json: Json = False,
) -> Result:
    """Fit least squares to a bundle's noisy tables, by a formula; costs no budget.

    Numbers count as the middle of their cells. How missing values count is stated below the answer.

    Args:
        bundle: The bundle's folder, a zip file of it, or the address below which its files lie.
        formula: An outcome, a tilde and terms: 'prestige ~ educ + C(region) + female'.
        product: Microdata by marginals or tables of places; by default the only such product.
        confidence: Of the intervals.
        population: Intervals for the population, if the units are a random sample of it.
    """
    of: Of = counted
    if population:
        of = "persons of a population" if counted == "persons" else "population"
    release = _opened(bundle, product, copies, with_prior, since)
    return _answered(
        release.regress(formula, of=of, confidence=confidence, weight=weight), plot, csv, json
    )


def compare(
    earlier: str,
    later: str,
    *,
    columns: Columns = None,
    product: str | None = None,
    confidence: float = 0.95,
    population: Population = False,
    weight: Weight = False,
    plot: Plot = None,
    csv: Csv = False,
    json: Json = False,
) -> Result:
    """Say what changed between two bundles, by the shares of all values; costs no budget.

    Of other figures 'query' and 'regress' have --since.

    Args:
        earlier: The earlier bundle: a folder, a zip file, or the address below which its files lie.
        later: The later one.
        columns: Whose values; by default all that both have with the same ranges.
        product: Microdata by marginals, of this name in both; by default the only such product.
        confidence: Of the intervals, and of what is called changed, for all values together.
        population: Changes of the population, if the units are a random sample of it.
    """
    of: Of = "population" if population else "records"
    before, release = (_opened(bundle, product) for bundle in (earlier, later))
    changes = release.changes(before, *(columns or ()), of=of, confidence=confidence, weight=weight)
    return _answered(changes, plot, csv, json)


def series(
    config: Path,
    *,
    directory: Path | None = None,
    set_: Overrides = None,
    json: Json = False,
) -> Result:
    """Make the page of a series anew, with its figures as CSV, from the bundles of its periods.

    Neither source nor ledger is opened. Every publication of a period does the same.

    Args:
        config: The config of the series.
        directory: The folder of the series, if its bundles are not where the config publishes them.
    """
    from statpress.configs.loading import load_order
    from statpress.tasks.report.series_page import PAGE, write_series

    release = load_order(order_of(config, set_))
    stated = release.config.series
    if stated is None:
        raise ConfigError(
            "The config has no section 'series'.",
            where=str(config),
            next_step="Name a config that has one; the page of a release is its report.html.",
        )
    folder = directory or release.located(release.config.publish.directory) / stated.name
    data = write_series(folder)
    facts = {
        "page": str(folder / PAGE),
        "periods": {str(each.period): each.path for each in data.bundles},
        "without_release": [str(period) for period in data.missing],
        "left_out": dict(data.left_out),
    }

    def report() -> Iterator[str]:
        yield f"{folder / PAGE}: {len(data.bundles)} of {len(data.periods)} periods."
        yield from (f"Left out: {path}. {why}" for path, why in data.left_out.items())

    return Result(json=json, facts=lambda: facts, report=report)


def _opened(
    bundle: str,
    product: str | None,
    copies: bool = False,
    with_prior: bool = False,
    since: str | None = None,
) -> Release:
    from statpress.tasks.release.opened import open_release

    if copies and with_prior:
        raise QueryError(
            "Copies know nothing of the prior.",
            where="--copies, --with-prior",
            next_step="Ask with one of them.",
        )
    release = open_release(bundle, product=product)
    if since is not None:
        release = release.change(open_release(since, product=product))
    if with_prior:
        return release.with_prior
    return release.on_copies if copies else release


def _answered(estimates: Estimates, plot: Path | None, csv: bool, json: bool) -> Result:
    facts = estimates.facts
    if plot is not None:
        estimates.plot(plot)
    return Result(
        json=json,
        facts=lambda: query_facts(facts),
        report=lambda: iter([query_csv(facts)]) if csv else query_report(facts),
    )


def _column_and_share(asked: str) -> tuple[str, float]:
    """Whose quantile is asked for, and the share below it."""
    column, _, share = asked.rpartition("=")
    with suppress(ValueError):
        if column:
            return column, float(share)
    raise QueryError(
        f"'{asked}' is not a column with a share.",
        where="--quantile",
        next_step="Write --quantile COLUMN=0.9.",
    )


def query_report(facts: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each cell: its values, the estimate, its error and interval."""
    from statpress.flows.terminal import table
    from statpress.tasks.products.answer_words import caveats
    from statpress.tasks.release.answers import title_of
    from statpress.tasks.release.query import TESTED

    columns, statistic = facts["columns"], facts["statistic"]
    sums = statistic in ("count", "total")
    first = facts["cells"][0]
    limits = [name for name in ("share_lower", "share_upper") if name in first]
    compared = [name for name in ("earlier", "later") if name in first]
    tested = ["p_value"] if statistic in TESTED or compared else []
    if tested and any(cell["method"] != "Wald" for cell in facts["cells"]):
        tested.append("method")
    marked = {True: "yes", False: ""}
    rows = [
        [
            *(cell["values"][name] for name in columns),
            *(_figure(cell[part], sums) for part in (*compared, *_PARTS)),
            *(_fraction(cell[name]) for name in limits),
            *(x if isinstance(x := cell[name], str) else _p_value(x) for name in tested),
            *([marked[cell["changed"]]] if compared else []),
        ]
        for cell in facts["cells"]
    ]
    level = f"{facts['confidence']:.4g}"
    conditions = [f"{name} = {' or '.join(values)}" for name, values in facts["where"].items()]
    title = f"{facts['product']}: {title_of(facts)}" + (
        f" with {', '.join(conditions)}" * bool(conditions)
    )
    headings = [*columns, *compared, "change" if compared else "estimate", "standard error"]
    headings += [f"from ({level})", f"to ({level})"]
    headings += [name.replace("_lower", " from").replace("_upper", " to") for name in limits]
    headings += ["p", "interval by"][: len(tested)]
    headings += ["changed"] if compared else []
    yield table(title, headings, rows, ends_in_words="method" in tested or bool(compared))
    yield "\n".join([*facts["notes"], *caveats(facts)])


_PARTS = ("estimate", "standard_error", "lower", "upper")


def _fraction(fraction: float) -> str:
    """A share; a small one is not shown as 0."""
    return "<0.0001" if 0 < fraction < 0.00005 else f"{fraction:.4f}"


def _p_value(p: float) -> str:
    """A p-value, which is never 0."""
    return "–" if math.isnan(p) else _fraction(max(p, 1e-300))


def _figure(figure: float, of_sum: bool) -> str:
    if not math.isfinite(figure):
        return "–" if math.isnan(figure) else f"{figure:+}".replace("inf", "∞")
    return f"{figure:,.1f}" if of_sum else f"{figure:,.4g}"


def query_csv(facts: Mapping[str, Any]) -> str:
    """A line for each cell, with the columns of the estimates and a heading."""
    lines, text = [_flat(cell) for cell in query_facts(facts)["cells"]], io.StringIO()
    writer = DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def query_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as JSON has it: null for a figure that is not there or has no end."""
    cells = [
        {
            name: None if isinstance(each, float) and not math.isfinite(each) else each
            for name, each in cell.items()
        }
        for cell in facts["cells"]
    ]
    return {**facts, "cells": cells}


def _flat(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {**cell["values"], **{name: each for name, each in cell.items() if name != "values"}}


def whole_report(
    where: str, manifest: Mapping[str, Any], *, lists: bool, rederived: bool | None
) -> str:
    """That every file is as its manifest says, and what else is known of it."""
    text = f"{where}: {len(manifest['files'])} files, all as the manifest says."
    if manifest.get("reprint_of"):
        text += f" A reprint of what was drawn for {manifest['reprint_of']['seal']}."
        if rederived is None:
            text += " That it follows from that was not checked: verify its folder."
        elif not rederived:
            text += " Its estimates, by other versions, were not derived again."
    if not manifest["publishable"]:
        text += " It is NOT PUBLISHABLE (known seed)."
    if not lists:
        text += " A server does not list its files: whether it has more of them is not known."
    return text


def signature_report(signed: Mapping[str, Any] | None) -> str:
    """Who signed it."""
    if signed is None:
        return "It is not signed."
    if signed["trusted"]:
        return f"Signed by the given key, whose fingerprint is {signed['fingerprint']}."
    return (
        f"Signed by a key that was not given, whose fingerprint is {signed['fingerprint']}. Anyone "
        "can sign: give the publisher's public key with --key, and have it from elsewhere."
    )


def refinement_report(output: Path, facts: dict[str, Any]) -> Iterator[Any]:
    """Refined tables for a person."""
    from statpress.flows.terminal import table

    source = facts["source"]
    mark = "" if source["publishable"] else " It is NOT PUBLISHABLE (known seed)."
    rows = [
        [
            name,
            f"{product['kind']} by {product['mechanism']['mechanism']}",
            f"{product['rows']:,}",
            f"{product['root_mean_square_standard_error']:,.1f}" if product["rows"] else "-",
            product.get("rounding_keeps", "not rounded"),
        ]
        for name, product in facts["products"].items()
    ]
    columns = ["product", "from", "rows", "standard error (rms)", "rounding keeps"]
    yield table(f"Refined {source['title']}; no budget is spent", columns, rows)
    gaps = facts.get("largest_disagreement_in_records", {})
    if gaps:
        said = ", ".join(f"{name} {gap:,.2f}" for name, gap in gaps.items())
        yield f"Largest disagreement between tables, in records: {said}."
    if facts["without_counts"]:
        yield f"Without counts, left out: {', '.join(facts['without_counts'])}."
    yield f"Wrote {output} from the bundle with the seal {source['seal'][:16]}.{mark}"
