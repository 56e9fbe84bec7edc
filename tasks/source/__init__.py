"""The source as an engine sees it: its files, how they are written, what is wrong with them.

Nothing here counts, and copies of a source go into the run's folder alone.
"""
