"""The sections of a release's report, one module each: columns, privacy, products, provenance.

They write what they are given as parts of a page; the report puts them in order.
"""
