"""The form that the first released version wrote: entries, searchable by dataset and run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from statpress.tasks.ledger.ledger_table import install

revision = "second"
down_revision = None


def upgrade() -> None:
    """Make the table of entries, its indexes and its guards."""
    op.create_table(
        "entries",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("dataset", sa.Text),
        sa.Column("run_id", sa.Text),
    )
    op.create_index("entries_by_dataset", "entries", ["dataset", "kind", "sequence"])
    op.create_index("entries_by_run", "entries", ["run_id", "kind"], unique=True)
    install(op.get_bind())
