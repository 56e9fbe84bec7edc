"""Mechanisms whose release is records: drawn from a smoothed histogram, or chosen among candidates.
Those that release noisy counts are in the room around it.
"""
