"""Privacy losses as values, and what they amount to singly and composed, in ball arithmetic.

Everything here is computed without data and rounded against the release; nothing draws.
"""
