"""The notices of deploy/automations.yaml: when they are sent, and what they say."""

from __future__ import annotations

import datetime
import itertools
import uuid
from typing import Any

import jinja2
import pytest
from installation import DEPLOY, load_all
from prefect._vendor.croniter import croniter
from prefect.server.events.schemas.automations import EventTrigger
from prefect.server.events.schemas.events import ReceivedEvent

from statpress.tasks.orchestration.monitoring import SERIES_RUNNING_OUT, SERIES_WAITING, WAITING

(DESCRIBED,) = load_all(DEPLOY / "automations.yaml")
NOTICES = {each["name"].removeprefix("statpress "): each for each in DESCRIBED["automations"]}
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def trigger(name: str) -> EventTrigger:
    return EventTrigger.model_validate(NOTICES[name]["trigger"])


def event(state: str, flow: str = "statpress-verify-ledger") -> ReceivedEvent:
    """What a Prefect server emits when a flow run enters a state."""
    related = {
        "prefect.resource.id": f"prefect.flow.{uuid.uuid4()}",
        "prefect.resource.role": "flow",
        "prefect.resource.name": flow,
    }
    return ReceivedEvent(
        occurred=NOW,
        event=f"prefect.flow-run.{state}",
        resource={"prefect.resource.id": f"prefect.flow-run.{uuid.uuid4()}"},
        related=[related],
        id=uuid.uuid4(),
    )


def test_a_verification_that_does_not_begin_is_noticed() -> None:
    late = trigger("verification late")
    assert late.covers(event("Late")) and late.starts_after("prefect.flow-run.Late")
    assert not late.immediate and late.for_each == {"prefect.resource.id"}
    assert late.expects("prefect.flow-run.Running")
    assert not late.covers(event("Late", "statpress-release"))
    assert late.meets_threshold(0) and not late.meets_threshold(1)


def test_no_verification_at_all_is_noticed() -> None:
    missing = trigger("verification missing")
    assert not missing.after and missing.covers(event("Completed"))
    assert not missing.expects("prefect.flow-run.Failed")
    assert not missing.covers(event("Completed", "statpress-release"))
    assert missing.meets_threshold(0) and not missing.meets_threshold(1)
    (deployments,) = load_all(DEPLOY / "prefect.yaml")
    (verification,) = (d for d in deployments["deployments"] if d["name"] == "verify-ledger")
    due = croniter(verification["schedules"][0]["cron"], NOW)
    times = [due.get_next(datetime.datetime) for _ in range(400)]
    gap = max(later - earlier for earlier, later in itertools.pairwise(times))
    assert gap < missing.within <= gap + datetime.timedelta(days=2)


@pytest.mark.parametrize("flow", ["statpress-release", "statpress-verify-ledger"])
def test_a_failure_is_noticed_without_a_claim_about_its_charge(flow: str) -> None:
    failed = trigger("run failed")
    assert all(failed.covers(event(state, flow)) for state in ("Failed", "Crashed", "TimedOut"))
    body = NOTICES["run failed"]["actions"][0]["body"]
    said = rendered(body, flow, "The input gate stopped the run; nothing was charged.")
    assert "nothing was charged" in said and "What it charged" not in said
    assert "If it was charged, the charge stays" in " ".join(said.split())


def test_a_notice_without_an_event_uses_none() -> None:
    action = NOTICES["verification missing"]["actions"][0]
    assert "{{" not in action["subject"] + action["body"]


def rendered(body: str, flow: str, message: str) -> str:
    state: dict[str, Any] = {"message": message}
    run = {"id": "1", "name": "a-run", "state": state}
    return jinja2.Template(body).render(flow={"name": flow}, flow_run=run)


def test_a_series_that_waits_is_noticed_once_that_lasts() -> None:
    waiting = trigger("series waiting")
    payload = {
        "dataset": "lfs",
        "series": "monthly",
        "words": "2026-02 waits for its source, which is not there yet",
    }
    emitted = ReceivedEvent(
        occurred=NOW,
        event=SERIES_WAITING,
        resource={"prefect.resource.id": "statpress.series.lfs-monthly"},
        payload=payload,
        id=uuid.uuid4(),
    )
    assert waiting.covers(emitted) and waiting.expects(emitted.event)
    assert waiting.threshold > 1 and not waiting.expects(WAITING)
    (action,) = NOTICES["series waiting"]["actions"]
    subject, body = (
        jinja2.Template(action[part]).render(event=emitted) for part in ("subject", "body")
    )
    assert subject == "statpress: the series monthly of lfs waits"
    assert body.startswith("2026-02 waits for its source") and "'skip'" in body


def test_a_series_whose_budget_runs_out_is_noticed_at_once() -> None:
    running_out = trigger("series running out")
    words = "The budget lasts to 2026-03 and no longer, if every period is charged epsilon 1."
    emitted = ReceivedEvent(
        occurred=NOW,
        event=SERIES_RUNNING_OUT,
        resource={"prefect.resource.id": "statpress.dataset.lfs"},
        payload={"dataset": "lfs", "words": words},
        id=uuid.uuid4(),
    )
    assert running_out.immediate and running_out.covers(emitted)
    assert running_out.expects(emitted.event) and not running_out.expects("statpress.budget.low")
    (action,) = NOTICES["series running out"]["actions"]
    subject, body = (
        jinja2.Template(action[part]).render(event=emitted) for part in ("subject", "body")
    )
    assert subject == "statpress: the budget of lfs runs out" and body.startswith(words)


def test_a_bundle_that_waits_is_noticed_with_the_command_that_approves_it() -> None:
    waiting = trigger("release waiting")
    payload = {
        "run_id": "ab" * 16,
        "title": "Wages",
        "dataset": "pay",
        "folder": "/home/prepared",
        "home": "/srv/a-home",
    }
    emitted = ReceivedEvent(
        occurred=NOW,
        event=WAITING,
        resource={"prefect.resource.id": "statpress.dataset.pay"},
        payload=payload,
        id=uuid.uuid4(),
    )
    assert waiting.immediate and waiting.covers(emitted) and waiting.expects(emitted.event)
    assert not waiting.expects("statpress.budget.low")
    (action,) = NOTICES["release waiting"]["actions"]
    subject, body = (
        jinja2.Template(action[part]).render(event=emitted) for part in ("subject", "body")
    )
    assert subject == f"statpress: Wages prepared, run {'ab' * 16}"
    assert f"statpress approve {'ab' * 16} --key FILE" in body and "/home/prepared" in body
    assert "/srv/a-home" in body and "as-statpress" in body
    assert "statpress approve FOLDER" in body
