"""The memory that a run may need, step by step, from public figures only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from configs.loading import Release
from mechanisms.errors import MemoryLimitError
from mechanisms.planning.plan import Plan
from tasks.execution.resources import usable_processors
from tasks.products.registry import kind_of
from tasks.products.working_memory import WorkingMemory
from tasks.source.engine import MEMORY_LIMIT, RUN, engine_share

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


def forecast_facts(release: Release, plan: Plan) -> dict[str, Any]:
    """The forecasts as JSON values."""
    found = forecasts(release, plan)
    steps = [{k: v for k, v in asdict(each).items() if k != "next_step"} for each in found]
    return {
        "declared": release.config.resources.memory_bytes,
        "threads": release.config.resources.threads,
        "peak": peak(found).bytes,
        "steps": steps,
    }


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
                f"The step '{each.step}'{of} may need {in_words(each.bytes)} of memory, for "
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


def in_words(amount: int) -> str:
    """Bytes as people read them.

    >>> in_words(1_250_000_000)
    '1.25 GB'
    """
    return f"{amount / 10**9:.2f} GB" if amount >= 10**9 else f"{amount / 10**6:,.0f} MB"


def _forecasts(release: Release, plan: Plan) -> Iterator[Forecast]:
    declared = release.config.resources.memory_bytes
    engine = MEMORY_LIMIT if declared is None else engine_share(declared)
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
    threads = release.config.resources.threads or usable_processors()
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
