"""The release config: models of its sections, loading with places, what is asked of a run.

Shipped examples and JSON Schemas lie here too; ``descriptions`` drafts a config from a public
description. Nothing here opens a data file or computes.
"""
