"""How true errors, which are private, are compared with what the plan promised.

For the curator's report only, which is written after the release is out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from statpress.tasks.pages.blocks import Grid, Section
from statpress.tasks.pages.numbers import count, measured, share

LARGEST = 20
"""Errors that are listed by themselves."""

if TYPE_CHECKING:
    from statpress.mechanisms.estimates.exact_values import Coverage


_ABOUT, _NEARLY = 1.5, 1.0
_RARE = 10


class Compared(NamedTuple):
    """An error next to what the plan promised; private.

    Attributes:
        what: Which error.
        promised: By the plan; empty where it promises nothing.
        true: Of this release.
        verdict: In words.
    """

    what: str
    promised: str
    true: str
    verdict: str


@dataclass(frozen=True, repr=False)
class TrueErrors:
    """A product's part of the curator's report; private, and its ``repr`` shows nothing.

    Attributes:
        compared: For the summary, the most important first.
        section: With all details.
    """

    compared: Sequence[Compared]
    section: Section

    def __repr__(self) -> str:
        return "TrueErrors()"


class Missed(NamedTuple):
    """A figure with its error, for the list of the largest."""

    where: str
    published: float
    true: float

    @property
    def error(self) -> float:
        """Its size."""
        return abs(self.published - self.true)


def compared(what: str, promised: float | None, true: float) -> Compared:
    """An error of which the plan promises the mean for a public reference.

    >>> compared("total variation", 0.02, 0.05)
    Compared(what='total variation', promised='0.02', true='0.05', verdict='2.5 times the promise')
    """
    if promised is None or not math.isfinite(promised) or not math.isfinite(true):
        return Compared(what, "", measured(true, 3), "nothing was promised")
    if promised <= 0:
        return Compared(what, "0", measured(true, 3), "as promised" if not true else "not kept")
    ratio = true / promised
    if ratio <= _NEARLY:
        verdict = "kept"
    elif ratio <= _ABOUT:
        verdict = "nearly kept"
    else:
        verdict = f"{measured(ratio, 2)} times the promise"
    return Compared(what, measured(promised, 3), measured(true, 3), verdict)


def covered(what: str, found: Coverage) -> Compared:
    """How many intervals hold the true value, against what is promised of each.

    >>> covered("cells", Coverage(88, 100)).verdict
    'more miss than promised; honest intervals do so in at most 42 of 100 releases'
    """
    bound = math.ceil(100 * found.at_most)
    verdict = "kept"
    if bound < 100:
        far = "far " if bound <= _RARE else ""
        verdict = (
            f"{far}more miss than promised; honest intervals do so in at most {bound} of 100 "
            "releases"
        )
    true = f"{count(found.inside)} of {count(found.of)}, {share(found.share)}"
    return Compared(what, share(found.level), true, verdict)


def largest_grid(missed: Iterable[Missed], title: str, unit: str) -> Grid:
    """The largest errors, folded; counts are shown whole."""
    order = sorted(missed, key=lambda each: -each.error)[:LARGEST]
    rows = [
        [each.where, measured(each.published, 6), measured(each.true, 6),
         f"{'+' if each.published >= each.true else '-'}{measured(each.error)}"]
        for each in order
    ]  # fmt: skip
    headings = ("where", f"{unit}, published", f"{unit}, true", "error")
    return Grid(headings, rows, title=title, folded=True)
