"""The widths and colours in which a test looks at a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from browser import Browser


def looks(widths: Sequence[int], full: bool) -> list[tuple[int, str]]:
    """Return the widths and schemes to look at: a narrow dark and a wide light one, or all.

    Args:
        widths: Of the window, from the narrowest to the widest.
        full: Whether to look at all.
    """
    if full:
        return [(width, scheme) for width in widths for scheme in ("light", "dark")]
    return [(widths[0], "dark"), (widths[-1], "light")]


def look_at(
    browser: Browser, widths: Sequence[int], full: bool, pictures: Path | None, name: str
) -> None:
    """Check that the page that is shown never scrolls sideways, and that the night is dark.

    Args:
        browser: Shows the page.
        widths: Of the window, from the narrowest to the widest.
        full: Whether to look at all of them in both schemes.
        pictures: Where pictures are kept, if they are.
        name: Of the pictures, before width and scheme.
    """
    papers = set()
    for width, scheme in looks(widths, full):
        browser.look(width, scheme)
        assert_fits(browser, width)
        papers.add(browser.run("getComputedStyle(document.body).backgroundColor"))
        if pictures and (scheme == "light" or width == widths[0]):  # else only colours are others
            browser.photograph(pictures / f"{name}{width}-{scheme}.png")
    assert len(papers) == 2


def assert_fits(browser: Browser, width: int) -> None:
    """Check that the page is as wide as the window, which is so wide."""
    shown, inner = browser.run("[document.documentElement.scrollWidth, innerWidth]")
    assert shown <= inner == width, "it scrolls sideways"
