"""The parameters of a mechanism as a person reads them.

``Mechanism.describe`` names all that recomputing a loss takes, for programs. Here are the labels of
those that say something to a person, and how their values are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

LABELS: Mapping[str, str] = {
    "records": "records to draw",
    "published_records": "records to publish",
    "pseudocount": "pseudocount of every cell",
    "scale": "scale of the noise",
    "blocks": "blocks of neighbouring cells",
    "uniform": "share of draws that are uniform",
    "bins": "bins of the histogram",
    "bandwidth": "bandwidth, in cells",
    "epsilon_per_record": "epsilon for each record",
    "distance": "distance to the data",
    "candidates": "candidate datasets",
    "mu": "mu of Gaussian privacy",
    "groups": "tables of several columns",
    "within_cells": "values within their cells",
    "confidence": "level of the intervals",
    "replicates": "bootstrap replicates",
    "subsamples": "subsamples",
    "subsample_size": "records of a subsample",
    "noise": "kind of noise",
    "degree": "degree of the polynomial",
    "order": "order of the iteration",
    "shape": "shape imposed",
}
"""Of what a description may hold. Others are named as they are, without underscores."""

HIDDEN = frozenset(
    {
        "quantity", "shift", "factor", "origin", "is_share", "n_columns", "statistic",
        "n_records", "square_scale", "full_scale", "part_scale", "paper_mu", "sensitivity",
        "step_bits", "variable", "lower", "upper", "sizes", "one_way_share", "screen_share",
        "most_unit_records", "design", "end_share", "part_weight", "reach_factor", "reach_addend",
    }
)  # fmt: skip
"""What only programs need, or the expected errors say already; also with a number behind."""

_NUMBERED = re.compile(r"_\d+$")
_LONG, _LONG_FRACTION = 12, 6
_OF_NOISE = "scale"


def label(name: str) -> str | None:
    """What a parameter is called before a person; None if it is not shown.

    >>> label("pseudocount"), label("shift_1"), label("own_knob")
    ('pseudocount of every cell', None, 'own knob')
    """
    plain = _NUMBERED.sub("", name)
    if plain in HIDDEN:
        return None
    return LABELS.get(plain, plain.replace("_", " "))


def figure(value: Any) -> str:
    """A value in short: thousands apart, large fractions as decimals of six digits.

    >>> figure(29501), figure("1/3"), figure("537/10000"), figure("kde")
    ('29,501', '1/3', '0.0537', 'kde')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if len(text) < (_LONG if "/" not in text else _LONG_FRACTION):
        return text
    try:
        return f"{float(Fraction(text)):.6g}"
    except (ValueError, OverflowError, ZeroDivisionError):
        return text


def shown(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The parameters of a description that are for people, without its mechanism's name.

    The noise of estimates and functions is on a grid, whose steps mean nothing by themselves.
    """
    on_a_grid = "quantity_1" in described or "step_bits" in described
    for name, value in described.items():
        words = label(name)
        if words is None or name == "mechanism" or (on_a_grid and name == _OF_NOISE):
            continue
        as_many = name == "published_records" and not value
        yield words, "as many as there are" if as_many else figure(value)
