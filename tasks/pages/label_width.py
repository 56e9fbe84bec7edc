"""How much room the text of a chart takes."""

from __future__ import annotations

from unicodedata import east_asian_width


def inches_of(label: str, points: float) -> float:
    """Inches of a label in a font of so many points.

    The font that is measured with lacks the wide letters, which are square.

    >>> round(inches_of("men", 8.5), 2), round(inches_of("年収", 8.5), 2)
    (0.26, 0.24)
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=points)
    narrow = "".join(letter for letter in label if east_asian_width(letter) not in "WF")
    width, _, _ = TextToPath().get_text_width_height_descent(narrow, font, ismath=False)
    return float(width + points * (len(label) - len(narrow))) / 72
