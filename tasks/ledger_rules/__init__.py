"""The ledger as a pure state machine: entries, amounts, accounts, rules, hash chain, signatures.

No database, no clock, no file: what these modules say depends on their arguments only.
"""
