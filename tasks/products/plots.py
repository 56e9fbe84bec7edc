"""Plots of a bundle, as PNG; the library for them is an extra."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (7.0, 4.5)  # inches
_DOTS = 120


def check_plots(where: str) -> None:
    """Refuse to begin where plots are wanted and cannot be drawn.

    Raises:
        ConfigError: The extra is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "The plots of this product need the extra 'plots', which is not installed.",
            where=where,
            next_step="Install statpress[plots], or write 'plots: false' under 'publish'.",
        )


def drawn_to(folder: Path, name: str, draw: Callable[[Figure], None]) -> Path:
    """Draw a figure into ``plots/NAME.png`` of a bundle; the same figure gives the same bytes."""
    from matplotlib import rc_context, rcdefaults, rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    (folder / "plots").mkdir(exist_ok=True)
    path = folder / "plots" / f"{name}.png"
    with rc_context():
        rcdefaults()  # whatever the user's own settings say
        # A column named "$ a month" is no formula; nor may one stop a run that was charged.
        rcParams["text.parse_math"] = False
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(path, dpi=_DOTS, metadata={"Software": None})
    return path
