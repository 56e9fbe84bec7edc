"""Records that have given low-order tables, as nearly as records can.

Everything here works on public tables: no private data and no noise.
"""
