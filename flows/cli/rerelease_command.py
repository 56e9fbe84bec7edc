"""The command ``rerelease``: a bundle released anew, in three ways: reprinted, renewed, revised.

A reprint is free post-processing. The other two are runs of the release flow, which charge;
what they would change and cost is shown first, without data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice

from statpress.configs.order import Override, from_options
from statpress.flows.cli.options import (
    Dask,
    HomeFolder,
    Json,
    NoOrchestrator,
    Overrides,
    Result,
    Sign,
    Timings,
    WorkerCount,
    Yes,
    home_of,
    overrides_of,
    private_key,
)
from statpress.flows.cli.plan_command import plan_facts
from statpress.flows.cli.release_commands import Again, confirm, outcome_result
from statpress.flows.facts import remaining_text
from statpress.flows.terminal import Progress, show, table
from statpress.mechanisms.mechanism import figure, label
from statpress.mechanisms.registry import KINDS
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.private_zone.run_context import Listener
from statpress.tasks.private_zone.workers import Parallel
from statpress.tasks.release import reprint as reprinting
from statpress.tasks.release.foreseen import warnings
from statpress.tasks.release.succession import Proposal, propose

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_SHOWN = 60
_COSTS = {
    "epsilon": "epsilon",
    "delta": "delta",
    "rho": "rho under zCDP",
    "rho_delta": "delta under zCDP",
}
_HOW = Group("How", validator=LimitedChoice(1, 1), help="Give exactly one.")


def rerelease(
    bundle: Path,
    *,
    reprint: Annotated[bool, Parameter(group=_HOW)] = False,
    renew: Annotated[bool, Parameter(group=_HOW)] = False,
    revise: Annotated[Path | None, Parameter(group=_HOW)] = None,
    set_: Overrides = None,
    name: str | None = None,
    folder: Path | None = None,
    plan_only: bool = False,
    again: Again = False,
    yes: Yes = False,
    home: HomeFolder = None,
    no_orchestrator: NoOrchestrator = False,
    sign: Sign = None,
    workers: WorkerCount = None,
    dask: Dask = None,
    timings: Timings = False,
    json: Json = False,
) -> Result:
    """Release a published bundle anew: derived again, on new data, or with a changed config.

    Args:
        bundle: The bundle's folder.
        reprint: Derive its products again from what was drawn; free, without data or ledger.
        renew: The same config on the data of today; charged as a run of its own.
        revise: A changed config, whose changes are shown first; charged as a run of its own.
        name: Of the new bundle; the same as --set publish.name.
        folder: Where the config's paths are taken from under --renew; by default the folder of
            the bundle's own config if the data is there, else the current one.
        plan_only: Show what it would change and cost, and stop.
        again: Charge it once more, if it is of a period, was charged and published nothing.
    """
    started = time.perf_counter()
    parallel = Parallel.of(os.environ, workers, dask)
    options = [*(set_ or ()), *([] if name is None else [f"publish.name={name}"])]
    signer = private_key(sign) if sign else None
    if reprint:
        with Progress(shown=not json) as progress:
            facts = _reprint(bundle, from_options(options), progress, signer)
        return Result(json=json, facts=lambda: facts, report=lambda: _reprint_report(facts))
    place = home_of(home)
    proposal = propose(bundle, revise, overrides_of(options), folder, place)
    planned = time.perf_counter() - started
    if plan_only:
        return Result(
            json=json,
            facts=lambda: {"plan": proposal_facts(proposal)},
            report=lambda: proposal_report(proposal),
        )
    for part in () if json else proposal_report(proposal):
        show(part)  # before the question
    proposal.check(place)
    if not yes:
        confirm(_cost_in_words(proposal), "Charge this?")
    from statpress.flows.runner import open_context, run_release

    with (
        Progress(shown=not json) as progress,
        open_context(
            place,
            orchestrated=not no_orchestrator,
            listener=progress,
            parallel=parallel,
        ) as context,
    ):
        outcome = run_release(context, proposal.planned, again=again, signer=signer)
    return outcome_result(
        json,
        outcome,
        context,
        started,
        planned if timings else None,
        {"plan": proposal_facts(proposal)},
    )


def _reprint(
    bundle: Path,
    overrides: Sequence[Override],
    listener: Listener,
    signer: Ed25519PrivateKey | None = None,
) -> dict[str, Any]:
    """Derive a bundle anew; returns what was done.

    Args:
        bundle: The bundle's folder.
        overrides: What differs from its config.
        listener: Who is told of the progress.
        signer: Signs the new bundle; the signature of the old one is not of this.

    Raises:
        StatpressError: It cannot be done as asked.
    """
    done = reprinting.reprint(bundle, overrides, listener.announce, signer)
    return {
        "bundle": str(done.bundle),
        "seal": done.seal,
        "reprint_of": done.original["seal"],
        "run_id": done.original["run_id"],
        "ledger_entry": done.original["ledger_entry"],
        "publishable": done.original["publishable"],
        "copied": list(done.copied),
    }


def proposal_facts(proposal: Proposal) -> dict[str, Any]:
    """The plan, and what it changes."""
    planned = plan_facts(proposal.release, proposal.plan, proposal.remaining)
    return planned | {"difference": proposal.difference}


def _reprint_report(facts: Mapping[str, Any]) -> str:
    """What a reprint is, in a few lines."""
    lines = [
        f"Reprinted {facts['bundle']}",
        f"  from the release with the seal {facts['reprint_of'][:16]}; no budget is spent",
    ]
    if facts["copied"]:
        lines.append(f"  as they were: {', '.join(facts['copied'])}")
    if not facts["publishable"]:
        lines.append("  NOT PUBLISHABLE: drawn from a known seed")
    return "\n".join(lines)


def _cost_in_words(proposal: Proposal) -> str:
    """What a proposal costs, and of what."""
    plan = proposal.plan
    return (
        f"This charges epsilon {canonical(plan.epsilon)}, delta {canonical(plan.delta)} of "
        f"the remaining {remaining_text(proposal.remaining)}."
    )


def proposal_report(proposal: Proposal) -> Iterator[Any]:
    """A proposal for a person: what changes, product by product."""
    found = proposal.difference
    compared = {k: v for kind in KINDS.values() for k, v in kind.compared.items()}
    title = f"{proposal.release.config.title}, against the bundle {found['supersedes'][:16]}"
    config = [
        [key, _text(each["was"]), _text(each["now"])] for key, each in found["config"].items()
    ]
    if config:
        yield table("Changes of the config", ["", "was", "now"], config)
    rows = [
        [key, _text(each["was"]), _text(each["now"])] for key, each in found["protected"].items()
    ]
    for name, product in found["products"].items():
        rows.append([name, "", product["fate"]])
        if product["fate"] == "unchanged":
            continue
        for key, each in product["parameters"].items():
            words = label(key)
            if words is not None:
                rows.append([f"  {words}", *(_parameter(each[side]) for side in ("was", "now"))])
        said = product["verdict"]
        rows.append(["  verdict", *(_text(said[side]) for side in ("was", "now"))])
        rows += [_row(f"  alone: {words}", product["cost"][k]) for k, words in _COSTS.items()]
        errors = product["expected_error"]
        rows += [
            _row(f"  {words}", errors[k])
            for k, words in compared.items()
            if k in errors and {errors[k]["was"] is None, errors[k]["now"] is None} != {True}
        ]
    rows += [_row(f"release: {words}", found["cost"][k]) for k, words in _COSTS.items()]
    rows.append(["remaining budget", "", remaining_text(proposal.remaining)])
    if proposal.remaining is not None:
        covers = proposal.remaining.covers(Loss(proposal.plan.amounts))
        rows.append(["it covers this release", "", "yes" if covers else "NO"])
    yield table(title, ["", "was", "now"], rows)
    yield from warnings(proposal.release, proposal.plan)
    if proposal.stopping is not None:
        yield f"A run would stop: {proposal.stopping}"


def _row(words: str, change: Mapping[str, Any]) -> list[str]:
    now = _text(change["now"])
    if change["was"] is not None and change["was"] != change["now"]:
        ratio = change.get("ratio")
        if ratio is not None:
            now += f" ({_text(ratio)} times)"
        elif change.get("change") is not None:
            now += f" ({'+' if change['change'][0] != '-' else ''}{change['change']})"
    return [words, _text(change["was"]), now]


def _parameter(value: Any) -> str:
    return _text(value if value is None or isinstance(value, list) else figure(value))


def _text(value: Any) -> str:
    """A value as a person reads it, long ones cut short."""
    if value is None:
        return "-"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, list):
        shown = ", ".join(map(_text, value))
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
