"""Bands that hold for all cells of a table at once.

With the laws of noise and of its sums that they are computed from. Nothing here knows a mechanism:
it is given a law and released figures.
"""
