"""From a declared budget to parameters of all products, without data.

The registry of mechanisms, calibration, choice, composition of the release and its charges.
Nothing here draws or reads a table.
"""
