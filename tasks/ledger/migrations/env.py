"""Alembic's entry: run the revisions on the connection that the ledger hands over."""

from __future__ import annotations

from alembic import context

from statpress.tasks.ledger.ledger_table import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
