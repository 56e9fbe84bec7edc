"""Counting where the data lies: declared discretisation as one expression for every engine.

What comes back is private; nothing here draws, charges or writes outside the run's folder.
"""
