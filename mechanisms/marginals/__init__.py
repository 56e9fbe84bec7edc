"""Microdata of any width: low-order marginals with noise, and records that fit them.

The private steps are in ``measurement``, and spend from ``gdp_filter``; everything else works on
what they released. Nothing here reads a source.
"""
