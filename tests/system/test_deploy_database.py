"""The ledger's database as an installation makes, dumps and restores it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest
from postgres import Server, program, run

from statpress.mechanisms.domain.domain import Adjacency, Privacy, Unit
from statpress.tasks.ledger.home_ledger import register_dataset
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system
SCRIPT = Path(__file__).parents[2] / "deploy" / "postgres" / "ledger.sql"
AWKWARD = 'it\'s "quoted" $1'


@pytest.fixture
def made(postgres_server: Server, tmp_path: Path) -> Server:
    """A server on which the script has run, with a password that needs quoting."""
    (tmp_path / "password").write_text(f"{AWKWARD}\n")
    script = SCRIPT.read_text().replace("/run/secrets/ledger_role_password", f"{tmp_path}/password")
    assert str(tmp_path) in script
    call(postgres_server, "psql", "--dbname", "postgres", text=script.encode())
    return postgres_server


def call(server: Server, name: str, *arguments: str, text: bytes = b"") -> bytes:
    done = subprocess.run(
        [program(name), "--host", str(server.folder), "--username", "postgres", *arguments],
        input=text,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_made_dumped_and_restored(made: Server, tmp_path: Path) -> None:
    rights = "SELECT rolsuper, rolcreatedb FROM pg_roles WHERE rolname = 'statpress'"
    assert run(made.url("postgres"), rights) == [(False, False)]
    stored = run(
        made.url("postgres"), "SELECT rolpassword FROM pg_authid WHERE rolname='statpress'"
    )
    assert stored[0][0].startswith("SCRAM-SHA-256$")
    made.run("CREATE ROLE stranger LOGIN")
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        run(made.url("ledger", user="stranger"), "SELECT 1")

    home = Home(tmp_path / "home", made.url("ledger", user="statpress"))
    frame = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=400)
    register_dataset(home, "testdata", frame, epsilon="1", delta="1e-6")
    head = verify_ledger(home).head

    dump = call(made, "pg_dump", "--format", "custom", "ledger")
    made.run("CREATE DATABASE restored OWNER statpress")
    call(made, "pg_restore", "--dbname", "restored", text=dump)
    restored = Home(tmp_path / "home", made.url("restored", user="statpress"))
    assert verify_ledger(restored, head=head).entries == 1
    with Ledger.open(restored.ledger, create=False) as ledger:
        ledger.amend(dataset="testdata", epsilon="0.5")
    assert verify_ledger(restored, head=head).entries == 2
    with pytest.raises(psycopg.Error, match="never changed or removed"):
        run(made.url("restored"), "DELETE FROM statpress.entries")
