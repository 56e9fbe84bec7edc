"""What one run reads of a source, in however many steps: all of it of one state."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from tasks.engines.engine import Source
from tasks.engines.registry import reader_named


class Snapshot:
    """A source held from its first reading until the last.

    Args:
        scratch: Private directory.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._stack = ExitStack()
        self._held: Source | None = None

    def of(self, source: Source) -> Source:
        """The source, held from the first call on; every later call gives the same.

        Raises:
            SourceError: It cannot be opened.
        """
        if self._held is None:
            reader = reader_named(source.engine)
            self._held = self._stack.enter_context(reader.held(source, self._scratch))
        return self._held

    def settle(self) -> None:
        """End it, after the last reading.

        Raises:
            SourceChangedError: The source did not stay as it was, so that what was read is worth
                nothing.
        """
        self._held = None
        self._stack.close()

    def close(self) -> None:
        """Let go of the source, whatever it is by now."""
        with suppress(Exception):
            self.settle()
