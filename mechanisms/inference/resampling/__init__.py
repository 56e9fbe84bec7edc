"""Noisy statistics of resamples and subsamples: intervals, designs, calibration.

Nothing here knows of a statistic more than its sensitivity and whether it is unbiased.
"""
