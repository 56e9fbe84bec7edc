"""The second form: entries are found by dataset and run, and charges state balances."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from tasks.ledger_rules.chain import replay
from tasks.ledger_rules.entries import parse_entry
from tasks.ledger_store.guards import install, remove

revision = "second"
down_revision = "first"


def upgrade() -> None:
    """Add the search columns, filled from the bodies, which stay as they are."""
    connection = op.get_bind()
    names = ("sequence", "kind", "body", "previous", "hash")
    first = sa.table("entries", *(sa.column(name) for name in names))
    rows = connection.execute(sa.select(first).order_by(first.c.sequence)).all()
    replay(parse_entry(*row) for row in rows)  # what does not hold is left as it is
    remove(connection)
    op.add_column("entries", sa.Column("dataset", sa.Text))
    op.add_column("entries", sa.Column("run_id", sa.Text))
    entries = sa.table("entries", *(sa.column(c) for c in ("sequence", "dataset", "run_id")))
    for sequence, _, text, *_ in rows:
        body = json.loads(text)
        found = {"dataset": body.get("dataset"), "run_id": body.get("run_id")}
        connection.execute(entries.update().where(entries.c.sequence == sequence).values(**found))
    op.create_index("entries_by_dataset", "entries", ["dataset", "kind", "sequence"])
    op.create_index("entries_by_run", "entries", ["run_id", "kind"], unique=True)
    op.execute("DROP TABLE IF EXISTS meta")
    install(connection)
