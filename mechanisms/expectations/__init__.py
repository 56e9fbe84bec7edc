"""Expected errors that take more than a line: reference populations and simulated releases.

Nothing here sees private data; the noise of simulations is of a known seed.
"""
