"""Errors for whoever runs the press."""

from __future__ import annotations

from mechanisms.errors.base import StatpressError


class DependencyError(StatpressError):
    """An optional dependency is not installed."""

    exit_code = 60


class OrchestratorError(StatpressError):
    """The orchestrator could not run the flow."""

    exit_code = 61
    next_step = "Check PREFECT_API_URL and the server, or use --no-orchestrator."


class DeploymentError(StatpressError):
    """The work pools or deployments could not be put on a Prefect server."""

    exit_code = 63
    next_step = "Check PREFECT_API_URL and the server, then run 'statpress deploy' again."


class ConfirmationError(StatpressError):
    """A step that costs budget was not confirmed."""

    exit_code = 62
    next_step = "Answer yes, or give --yes in a script."


class WorkerError(StatpressError):
    """A process that draws products ended, or cannot do its part."""

    exit_code = 68
    next_step = "Run again with other workers, or without: --workers 1."


class UnwrittenResultError(StatpressError):
    """A command has done its work, but standard output does not take its result."""

    exit_code = 71
    next_step = "Do not repeat a release for this: 'statpress ledger show' says what was charged."
