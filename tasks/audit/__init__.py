"""What the ledger says, recomputed: charges and bundles against their parameters, readings.

Nothing here writes an entry of the ledger.
"""
