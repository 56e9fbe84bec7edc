"""YAML as a person writes it: plain text where it can be, lists wrapped at 100 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from configs.yaml_changes import flow_text

WIDTH = 100
_WORDS = "true|false|null|yes|no|on|off|y|n"
_PLAIN = re.compile(rf"(?i:(?!({_WORDS})$)[^\W\d_])[\w./$%()'+&-]*( [\w./$%()'+&-]+)*(?<![-:])")
"""Text that YAML reads as text without quotes, inside brackets too."""


def listed(key: str, values: Sequence[Any]) -> list[str]:
    """A list in brackets, wrapped as the shipped configs wrap it."""
    parts = [scalar(value) for value in values]
    whole = f"    {key}: [{', '.join(parts)}]"
    if len(whole) <= WIDTH:
        return [whole]
    lines, now = [f"    {key}:"], "      ["
    for i, part in enumerate(parts):
        piece = part + ("]" if i == len(parts) - 1 else ",")
        if len(now) + len(piece) > WIDTH and now.strip() not in ("[", ""):
            lines.append(now.rstrip())
            now = "       "
        now += f"{piece} "
    return [*lines, now.rstrip()]


def flow(value: Any) -> str:
    """A value or a list of values on one line."""
    return f"[{', '.join(map(scalar, value))}]" if isinstance(value, list) else scalar(value)


def scalar(value: Any) -> str:
    """A value as YAML 1.2, the way a person would write it."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else flow_text(value)
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < 10**15:
            return str(int(value))
        written = str(value)
        if "E" not in written:
            return written
        mantissa, _, exponent = written.partition("E")
        return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{int(exponent)}"
    return flow_text(value)


def comment(text: str, indent: str = "") -> list[str]:
    """A comment, wrapped; what is not printable is left out."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(
        words, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
