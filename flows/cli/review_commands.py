"""Commands of the review: parse, call, return the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from statpress.flows.cli.options import (
    HomeFolder,
    Json,
    NoOrchestrator,
    Result,
    home_of,
    private_key,
)
from statpress.flows.facts import waiting_facts

if TYPE_CHECKING:
    from statpress.tasks.private_zone.folders import Home
    from statpress.tasks.private_zone.run_context import RunContext
    from statpress.tasks.release.review import Prepared
    from statpress.tasks.release.runs import Uploaded

Target = Annotated[
    str, Parameter(help="The run, as 'statpress review' lists it, or the folder of its bundle.")
]
Key = Annotated[
    Path | None, Parameter(help="PEM file of your private Ed25519 key, for its owner only.")
]
By = Annotated[
    str | None,
    Parameter(help="Your name instead of a key, where the ledger allows unsigned decisions."),
]
Statement = Annotated[
    Path | None,
    Parameter(
        help="Decide with a key that is elsewhere: write what it has to sign to this new file; "
        "with --signature, the file that was signed."
    ),
]
Signature = Annotated[
    Path | None,
    Parameter(help="The signature of the statement, as 'openssl pkeyutl -sign -rawin' writes it."),
]
Reason = Annotated[str | None, Parameter(help="Stays in the ledger.")]


def review(*, home: HomeFolder = None, json: Json = False) -> Result:
    """List the prepared bundles that wait for a decision or for their publication."""
    from statpress.flows import facts as reports
    from statpress.flows.cli import review_commands
    from statpress.tasks.release.review import waiting

    found = waiting(home_of(home))
    return Result(
        json=json,
        facts=lambda: {"waiting": [reports.waiting_facts(each) for each in found]},
        report=lambda: review_commands.waiting_report(found),
    )


def approve(
    target: Target,
    *,
    key: Key = None,
    by: By = None,
    statement: Statement = None,
    signature: Signature = None,
    reason: Reason = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Approve a prepared bundle, in your name, to the last byte; 'publish' then publishes it."""
    given = _Decider(key, by, statement, signature)
    return _decide(home_of(home), target, "approve", given, reason, json)


def reject(
    target: Target,
    *,
    reason: Annotated[str, Parameter(help="Stays in the ledger.")],
    key: Key = None,
    by: By = None,
    statement: Statement = None,
    signature: Signature = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Reject a prepared bundle for good; its budget stays spent."""
    given = _Decider(key, by, statement, signature)
    return _decide(home_of(home), target, "reject", given, reason, json)


def publish(
    run_id: Annotated[str, Parameter(help="The run, as 'statpress review' lists it.")],
    *,
    no_orchestrator: NoOrchestrator = False,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Publish a prepared bundle that is approved; may be repeated."""
    from statpress.flows import facts as reports
    from statpress.flows.runner import plain_context, run_publication
    from statpress.flows.terminal import Progress
    from statpress.tasks.ledger.home_ledger import remaining_after

    with Progress(shown=not json) as progress:
        context = plain_context(home_of(home), orchestrated=not no_orchestrator, listener=progress)
        outcome = run_publication(context, run_id)
    left = remaining_after(context.home, outcome.dataset, outcome.run_id)
    return Result(
        json=json,
        facts=lambda: reports.outcome_facts(outcome, left, None),
        report=lambda: reports.outcome_report(outcome, left),
    )


def upload(
    bundle: Annotated[Path, Parameter(help="The folder of a published bundle.")],
    *,
    config: Annotated[
        Path | None, Parameter(help="Take the targets of this config, not of the bundle's.")
    ] = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Upload a published bundle to the targets of its config; may be repeated, charges nothing."""
    from statpress.flows import facts as reports
    from statpress.flows.runner import plain_context
    from statpress.flows.terminal import Progress

    with Progress(shown=not json) as progress:
        context = plain_context(home_of(home), orchestrated=False, listener=progress)
        uploads = run_upload(context, bundle, config)
    return Result(
        json=json,
        facts=lambda: reports.upload_facts(uploads),
        report=lambda: reports.upload_lines(uploads),
    )


def run_upload(context: RunContext, bundle: Path, config: Path | None) -> tuple[Uploaded, ...]:
    """Upload a published bundle by itself, always without Prefect; again, it changes nothing.

    Args:
        context: The run that uploads; its home has the ledger that published the bundle.
        bundle: The folder of a published bundle.
        config: Names the targets in place of the bundle's own.

    Raises:
        StatpressError: With a message fit for the public zone, whatever happened.
    """
    from statpress.flows.runner import run_inside
    from statpress.tasks.uploads.upload import read_targets, upload

    return run_inside(context, lambda: upload(context.home, bundle, read_targets(bundle, config)))


def approvers(
    dataset: Annotated[str, Parameter(help="Name of the account.")],
    *,
    public_key: Annotated[
        list[Path] | None, Parameter(help="PEM file of one who approves; give it for each.")
    ] = None,
    unsigned: Annotated[
        bool,
        Parameter(help="Let decisions count that nobody signed, as those by a form in Prefect."),
    ] = False,
    key: Annotated[
        Path | None, Parameter(help="PEM file of the private key of an approver in force.")
    ] = None,
    reason: Reason = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Set all those who approve a dataset's releases; each release then waits for one of them.

    With nobody named, later releases need no approval. Changing who approves needs the key
    of an approver in force, and a reason.
    """
    from statpress.flows import facts as reports
    from statpress.tasks.ledger.entries import read_public_key
    from statpress.tasks.ledger.home_ledger import open_ledger

    keys = [read_public_key(path) for path in public_key or []]
    signer = private_key(key) if key else None
    with open_ledger(home_of(home)) as ledger:
        entry = ledger.set_approvers(
            dataset=dataset, approvers=keys, unsigned=unsigned, reason=reason, key=signer
        )
        account = ledger.account(dataset)
    return Result(
        json=json,
        facts=lambda: {"entry": entry.hash, **reports.account_facts(account)},
        report=lambda: f"{dataset}: {reports.review_text(account)}",
    )


class _Decider(NamedTuple):
    """The options that say who decides, of which a command has one."""

    key: Path | None
    by: str | None
    statement: Path | None
    signature: Path | None


def _decide(
    home: Home, target: str, decision: str, given: _Decider, reason: str | None, json: bool
) -> Result:
    """Record a decision, or write the statement that has to be signed for it."""
    from statpress.flows import facts as reports
    from statpress.flows.cli import review_commands
    from statpress.mechanisms.errors import SigningKeyError
    from statpress.tasks.release.review import decide, write_statement

    key, by, statement, signature = given
    ways = [way for way in (key, by, statement) if way is not None]
    if len(ways) != 1 or (signature and not statement):
        raise SigningKeyError(
            "A decision is signed by one key, or made in one name.",
            where=decision,
            next_step="Give --key FILE; or --statement FILE for a key that is elsewhere, and"
            " --signature FILE with it once it is signed; or --by NAME, where the ledger allows"
            " it.",
        )
    if statement and not signature:
        write_statement(home, target, decision, reason=reason, file=statement)
        return Result(
            json=json,
            facts=lambda: {"statement": str(statement)},
            report=lambda: review_commands.statement_report(statement),
        )
    signer = private_key(key) if key else None
    entry = decide(
        home,
        target,
        decision,
        reason=reason,
        key=signer,
        by=by,
        statement=statement,
        signature=signature,
    )
    return Result(
        json=json,
        facts=lambda: reports.decision_facts(entry),
        report=lambda: reports.decision_report(entry),
    )


def statement_report(statement: Path) -> str:
    """How the officer signs a statement, and how it comes back."""
    return (
        f"Wrote {statement}; nothing is decided yet. Where the key is:\n"
        f"  openssl pkeyutl -sign -rawin -inkey KEY -in {statement.name}"
        f" -out {statement.name}.signature\n"
        "Then repeat this command with --signature and that file."
    )


def waiting_report(found: list[Prepared]) -> str:
    """A few lines for each bundle that waits."""
    lines = []
    for facts in map(waiting_facts, found):
        mark = "" if facts["publishable"] else " NOT PUBLISHABLE"
        step = "to be decided" if facts["decision"] is None else "approved, to be published"
        title = facts["title"] or "the bundle is not in this home, or was changed"
        lines += [
            f"{facts['run_id']}  {facts['dataset']}  {step}{mark}",
            f"        {title}",
            f"        epsilon {facts['epsilon']}, delta {facts['delta']};"
            f" products {', '.join(facts['products'])}; prepared {facts['prepared']}",
            f"        in {facts['folder']}, for {facts['place']}",
        ]
    return "\n".join(lines or ["Nothing waits."])
