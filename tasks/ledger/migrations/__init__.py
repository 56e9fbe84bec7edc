"""Steps from one form of the ledger's schema to the next, run by Alembic."""
