"""What is known of a release before data are opened.

Its plan for the account that will be charged, the verdicts on its products, the memory that its
steps may need, and everything that would stop a run: a key, a place or a file.

All of it is public. So is what a plan says of the shares of its products, and of what more of the
budget would do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from statpress.configs.formats import STAT
from statpress.configs.loading import Release
from statpress.configs.yaml_text import Findings
from statpress.mechanisms.domain.domain import Adjacency, Size
from statpress.mechanisms.errors import (
    BundleExistsError,
    ConfigError,
    LedgerError,
    MemoryLimitError,
    MostlyIndependentError,
    MostlyNoiseError,
    SigningKeyError,
    StatpressError,
    together,
)
from statpress.mechanisms.planning.plan import Plan, PlannedProduct, Verdict, disclosures, verdict
from statpress.mechanisms.planning.planner import error_of, error_with_more
from statpress.mechanisms.planning.shares import WORTH
from statpress.tasks.pages.numbers import how_many, measured, share
from statpress.tasks.private_zone.workers import usable_processors

if TYPE_CHECKING:
    from statpress.tasks.private_zone.folders import Home
    from statpress.tasks.products.product_kind import WorkingMemory


def plan_for_account(home: Home, release: Release, plan: Plan) -> Plan:
    """The plan, without a delta of rho where the account has none to give.

    An account of rho whose limit of delta is 0 is charged the rho of the whole loss, which is
    larger; a budget of rho then buys parameters for that.

    Raises:
        InfeasibleBudgetError: It buys none that fit the config.
    """
    if not plan.amounts["rho_delta"] or rho_delta_of(home, release) is None:
        return plan
    return release.plan(rho_delta=Decimal(0))


def rho_delta_of(home: Home, release: Release) -> Decimal | None:
    """The delta of rho in place of the config's: 0 where the account has none to give."""
    from statpress.tasks.ledger.home_ledger import account_terms

    try:
        account = account_terms(home, release.config.dataset)
    except LedgerError:
        return None  # the check of the budget says what is wrong
    if account is None or account.policy != "zcdp" or account.limit["rho_delta"]:
        return None
    return Decimal(0)


def key_faults(release: Release) -> Iterator[SigningKeyError]:
    """What is wrong with the key that a config names, if it names one."""
    if release.config.publish.sign is None:
        return
    from statpress.tasks.release.runs import publishing_key

    try:
        publishing_key(release)
    except SigningKeyError as error:
        yield error


def foreseen(release: Release, plan: Plan | None) -> list[StatpressError]:
    """Files or steps too large, functions that fail, and wrong keys, names or priors."""
    publish, findings = release.config.publish, Findings()
    for product in plan.products if plan is not None else ():
        place = release.document.where(("products", product.name))
        if {*STAT} & {*publish.formats}:
            from statpress.tasks.products.product_kind import kind_of

            with findings.noting():
                kind_of(product).publication(product).check_size(publish, place)
        with findings.noting():
            rehearse_mechanism(product, place)
    if plan is not None and release.config.resources.memory is not None:
        findings.errors += memory_faults(release, plan)
    if plan is not None and any(hasattr(product.mechanism, "prior") for product in plan.products):
        from statpress.tasks.release.priors import prior_faults

        findings.errors += prior_faults(release, plan)
    return [*findings.errors, *key_faults(release), *taken_name(release)]


def rehearse_mechanism(product: PlannedProduct[Any], where: str) -> None:
    """Try what the mechanism can do without data, if there is anything.

    Raises:
        ConfigError: It fails, and so would a release after its charge.
    """
    rehearse = getattr(product.mechanism, "rehearse", None)
    try:
        if rehearse is not None:
            rehearse(product.domain)
    except ConfigError as error:
        error.where = where
        raise


def taken_name(release: Release) -> Iterator[BundleExistsError]:
    """An error if the bundle's place is taken."""
    publish = release.config.publish
    if publish.name is None:
        return
    target = release.directory / publish.name
    if os.path.lexists(target):
        yield BundleExistsError(
            "A bundle of this name is already there.",
            where=f"{release.document.where(('publish', 'name'))}: {target}",
        )


def check_verdicts(
    release: Release, plan: Plan, charges: Iterable[Mapping[str, Any]] = ()
) -> list[str]:
    """Refuse products of a verdict that the config does not accept; returns warnings.

    Args:
        release: The config.
        plan: Its plan.
        charges: Of the dataset's releases so far. A product that was charged before is only warned
            of where it is mostly independent, until the next version.

    Raises:
        MostlyNoiseError: A product would be mostly noise.
        MostlyIndependentError: Records would lose typical relations.
    """
    refused: list[StatpressError] = []
    before = list(charges)
    for name, found in unusable(plan).items():
        old = found.name == "mostly_independent" and _is_deployed(release, plan, name, before)
        if not (old or accepted(release, name, found)):
            place = release.document.where(("products", name))
            error = _REFUSALS[found.name]
            refused.append(error(f"'{name}' would be {found.words}.", where=place))
    if refused:
        raise together(refused)
    return warnings(release, plan)


_REFUSALS: Mapping[str, type[StatpressError]] = {
    "mostly_noise": MostlyNoiseError,
    "mostly_independent": MostlyIndependentError,
}
"""By the verdicts that stop a run what it stops with."""


def _is_deployed(
    release: Release, plan: Plan, name: str, charges: Iterable[Mapping[str, Any]]
) -> bool:
    """Whether the config was charged before, or this product of it with no larger budget."""
    product = next(each for each in plan.products if each.name == name)
    own = product.describe(plan.privacy)

    def is_same(charged: Mapping[str, Any]) -> bool:
        same = all(
            charged.get(key) == own[key] for key in ("product", "mechanism", "sizes", "groups")
        )
        return same and Fraction(charged["mu"]) <= Fraction(own["mu"])

    return any(
        charge["config_sha256"] == release.sha256 or any(map(is_same, charge["mechanisms"]))
        for charge in charges
    )


def warnings(release: Release, plan: Plan, *, apart: int | None = None) -> list[str]:
    """What a person should know before the charge; public.

    With ``apart`` more products than that which would stop a run share one text.
    """
    found = []
    listed = unusable(plan)
    for kind in _REFUSALS:
        stopping = [
            name
            for name, each in listed.items()
            if each.name == kind and not accepted(release, name, each)
        ]
        if apart is not None and len(stopping) > apart:
            found.append(
                f"{len(stopping)} products would be {kind.replace('_', ' ')}: "
                f"{', '.join(stopping)}. A run stops before the charge. For each of them: "
                f"{_remedy(kind)}"
            )
            listed = {name: each for name, each in listed.items() if name not in stopping}
    for name, each in listed.items():
        if accepted(release, name, each):
            found.append(f"'{name}' is {each.words}. The config accepts that.")
        else:
            found.append(
                f"'{name}' would be {each.words}. A run stops before the charge. "
                f"{_remedy(each.name)}"
            )
    if release.config.privacy.is_from_source and plan.privacy.size is not Size.FROM_SOURCE:
        size = how_many(plan.privacy.n_units, plan.privacy.n_records, Size.ROUGH)
        found.append(
            f"The plan is for {size}. A run counts them in the source first, plans for their exact"
            " number and publishes it."
        )
    if plan.privacy.adjacency is Adjacency.ADD_REMOVE:
        size = how_many(plan.privacy.n_units, plan.privacy.n_records, Size.ROUGH)
        found.append(
            f"The size is private, and the plan for {size}. However many there are, the guarantee"
            " and the noise of counts are as planned. Should there be a third fewer, errors of"
            " shares are half as large again as stated, and with half as many more a third smaller."
            " The number of synthetic records is that of the noisy counts."
        )
    if plan.privacy.unit_records > 1 and plan.privacy.expected_records is None:
        found.append(
            f"Expected errors and verdicts are for units with {plan.privacy.unit_records} records "
            "each, as many as they may have. Should they have one each, errors of shares and means "
            f"are up to {plan.privacy.unit_records} times as large. Say about how many records all "
            "units have, by what is public: 'expected_records' under privacy.unit."
        )
    return [*found, *_of_noisy_checks(release, plan), *disclosures(plan)]


def _remedy(name: str) -> str:
    """What to do about a verdict that stops a run."""
    remedy = _REFUSALS[name].next_step.removesuffix(" Nothing was charged.")
    return remedy + _GRACE.get(name, "")


def _of_noisy_checks(release: Release, plan: Plan) -> Iterator[str]:
    """What noisy checks let pass, and what they find after the charge only."""
    if plan.gate is None:
        return
    margin: int = plan.gate.mechanism.margin
    records = plan.privacy.expected_records or plan.privacy.n_units
    if margin > _LOOSE * records:
        yield (
            f"Noisy checks let up to {margin:,} records pass above what is allowed, of perhaps no "
            f"more than {records:,}: as many may have a category that is not declared, and count "
            "as the first. Give such columns 'other: true', raise 'gate.share', and read the noisy "
            "counts in the curator log before the release is published."
        )
    source = release.config.source
    if any(getattr(each, "form", "") == "csv" for each in getattr(source, "both", (source,))):
        yield (
            "Noisy checks find a wrong 'decimal', 'thousands' or 'date_format' of a CSV file after "
            "the charge, which stays: compare them with the file's description first."
        )


_LOOSE = 0.1
"""Share of the records from which the margin of noisy checks is told."""
_GRACE = {
    "mostly_independent": " If the ledger has charged this config before, it is only warned, "
    "until the next version."
}
"""What is said of verdicts that are new in this version."""


def unusable(plan: Plan) -> dict[str, Verdict]:
    """The verdicts that a config has to accept, by product."""
    found = {product.name: verdict(product) for product in plan.products}
    return {name: each for name, each in found.items() if each.name in _REFUSALS}


def accepted(release: Release, product: str, found: Verdict) -> bool:
    """Whether the config accepts a verdict on a product."""
    return found.name in (release.config.products[product].accept or ())


def verdict_facts(release: Release, product: PlannedProduct[Any]) -> dict[str, Any]:
    """The verdict on a product as JSON values, with whether the config accepts it."""
    found = verdict(product)
    return asdict(found) | {"accepted": accepted(release, product.name, found)}


_OVERHEAD = 1.5  # of the engine beyond its limit: its code, and what it cannot spill
_COMBINATION, _COUNTED = 160, 48  # bytes of a cell: as it is handed over, and as it is kept
_THREAD = 1 << 25  # bytes of a thread: small tables of its own, and a chunk of records
_CODED_ROW, _CODED_ROWS = 32, 1 << 17


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The most memory of one step of a run.

    Attributes:
        step: Its title.
        product: For which product; empty where it is for all.
        bytes: In all, of the run and its quality process.
        figure: What decides.
        next_step: What helps.
    """

    step: str
    product: str
    bytes: int
    figure: str
    next_step: str


def forecasts(release: Release, plan: Plan) -> list[Forecast]:
    """Every step that may need much, in order; a step of products has one for each."""
    return list(_forecasts(release, plan))


def peak(found: list[Forecast]) -> Forecast:
    """The one that needs most."""
    return max(found, key=lambda each: each.bytes)


def memory_faults(release: Release, plan: Plan) -> Iterator[MemoryLimitError]:
    """An error for each step that may need more than the config declares."""
    declared = release.config.resources.memory_bytes
    if declared is None:
        return
    place = release.document.where(("resources", "memory"))
    for each in forecasts(release, plan):
        if each.bytes > declared:
            of = f" for the product '{each.product}'" if each.product else ""
            yield MemoryLimitError(
                f"The step '{each.step}'{of} may need {size_in_words(each.bytes)} of memory, for "
                f"{each.figure}; resources.memory is {release.config.resources.memory}.",
                where=place,
                next_step=f"{each.next_step} Or raise resources.memory. Nothing was charged.",
            )


def check_memory(release: Release, plan: Plan) -> None:
    """Refuse a plan that may need more memory than the config declares.

    Raises:
        MemoryLimitError: It names the step, the product, the figure, and what helps.
    """
    for fault in memory_faults(release, plan):
        raise fault


def size_in_words(amount: int) -> str:
    """Bytes as people read them.

    >>> size_in_words(1_250_000_000)
    '1.25 GB'
    """
    return f"{amount / 10**9:.2f} GB" if amount >= 10**9 else f"{amount / 10**6:,.0f} MB"


def _forecasts(release: Release, plan: Plan) -> Iterator[Forecast]:
    from statpress.tasks.products.product_kind import kind_of
    from statpress.tasks.source.engine import MEMORY_LIMIT, RUN, csv_memory, engine_share

    declared = release.config.resources.memory_bytes
    threads = release.config.resources.threads or usable_processors()
    csv = 0
    if getattr(release.config.source, "form", "") == "csv":
        csv = csv_memory(len(release.domain.columns), threads)
    engine = max(MEMORY_LIMIT, 2 * csv) if declared is None else engine_share(declared)
    if csv > engine:
        yield Forecast(
            step="check input",
            product="",
            bytes=RUN + 3 * csv,
            figure=f"{len(release.domain.columns)} columns of a CSV and {threads} threads",
            next_step="Lower resources.threads, or deliver Parquet.",
        )
    n_records = plan.privacy.n_records
    cells = [min(domain.n_possible, n_records) for domain in plan.joint]
    counted = sum(cells)
    coded = 0
    if plan.coded is not None:
        coded = _CODED_ROW * _CODED_ROWS * len(plan.domain.columns)
    yield Forecast(
        step="check input",
        product="",
        bytes=int(RUN + _OVERHEAD * engine + _COMBINATION * counted + coded),
        figure=f"{counted:,} occupied cells of {len(cells)} joint tables" if cells else
        f"{n_records:,} records",
        next_step="Use fewer columns or cells in products that need a joint table.",
    )  # fmt: skip
    # The engine keeps some of what it took.
    held = RUN + engine // 8 + _COUNTED * counted + _THREAD * threads
    needs = {product.name: kind_of(product).working_memory(product) for product in plan.products}
    kept = sum(need.kept for need in needs.values())
    for name, need in needs.items():
        yield _of(name, need, "draw records", held + need.draw)
        held += need.kept // 4  # what was released
    before = held
    for name, need in needs.items():
        yield _of(name, need, "post-process", before + need.derive)
        before += need.kept
    for name, need in needs.items():
        yield _of(name, need, "write bundle", held + kept + need.write)


def _of(product: str, need: WorkingMemory, step: str, amount: int) -> Forecast:
    return Forecast(
        step=step, product=product, bytes=amount, figure=need.figure, next_step=need.next_step
    )


def share_origin(plan: Plan, product: PlannedProduct[Any]) -> str:
    """What follows a product's share if the config leaves it open; empty if it does not."""
    if plan.division is None or product.name not in plan.division.names:
        return ""
    return ", equal" if plan.division.gain == 0 else ", found"


def division_words(plan: Plan) -> str:
    """How open shares were found, in a sentence; empty if none were to be found."""
    if plan.division is None:
        return ""
    gain = plan.division.gain
    if gain is None:
        return "Open shares are found so that every product can be served; equal ones do not do."
    if gain == 0:
        return (
            "Open shares are equal: no others were found with a mean expected error (geometric) "
            f"lower by {share(WORTH)}."
        )
    if plan.division.spared:
        names = ", ".join(plan.division.spared)
        return (
            f"Open shares are found so that something is left of {names}, of which equal shares"
            " would leave mostly noise or independent columns; besides, the mean expected error of"
            " their products (geometric) is least."
        )
    return (
        "Open shares are found so that the mean expected error of their products (geometric) is "
        f"least: it is {share(gain)} lower than with equal shares."
    )


def with_more(plan: Plan, product: PlannedProduct[Any]) -> str:
    """What a tenth more of the budget would do to a product's error; empty if that is not known."""
    now, then = error_of(product), error_with_more(plan, product)
    if not now or then is None:
        return ""
    change = 1 - then / now
    return f"{measured(then, 3)} ({share(abs(change))} {'less' if change >= 0 else 'more'})"
