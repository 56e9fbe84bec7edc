"""The ledger: the rules applied to the store in serialised transactions; export and import.

No mathematics of privacy; amounts arrive as exact decimals.
"""
