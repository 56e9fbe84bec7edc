"""Our own sentences with a few marks of Markdown, as text of a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*([^*]+)\*\*")
_EMPHASIS = re.compile(r"\*([^*]+)\*")


def marked(text: str) -> Markup:
    """Escaped text in which code, strong words and emphasis are marked.

    >>> str(marked("**54 times** in `a<b`"))
    '<strong>54 times</strong> in <code>a&lt;b</code>'
    """
    from markupsafe import Markup, escape

    found = Markup()
    for place, part in enumerate(_CODE.split(text)):
        escaped = str(escape(part))
        if place % 2:
            found += Markup(f"<code>{escaped}</code>")  # noqa: S704 -- escaped above
            continue
        escaped = _STRONG.sub(r"<strong>\1</strong>", escaped)
        escaped = _EMPHASIS.sub(r"<em>\1</em>", escaped)
        found += Markup(escaped)  # noqa: S704
    return found


def link(address: str, text: str) -> Markup:
    """A link; an address that is not of the web, of mail or of this bundle is only shown.

    >>> str(link("https://example.org/a?b&c", "here")), str(link("javascript:alert()", "here"))
    ('<a href="https://example.org/a?b&amp;c">here</a>', 'here')
    """
    from markupsafe import Markup, escape

    known = address.startswith(("https://", "http://", "mailto:", "#", "data/", "./"))
    return Markup('<a href="{}">{}</a>').format(address, text) if known else escape(text)


def code(text: str) -> Markup:
    """Text as code."""
    from markupsafe import Markup

    return Markup("<code>{}</code>").format(text)
