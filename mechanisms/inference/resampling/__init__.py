"""Statistics of resamples and subsamples with noise: their intervals, designs and calibration for
a variance that is not known. Nothing here knows which statistic it is but by its sensitivity.
"""
