"""Whole bundles whose files do not fit each other, or this version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mechanisms.errors import BundleVerificationError, ConfigError


@contextmanager
def understood(place: Path) -> Iterator[None]:
    """Say of a whole bundle that its files do not fit each other, or this version."""
    try:
        yield
        return
    except BundleVerificationError:
        raise
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        problem = (error.what if isinstance(error, ConfigError) else str(error)).rstrip(".")
    raise BundleVerificationError(
        f"The bundle is as its manifest says, and this version cannot read it: {problem}.",
        where=str(place),
        next_step="Use the version of statpress that the manifest names.",
    )
