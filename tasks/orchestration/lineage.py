"""OpenLineage events of releases: that one began, and that it published its bundle or failed.

Off, unless the environment or a file configures OpenLineage's client
(https://openlineage.io/docs/client/python/configuration). What events hold is in the config, the
ledger or the published bundle: names, declared columns, the seal, the guarantee; no counts and no
text of an error. Nothing here can fail a run or charge it, and each event delays it by
``PATIENCE_SECONDS`` at most: what takes longer, or goes wrong, is noted in the curator log.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit
from uuid import UUID

from statpress import __version__
from statpress.configs.loading import Release
from statpress.configs.series import stated_series
from statpress.configs.yaml_text import parse
from statpress.mechanisms.errors import StatpressError
from statpress.tasks.bundle.manifest import CONFIG, STATEMENT
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.orchestration.monitoring import run_name
from statpress.tasks.private_zone.guards import uninterrupted
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.runs import Outcome
from statpress.tasks.release.steps import source_names

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

EventType = Literal["START", "OTHER", "COMPLETE", "FAIL"]
PATIENCE_SECONDS = 3.0
"""How long a run waits for an event to be sent."""

PRODUCER = f"https://pypi.org/project/statpress/{__version__}/"
_NAMESPACE = "statpress"
_FILE = "openlineage.yml"


def is_on() -> bool:
    """Whether OpenLineage's client is configured, where it would look for that itself."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if any(name == "OPENLINEAGE_URL" or name.startswith("OPENLINEAGE__") for name in os.environ):
        return True
    places = [os.environ.get("OPENLINEAGE_CONFIG", ""), _FILE, f"~/.openlineage/{_FILE}"]
    return any(os.path.isfile(os.path.expanduser(place)) for place in places)


@dataclass
class Lineage:
    """The events of one run.

    Attributes:
        context: Of the run that sends them.
        run_id: The run that they are about.
        dataset: Its account.
        series: The series that it is of, if it is of one.
        outcome: What the run left, once it did.
    """

    context: RunContext
    run_id: str
    dataset: str
    series: str | None
    outcome: Outcome | None = None

    @classmethod
    def of_publication(cls, context: RunContext, outcome: Outcome) -> Self:
        """Of a bundle that was prepared for its approval and is published, by its own config."""
        series = None
        with suppress(OSError, ValueError, StatpressError):
            text = (outcome.bundle / CONFIG).read_text(encoding="utf-8")
            series = stated_series(parse(text, CONFIG).value)
        name = None if series is None else series.name
        return cls(context, outcome.run_id, outcome.dataset, name, outcome)

    def started(self, release: Release) -> None:
        """The run is about to open the source."""
        self._send("START", release=release)

    def ended(self) -> None:
        """The run left a bundle: it is complete once that is published."""
        assert self.outcome is not None
        published = self.outcome.status is Status.PUBLISHED
        with uninterrupted():
            self._send("COMPLETE" if published else "OTHER", outcome=self.outcome)

    def failed(self) -> None:
        """The run failed; whether it was charged is in the ledger."""
        self._send("FAIL")

    def _send(
        self, kind: EventType, release: Release | None = None, outcome: Outcome | None = None
    ) -> None:
        """Send an event, and wait a short while for that."""
        if not is_on():
            return
        problems: list[str] = []

        def send() -> None:
            try:
                _be_quiet()
                from openlineage.client import OpenLineageClient

                client = OpenLineageClient()
                client.emit(self._event(kind, release, outcome))
                client.close(PATIENCE_SECONDS)
            except ModuleNotFoundError:
                problems.append("pip install 'statpress[lineage]'")
            except BaseException as error:
                problems.append(f"{type(error).__name__}: {error}")

        try:
            thread = threading.Thread(target=send, name="lineage", daemon=True)
            thread.start()
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():
                problems.append(f"not within {PATIENCE_SECONDS:g} seconds")
        except RuntimeError as error:  # no thread can be started
            problems.append(f"{type(error).__name__}: {error}")
        for problem in problems:
            self.context.log.write(f"The OpenLineage event {kind} was not sent: {problem}")

    def _event(self, kind: str, release: Release | None, outcome: Outcome | None) -> RunEvent:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import job_type_job

        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or _NAMESPACE
        name = ".".join(filter(None, (self.dataset, self.series)))
        job_type = job_type_job.JobTypeJobFacet("BATCH", "STATPRESS", "RELEASE", producer=PRODUCER)
        published = outcome is not None and outcome.status is Status.PUBLISHED
        return RunEvent(
            eventType=RunState[kind],
            eventTime=datetime.now(UTC).replace(microsecond=0).isoformat(),
            producer=PRODUCER,
            run=Run(str(UUID(self.run_id)), _run_facets(release, self.run_id) if release else {}),
            job=Job(namespace, name, facets={"jobType": job_type}),
            inputs=_inputs(release) if release else [],
            outputs=[_output(outcome)] if outcome and published else [],
        )


@contextmanager
def followed(context: RunContext, release: Release) -> Iterator[Lineage]:
    """Tell of a run: that it begins, then what became of it.

    Whoever runs it notes its outcome. Without one, and without an error, nothing more is told:
    another process released the same period meanwhile, and tells of it.
    """
    series = release.config.series
    run = Lineage(
        context, context.run_id, release.config.dataset, None if series is None else series.name
    )
    run.started(release)
    try:
        yield run
    except BaseException:
        if run.outcome is None:
            run.failed()
        raise
    finally:
        if run.outcome is not None:
            run.ended()


def _be_quiet() -> None:
    """Keep the client's own log to itself unless it is asked for: it may hold its settings."""
    logger = logging.getLogger("openlineage")
    if not os.environ.get("OPENLINEAGE_CLIENT_LOGGING") and logger.propagate:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


def _run_facets(release: Release, run_id: str) -> dict[str, Any]:
    """The run's name and, of a period, the time that it is about."""
    from openlineage.client.facet_v2 import RunFacet, nominal_time_run

    named = {"name": run_name(release.config, run_id), "title": release.config.title}
    named |= {"version": __version__, "config_sha256": release.sha256}
    facets: dict[str, Any] = {"statpress_release": _facet(RunFacet, named)}
    if (period := release.period) is not None:
        first, last = (f"{day}T00:00:00Z" for day in (period.start, period.following.start))
        facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(first, last, producer=PRODUCER)
    return facets


def _inputs(release: Release) -> list[InputDataset]:
    """The sources by the names that the account has for them, with their declared columns."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import schema_dataset

    config = release.config
    linked = config.linked and (config.linked.households.domain, config.linked.persons.domain)
    found = []
    for source, declared in zip(source_names(release), linked or (config.domain,), strict=True):
        fields = [
            schema_dataset.SchemaDatasetFacetFields(
                name, column.type, getattr(column, "label", None)
            )
            for name, column in declared.items()
        ]
        schema = schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
        namespace, name = _named(source)
        found.append(InputDataset(namespace=namespace, name=name, facets={"schema": schema}))
    return found


def _output(outcome: Outcome) -> OutputDataset:
    """The published bundle, its seal and its guarantee."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import DatasetFacet, dataset_version_dataset

    stated = json.loads((outcome.bundle / STATEMENT).read_text(encoding="utf-8"))
    guarantee = {"epsilon": outcome.epsilon, "delta": outcome.delta}
    guarantee |= {name: stated[name] for name in ("adjacency", "unit")}
    more = {"ledger_entry": outcome.ledger_entry, "publishable": outcome.publishable}
    seal = dataset_version_dataset.DatasetVersionDatasetFacet(outcome.seal, producer=PRODUCER)
    namespace, name = _named(str(outcome.bundle.absolute()))
    facets = {"version": seal, "statpress_privacy": _facet(DatasetFacet, guarantee | more)}
    return OutputDataset(namespace=namespace, name=name, facets=facets)


def _facet(kind: Any, values: Mapping[str, Any]) -> Any:
    """A facet of our own."""
    return kind(producer=PRODUCER).with_additional_properties(**values)


def _named(source: str) -> tuple[str, str]:
    """Namespace and name of a dataset, as OpenLineage has them, of what accounts call it.

    >>> _named("s3://bucket/people/2026.parquet")
    ('s3://bucket', 'people/2026.parquet')
    """
    if source.startswith("/"):
        return "file", source
    parts = urlsplit(source)
    if parts.netloc:
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.lstrip("/")
    engine, _, table = source.partition(":")
    return engine, table
