"""The release config: loading with places, what is asked of a run, shipped examples.

The models of its sections are in ``models``, what they come to in ``sections``, and the drafting
from descriptions in ``descriptions``. Nothing here opens a data file or computes.
"""
