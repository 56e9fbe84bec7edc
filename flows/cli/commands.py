"""The commands by name: where each is, and its help without its options.

The help is that of the docstrings, here so that listing the commands imports none of them.
"""

from __future__ import annotations

COMMANDS = {
    "demo": (
        "release:demo",
        "Release a synthetic file of fifteen columns from real survey data, in a folder of "
        "its own.",
    ),
    "init": (
        "init:init",
        "Draft a config from a public description of the columns, or by asking; never reads data.",
    ),
    "validate": (
        "release:validate",
        "Check a config without opening its source.",
    ),
    "plan": (
        "release:plan",
        "Print what a release draws, what it costs and the errors to expect, without the source.",
    ),
    "run": (
        "release:run",
        "Press a release: count, charge, draw, check, publish.",
    ),
    "rerelease": (
        "rerelease:rerelease",
        "Release a published bundle anew: derived again, on new data, or with a changed config.",
    ),
    "review": (
        "review:review",
        "List the prepared bundles that wait for a decision or for their publication.",
    ),
    "approve": (
        "review:approve",
        "Approve a prepared bundle, in your name, to the last byte; 'publish' then publishes it.",
    ),
    "reject": (
        "review:reject",
        "Reject a prepared bundle for good; its budget stays spent.",
    ),
    "publish": (
        "review:publish",
        "Publish a prepared bundle that is approved; may be repeated.",
    ),
    "upload": (
        "review:upload",
        "Upload a published bundle to the targets of its config; may be repeated, charges nothing.",
    ),
    "verify": (
        "bundle:verify",
        "Check every file of a bundle against its manifest, its signature and its approval.\n\n"
        "No ledger is needed. Of a folder, a reprint must also follow from what was drawn for its\n"
        "original, and with --home the ledger must know the bundle or its original, the charge "
        "and the\napproval.",
    ),
    "refine": (
        "bundle:refine",
        "Derive better tables from a bundle, without data or ledger; costs no budget.",
    ),
    "query": (
        "bundle:query",
        "Estimate counts with intervals from a bundle's noisy tables; costs no budget.\n\n"
        "Answers never come from synthetic records. What was not measured is refused.",
    ),
    "deploy": (
        "deployment:deploy",
        "Put work pools and deployments on the Prefect server that PREFECT_API_URL names.\n\n"
        "A pool that exists stays as it is; applying a file again changes nothing.",
    ),
    "ledger": (
        "ledger:ledger_app",
        "The account of every unit of privacy loss.",
    ),
}
