"""Arithmetic with proven bounds of its errors: balls, convolutions, tails of the normal law.

Functions of numbers. Never here: privacy losses, which are computed by them.
"""
