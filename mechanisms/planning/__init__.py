"""From a declared budget to parameters of all products, without data.

Shares of the budget are stated, or equal, in ``configs.requests``; those that a config leaves open
are found in ``shares`` by expected errors; ``choice`` turns them into amounts. Then come
calibration, composition of the release and its charges. Nothing here draws or reads a table.
"""
