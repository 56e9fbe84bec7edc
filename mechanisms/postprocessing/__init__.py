"""Free improvement of what is already public: debiasing, projection, consistency, rounding.

Nothing here takes private data or random bits.
"""
