"""The logger of what a source's reader says; only a run's curator log hears it."""

from __future__ import annotations

import logging

PRIVATE = logging.getLogger("statpress.private")
PRIVATE.propagate = False
PRIVATE.addHandler(logging.NullHandler())
