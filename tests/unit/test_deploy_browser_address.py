"""Browsers find the API behind a proxy, and estimates find what they draw with."""

from __future__ import annotations

import re

from installation import DEPLOY, load_all

RUNBOOK = (DEPLOY / "README.md").read_text()
SETTING = "PREFECT_SERVER_UI_API_URL"


def test_the_address_of_the_api_can_be_set_everywhere() -> None:
    (compose,) = load_all(DEPLOY / "compose.yaml")
    in_compose = compose["services"]["prefect-server"]["environment"][SETTING]
    name = re.fullmatch(r"\$\{(\w+):-http://127\.0\.0\.1:4200/api\}", in_compose)
    assert name and f"`{name[1]}`" in RUNBOOK
    (settings,) = (
        each["data"]
        for each in load_all(DEPLOY / "kubernetes" / "settings.yaml")
        if each["metadata"]["name"] == "prefect-settings"
    )
    assert settings[SETTING].startswith("https://")
    assert re.search(rf"(?m)^    printf '{SETTING}=https://\S+/api\\n'", RUNBOOK)
    assert f"{SETTING}=" in (DEPLOY / "systemd" / "statpress-server.service").read_text()


def test_charts_have_a_place_for_the_list_of_fonts() -> None:
    for file in ("Dockerfile", "systemd/statpress-worker.service"):
        assert "MPLCONFIGDIR=" in (DEPLOY / file).read_text()


def test_the_runbook_makes_the_database_and_checks_the_python() -> None:
    assert "createdb --owner statpress-server prefect" in RUNBOOK
    assert "psql --dbname prefect < deploy/postgres/prefect.sql" in RUNBOOK
    assert re.search(r"uv sync .*--python /usr/bin/python3\n", RUNBOOK)
    assert "runuser -u statpress -- /opt/statpress/bin/statpress --version" in RUNBOOK
    for listing in re.findall(r"`(prefect (?:block|flow-run) ls[^`]*)`", RUNBOOK):
        assert "--output json" in listing or "--state" in listing, listing
