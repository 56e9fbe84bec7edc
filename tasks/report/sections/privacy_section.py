"""How well the people behind a release are protected: for everybody, then for experts."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR
from fractions import Fraction

import numpy as np

from mechanisms.accounting.trade_off import missed_by_points
from tasks.pages.blocks import Block, Chart, Fact, Facts, Gallery, Grid, Prose, Section
from tasks.pages.drawings import Bars, Curves, Line
from tasks.report import privacy_figures as figures
from tasks.report import privacy_words as said
from tasks.report.marked import marked
from tasks.report.public_words import PublicWords


def privacy_section(words: PublicWords) -> Section:
    """Protection in natural frequencies with a picture, then all figures."""
    stated = words.stated
    return Section(
        "privacy",
        "How people are protected",
        _for_everybody(stated),
        [_limits(stated), _for_experts(stated)],
    )


def _for_everybody(stated: figures.Stated) -> list[Block]:
    what, right = said.subject(stated), figures.right_guesses(stated["attack_advantage"])
    if "trade_off" in stated:
        paragraphs = [marked(text) for text in said.in_short(stated)]
    else:
        paragraphs = [
            marked(
                f"Imagine somebody who knows everything in the data but {what}, and must decide "
                "between two candidates for it, either as likely as the other. By tossing a coin "
                "they would be right 50 times in 100. With this release in hand no method is "
                f"right more than **{right} times in 100**."
            )
        ]
    names = ["by tossing a coin", "with this release", "with the data themselves"]
    chart = Chart(
        "How often an attacker guesses right, of 100 times",
        Bars(names, [50.0, float(right), 100.0], axis="right guesses of 100, at most"),
        f"Tossing a coin: 50. With this release: at most {right}. With the confidential data: 100.",
        Grid(
            ("with", "right of 100, at most"),
            [
                (names[0], "50"),
                (names[1], right),
                (names[2], "100"),
            ],
            title="Figures",
            folded=True,
        ),
    )
    return [Prose(paragraphs), chart]


def _limits(stated: figures.Stated) -> Section:
    """What is not protected, a paragraph each."""
    outside = stated.get("not_covered") or [stated["outside_the_guarantee"]]
    return Section(
        "privacy-limits", "What this does not cover", [Prose([marked(text) for text in outside])]
    )


def _for_experts(stated: figures.Stated) -> Section:
    rows = [Fact(*row) for row in figures.parameter_rows(stated)]
    blocks: list[Block] = [
        Prose([marked(text) for text in said.unit_sentences(stated)]),
        Facts(rows),
        Prose([stated["meaning"], *map(marked, said.delta_sentences(stated))]),
        Gallery([_delta_curve(stated), _trade_off(stated)]),
        *_products(stated),
    ]
    if "lifetime" in stated:
        blocks += [
            Prose([marked(text) for text in said.lifetime_sentences(stated)]),
            Grid(
                ("measure", "spent before", "by this release", "left", "limit"),
                figures.lifetime_rows(stated),
                title="What all releases of this dataset have spent",
            ),
        ]
    return Section("privacy-experts", "For experts", blocks)


def _delta_curve(stated: figures.Stated) -> Chart:
    """Delta over epsilon, both bounds."""
    points = stated["curve"]
    epsilon = [point["epsilon"] for point in points]
    bounds = [
        [point[key] if point[key] > 0 else math.nan for point in points]
        for key in ("delta_upper", "delta_lower")
    ]
    lines = [
        Line(label, epsilon, bound)
        for label, bound in zip(("guaranteed", "proven lower bound"), bounds, strict=True)
        if np.isfinite(bound).any()
    ]
    note = "Between the points that were computed the lines are straight."
    return Chart(
        "The smallest δ that holds with each ε",
        Curves(lines, "ε", "δ", log_y=bool(lines)),
        f"Delta falls from {figures.short(points[0]['delta_upper'])} at epsilon 0 to "
        f"{figures.short(points[-1]['delta_upper'])} at {figures.short(points[-1]['epsilon'])}.",
        Grid(
            ("ε", "δ is at least", "δ is at most"),
            figures.curve_rows(stated),
            title="Figures",
            folded=True,
        ),
        note,
    )


def _trade_off(stated: figures.Stated) -> Chart:
    """Misses over false alarms of the best attack that is not excluded."""
    points = [(point["epsilon"], point["delta_upper"]) for point in stated["curve"]]
    alarms = [Fraction(each, 100) for each in range(101)]
    missed = missed_by_points(points, alarms)
    lines = [
        Line("no attack is below this", [float(each) for each in alarms], missed),
        Line("tossing a coin", [0.0, 1.0], [1.0, 0.0]),
    ]
    shown = (1, 5, 10, 25, 50)
    cells = [(f"{a} %", f"{figures.per_hundred(missed[a], ROUND_FLOOR)} %") for a in shown]
    return Chart(
        "What any attack misses at least",
        Curves(lines, "false alarms", "misses", from_zero=True),
        f"With 5 % false alarms at least {cells[1][1]} are missed.",
        Grid(("false alarms", "misses, at least"), cells, title="Figures", folded=True),
        "The trade-off function, from the points of the curve of δ; the nearer to the straight "
        "line, the less an attack gains.",
    )


def _products(stated: figures.Stated) -> list[Block]:
    """Each mechanism with its loss and where it is from."""
    rows = []
    for name, product in stated["products"].items():
        alone = f"{figures.amount(product['epsilon'])} at {figures.amount(product['delta'])}"
        rows.append((name, product["mechanism"], alone, figures.cited(stated, name)))
    return [
        Grid(("product", "mechanism", "ε at δ, alone", "source"), rows, title="Mechanisms"),
        Prose(
            [
                *map(marked, said.composition_sentences(stated)),
                marked(f"*ε at δ, alone:* {figures.EXPLANATIONS['products.epsilon']}"),
            ],
            "note",
        ),
    ]
