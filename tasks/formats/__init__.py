"""The formats in which tables are published.

One module per format, named as its key in ``configs.models.formats``, and what all formats share:
expanding cells to rows, column types, profiles, decoding. Nothing here knows a product, a
mechanism or a bundle, and nothing reads the source.
"""
