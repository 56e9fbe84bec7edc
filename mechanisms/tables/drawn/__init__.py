"""Mechanisms whose release is records: drawn from a histogram, or chosen among candidates.

Those that release noisy counts are in the room around it.
"""
