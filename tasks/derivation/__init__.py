"""New files from a published bundle, without data or ledger: refining and reprinting.

Nothing here draws, charges or opens a source.
"""
