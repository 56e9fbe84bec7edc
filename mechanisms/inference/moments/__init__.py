"""Moments released jointly, of one column or of two, and the confidence sets of what is a
function of them. Nothing here knows a config: which statistic uses what is in the estimates.
"""
