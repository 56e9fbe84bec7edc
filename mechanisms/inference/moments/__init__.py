"""Moments released jointly, of one column or of two, and confidence sets of functions of them.

Nothing here knows a config: which statistic uses what is said in the estimates.
"""
