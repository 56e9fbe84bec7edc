"""Words of a config within Markdown, shown as they were written."""

from __future__ import annotations

import re

_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>()#|!~&$"})


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> print(escaped("a|b_<i>"))
    a\|b\_\<i\>
    """
    return " ".join(text.translate(_SPECIAL).split())


def code_span(text: str) -> str:
    """Text as code; the fence is longer than any run of backticks within it (CommonMark, 6.1).

    >>> print(code_span("census"), code_span("a`b"))
    `census` ``a`b``
    """
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " * (line.startswith("`") or line.endswith("`"))
    return f"{fence}{space}{line}{space}{fence}"
