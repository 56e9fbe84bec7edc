"""Seed the random streams of a Python process that a test starts, before anything else runs.

``seeded_streams`` puts this folder on ``PYTHONPATH`` of the processes that tests start. Nothing in
the package imports it or knows the variables that name the stream and set the clock.
"""

import os
import sys

if "STATPRESS_TEST_STREAM" in os.environ:
    support = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path.append(support)
    try:
        import seeded_streams
    finally:
        sys.path.remove(support)
    seeded_streams.install(os.environ["STATPRESS_TEST_STREAM"])
    seeded_streams.CLOCK.shift(int(os.environ.get("STATPRESS_TEST_CLOCK", "0")))
