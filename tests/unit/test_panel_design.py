"""Designs of panels: their texts, the periods, and largest sums against all sets of periods."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Iterator
from decimal import Decimal

import pytest

from statpress.mechanisms.accounting.panel_design import LIFETIME, Design, Panel
from statpress.mechanisms.periods import SeriesPeriod

MONTHS = [
    str(SeriesPeriod.at(24_310 + number, "month")) for number in range(7)
]  # 2025-11 to 2026-05
DESIGNS = ["once", "any 2", "any 3", "2 consecutive", "3 consecutive", "2 within 3", "2 within 5"]


def sets_of(design: Design, months: list[str] = MONTHS) -> Iterator[tuple[str, ...]]:
    """Every set of months in which a person may take part, by the words of the design."""
    for size in range(min(design.most, len(months)) + 1):
        for chosen in itertools.combinations(months, size):
            span = months.index(chosen[-1]) - months.index(chosen[0]) + 1 if chosen else 0
            if design.within is None or span <= design.within:
                yield chosen


@pytest.mark.parametrize(
    ("text", "design", "written"),
    [
        ("once", Design(1), "once"),
        ("any 1", Design(1), "once"),
        ("1 consecutive", Design(1), "once"),
        ("any 8", Design(8), "any 8"),
        ("8 consecutive", Design(8, 8), "8 consecutive"),
        ("8 within 8", Design(8, 8), "8 consecutive"),
        ("8 within 16", Design(8, 16), "8 within 16"),
        ("at most 8 within 16", Design(8, 16), "8 within 16"),
        ("lifetime", LIFETIME, "lifetime"),
        ("8 consecutive months", Design(8, 8, "month"), "8 consecutive months"),
        ("any 8 of quarters", Design(8, None, "quarter"), "any 8 quarters"),
        ("any 1 year", Design(1, None, "year"), "one year"),
        ("one week", Design(1, None, "week"), "one week"),
        ("at most 2 within 3 years", Design(2, 3, "year"), "2 within 3 years"),
        ("once of months", Design(1, None, "month"), "one month"),
    ],
)
def test_a_design_has_one_text(text: str, design: Design, written: str) -> None:
    assert Design.parse(text) == design
    assert str(design) == written
    assert Design.parse(written) == design
    assert design.words.startswith("a person ")


@pytest.mark.parametrize(
    "text",
    ["", "8", "any", "any 0", "any -1", "any 08", "any 1001", "9 within 8", "8 within 1001"]
    + [
        "8 consecutives",
        "any 8 days",
        "any 8months",
        "8 of months",
        "one",
        "lifetime months",
        " any 8",
        "any 8 ",
        "any eight",
        "Any 8",
        "twice",
        "any 1e3",
    ],
)
def test_what_is_no_design_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|names more"):
        Design.parse(text)


@pytest.mark.parametrize("period", ["2026", "2026-Q3", "2026-10", "2026-W05", "2020-W53"])
def test_periods_are_counted_in_the_order_of_their_texts(period: str) -> None:
    first = SeriesPeriod.read(period)
    following = [str(SeriesPeriod.at(first.number + step, first.by)) for step in range(200)]
    assert following[0] == period
    assert following == sorted(set(following))
    numbers = [SeriesPeriod.read(each).number for each in following]
    assert numbers == [first.number + step for step in range(200)]
    assert str(first.following) == following[1]


def test_weeks_are_those_of_iso_8601() -> None:
    day = datetime.date(2019, 12, 30)
    for _ in range(300):
        year, week, _ = day.isocalendar()
        number = SeriesPeriod.read(f"{year}-W{week:02}").number
        assert str(SeriesPeriod.at(number, "week")) == f"{year}-W{week:02}"
        following = day + datetime.timedelta(days=7)
        year, week, _ = following.isocalendar()
        assert SeriesPeriod.read(f"{year}-W{week:02}").number == number + 1
        day = following


@pytest.mark.parametrize(
    "text", ["", "26", "2026-13", "2026-00", "2026-1", "2026-Q5", "2021-W53", "2026-W00"]
    + ["2026-10-05", "202610", "2026Q3", "2026-10 ", "0999", "3000", "٢٠٢٦"]
)  # fmt: skip
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"week|Invalid"):
        SeriesPeriod.read(text)


@pytest.mark.parametrize("text", [*DESIGNS, "lifetime"])
def test_largest_sums_are_those_over_all_sets(text: str) -> None:
    """Exhaustively, of every subset of seven months; also of sets with or before a month."""
    design, choose = Design.parse(text), random.Random(text)
    tried = 0
    for _ in range(60):
        charged = choose.sample(MONTHS, choose.randint(0, 7))
        amounts = {month: Decimal(choose.randint(0, 6)) / 10 for month in charged}
        for period in [None, *choose.sample(MONTHS, 2)]:
            for until in [None, *choose.sample(MONTHS, 2)]:
                sums = [
                    sum((amounts.get(month, Decimal(0)) for month in chosen), Decimal(0))
                    for chosen in sets_of(design)
                    if (period is None or period in chosen)
                    and (until is None or any(month <= until for month in chosen))
                ]
                assert design.largest(amounts, period, until) == max(sums, default=0)
                tried += 1
    assert tried == 540


def test_a_design_says_how_long_its_periods_are() -> None:
    assert Design.parse("8 consecutive quarters").words == (
        "a person takes part in at most 8 of the quarters, which follow one another on the calendar"
    )
    assert Design.parse("one week").words == "a person takes part in at most one of the weeks"


def test_of_people_who_take_part_under_one_design_only_the_earlier_ones_goes_on() -> None:
    """From any three to once: whoever took part in the old months may do so twice more."""
    amounts = {month: Decimal(number + 1) for number, month in enumerate(MONTHS)}
    panel = Panel(Design(3)).followed_by(Design(1), MONTHS[2], apart=True)
    assert panel.largest(amounts) == 3 + 6 + 7
    assert panel.words == (
        "a person takes part in at most one of the periods; whoever took part in one up to"
        " 2026-01 goes by the earlier design 'any 3'"
    )
    assert panel.largest(amounts, MONTHS[0]) == 1 + 6 + 7
    assert panel.followed_by(Design(1), MONTHS[5], apart=True) == panel
    window = Panel(Design(3, 3)).followed_by(Design(1), MONTHS[2], apart=True)
    assert window.largest(amounts) == 3 + 4 + 5  # nobody of the old months is in later ones
    assert window.largest(amounts, MONTHS[6]) == 7


def test_of_people_who_take_part_under_both_designs_all_periods_count() -> None:
    amounts = {month: Decimal(number + 1) for number, month in enumerate(MONTHS)}
    panel = Panel(Design(3)).followed_by(Design(1), MONTHS[2], apart=False)
    assert panel.largest(amounts) == 4 + 5 + 6 + 7
    assert panel.most == 4
    assert panel.words == (
        "a person takes part in at most one of the periods, and under earlier designs in at most 3"
        " besides"
    )
    third = panel.followed_by(Design(2, 2), MONTHS[4], apart=False)
    assert third.largest(amounts) == 2 + 3 + 4 + 5 + 6 + 7
    apart = panel.followed_by(Design(2, 2), MONTHS[4], apart=True)
    assert apart.largest(amounts) == 4 + 5 + 6 + 7  # four months, one of them up to the fifth
    assert apart.largest({MONTHS[0]: Decimal(1), MONTHS[6]: Decimal(1)}) == 2
    back = apart.followed_by(Design(1), MONTHS[5], apart=False)
    assert back == Panel(Design(1), besides=4)


@pytest.mark.parametrize("new", DESIGNS)
@pytest.mark.parametrize("old", DESIGNS)
def test_both_designs_together_cover_every_union_of_their_sets(old: str, new: str) -> None:
    """Of two designs of any periods exactly; with a window it may be more, and is never less."""
    one, other, choose = Design.parse(old), Design.parse(new), random.Random(f"{old} {new}")
    if one == other:
        return
    unions = {frozenset({*a, *b}) for a in sets_of(one) for b in sets_of(other)}
    panel = Panel(one).followed_by(other, MONTHS[2], apart=False)
    for _ in range(20):
        amounts = {month: Decimal(choose.randint(0, 9)) for month in MONTHS}
        for period in [None, *choose.sample(MONTHS, 2)]:
            true = max(
                sum((amounts[month] for month in union), Decimal(0))
                for union in unions
                if period is None or period in union
            )
            assert panel.largest(amounts, period) >= true
            if one.within is None and other.within is None:
                assert panel.largest(amounts, period) == true


@pytest.mark.parametrize("apart", [True, False])
def test_lifetime_leaves_no_design_behind_and_forgets_none(apart: bool) -> None:
    assert Panel().followed_by(Design(2), MONTHS[0], apart=apart) == Panel(Design(2))
    panel = Panel(Design(3)).followed_by(LIFETIME, MONTHS[1], apart=apart)
    panel = panel.followed_by(Design(2), MONTHS[2], apart=apart)
    known = Panel(Design(2), ((Design(3), MONTHS[1]),)) if apart else Panel(Design(2), besides=3)
    assert panel == known
    assert Panel(Design(3)).followed_by(Design(2), None, apart=apart) == Panel(Design(2))


@pytest.mark.parametrize("apart", [True, False])
def test_to_say_how_long_a_period_is_leaves_no_design_behind(apart: bool) -> None:
    months = Design(3, 3, "month")
    panel = Panel(Design(3, 3)).followed_by(months, MONTHS[1], apart=apart)
    assert panel == Panel(months)


def test_sums_keep_every_digit() -> None:
    small = Decimal("1e-400")
    assert Design(2).largest({"2026": Decimal(9 * 10**399), "2027": small, "2028": small}) == (
        Decimal("9" + "0" * 399 + "." + "0" * 399 + "1")
    )
