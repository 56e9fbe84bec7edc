"""Where the ledger's entries lie: SQLite or PostgreSQL, schema, guards, migrations.

No rule of the ledger is decided here.
"""
