"""The choice of a cell for an end of a quantile, and how far out it must aim.

Nothing here knows what value a cell stands for.
"""
