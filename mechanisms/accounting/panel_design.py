"""Designs of panels: in which periods a person takes part at most, and the loss that this bounds.

In a rotating panel a person is interviewed in a few periods and then leaves, by public design. So
not every charge of the account is theirs, and a filter need not add up all of them.

**Neighbours** are two histories that differ in the records of one person, in every period that the
person takes part in. These periods are the same under both for the same outputs: that somebody
takes part is no secret. It may depend on earlier outputs, but not on what the person's records say.

**Theorem** (mechanisms/README.md, Theorem 7.3). Let 𝒮 be a family of sets of periods, fixed
beforehand, such that the periods in which anybody takes part are those of some set of 𝒮, or fewer.
Let a filter refuse every charge after which, for some set of 𝒮, the charges of its periods and
those that name no period add up to more than the limit (of rho; or of epsilon and of delta, each by
itself). Then all releases together are within the limit, although each charge may depend on the
outputs before it.

*Proof.* Fix the outputs so far. In a period without the person both histories hold the same
records, so what is released of it has the same distribution under both: its loss is 0, whatever
was charged. Hence the loss of the next release is at most its charge if it names no period or one
of the person's, and 0 otherwise. At all times these losses add up to at most the charges of the
person's periods and those without a period. The person's periods lie in one set of 𝒮, so that the
filter keeps this sum within the limit with certainty, whatever the outputs are. That is what the
filters of both policies ask for, in which neighbours may be chosen for each release by the outputs
before it, and may be equal (Rogers, Roth, Ullman and Vadhan 2016, arXiv 1605.08294; Feldman and
Zrnic 2021, arXiv 2008.11193; Whitehouse, Ramdas, Rogers and Wu 2023, arXiv 2203.05481, Theorem
1). ∎

The bound is attained: a person in the periods of the heaviest set loses what the filter counts.

**Families.** ``Design(most=k)`` has all sets of k periods; its largest sum is that of the k largest
periods. ``Design(most=k, within=L)`` has those sets of k periods that lie within L periods that
follow one another on the calendar, whether each of them was released or not; its largest sum is the
largest, over these windows, of the k largest in one. A charge counts for the period that its *data*
are of. Counted by the date of release, a person whose periods are all released again in one year
would be charged once for many.

**A length of the periods.** A design may say that its periods are years, quarters, months or weeks:
``Design(most=8, within=8, by="month")``. Charges for periods of another length are then refused,
which would count apart. Without it the first charge decides.

**A changed design** carries every earlier charge over. A person may take part under the earlier
design and then, as somebody new, under the one that follows it. Under the one these are at most k
periods, wherever they lie, and under the other at most k′, so that all of them together are a set
of at most k + k′ periods: 𝒮 is that of ``Design(most=k + k′)``, which is fixed when the design is
changed, and the theorem holds as it stands. It asks nothing of the time at which the change is
made, and for two designs of any periods the bound is attained.

Where it is declared that nobody takes part under both (``apart``), 𝒮 has the sets of the new
design, together with those before that have a period up to the last one that was charged before
the change: whoever took part in such a period goes on by the earlier design, everybody else by the
new one. That is narrower, and right only if nobody takes part under the earlier design who is in no
period up to that one.

``lifetime``, which says nothing of anybody, leaves nothing behind, and neither does a design under
which no period was charged: the design that follows is one of all periods. A design that says of
another how long its periods are is that one still.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from functools import lru_cache

from statpress.mechanisms.periods import FREQUENCIES, Frequency, SeriesPeriod

_EXACT = Context(prec=2000, Emin=-2000, Emax=2000, traps=[Inexact, InvalidOperation])
_MOST = 1000
_NUMBER = "([1-9][0-9]{0,3})"
_BY = f" (?:of )?(?P<by>{'|'.join(FREQUENCIES)})s?"
_DESIGN = re.compile(f"(?:at most )?{_NUMBER} within {_NUMBER}(?:{_BY})?")
_SHORT = re.compile(f"(?:(once)|any {_NUMBER}|{_NUMBER} consecutive)(?:{_BY})?")
_ONE = re.compile(f"one{_BY}")
FORMS = "'once', 'any 8 months', '8 consecutive months', '8 within 16 months' or 'lifetime'"
"""How designs are written; instead of months also years, quarters, weeks, or nothing."""


@dataclass(frozen=True, slots=True)
class Design:
    """In how many periods a person takes part at most.

    Attributes:
        most: The number of periods.
        within: All of them lie within so many periods that follow one another on the calendar;
            None if they may lie anywhere.
        by: How long a period is; None if the first charge decides.
    """

    most: int
    within: int | None = None
    by: Frequency | None = None

    @classmethod
    def parse(cls, text: str) -> Design:
        """The design that a text names.

        Args:
            text: ``once``, ``any 8``, ``8 consecutive``, ``8 within 16``, each perhaps with
                ``years``, ``quarters``, ``months`` or ``weeks``; or ``lifetime``.

        Raises:
            ValueError: It names none.

        >>> Design.parse("at most 8 within 8 months")
        Design(most=8, within=8, by='month')
        """
        if text == "lifetime":
            return LIFETIME
        within: int | None = None
        if found := _ONE.fullmatch(text):
            most = 1
        elif found := _SHORT.fullmatch(text):
            most = int(found[2] or found[3] or 1)
            within = most if found[3] else None
        elif found := _DESIGN.fullmatch(text):
            most, within = int(found[1]), int(found[2])
        else:
            raise ValueError(f"is not {FORMS}")
        if most > (within or _MOST) or (within or 1) > _MOST:
            raise ValueError(f"names more periods than it has, or more than {_MOST:,}")
        by = next((each for each in FREQUENCIES if each == found["by"]), None)
        return cls(most, None if most == 1 else within, by)

    def __str__(self) -> str:
        if self == LIFETIME:
            return "lifetime"
        if self.most == 1:
            return f"one {self.by}" if self.by else "once"
        unit = f" {self.by}s" if self.by else ""
        if self.within is None:
            return f"any {self.most}{unit}"
        return f"{self.most} " + ("consecutive" if self.runs_on else f"within {self.within}") + unit

    @property
    def runs_on(self) -> bool:
        """Whether a person's periods follow one another."""
        return self.most == self.within

    @property
    def words(self) -> str:
        """What it says of a person, as a clause."""
        if self == LIFETIME:
            return "a person may take part in every period"
        periods = f"{self.by or 'period'}s"
        if self.most == 1:
            return f"a person takes part in at most one of the {periods}"
        clause = f"a person takes part in at most {self.most} of the {periods}"
        if self.within is None:
            return clause
        if self.runs_on:
            return f"{clause}, which follow one another on the calendar"
        return f"{clause}, within {self.within} that follow one another on the calendar"

    def largest(
        self, amounts: Mapping[str, Decimal], period: str | None = None, until: str | None = None
    ) -> Decimal:
        """The largest sum over the sets of periods in which a person may take part.

        Args:
            amounts: Non-negative, by period.
            period: Only sets that have this period.
            until: Only sets that have a period no later than this one.

        Returns:
            The sum, exactly; 0 if there is no such set.
        """
        if until:
            amounts = {until: Decimal(0), **amounts}  # one may take part where nothing is charged
        with localcontext(_EXACT):
            windows = self._windows(amounts, period)
            return max((self._heaviest(w, period, until) for w in windows), default=Decimal(0))

    def _windows(
        self, amounts: Mapping[str, Decimal], period: str | None
    ) -> Iterator[Mapping[str, Decimal]]:
        """The amounts in each stretch of periods that all of a person's may lie in."""
        length = self.within
        if length is None:
            yield amounts
            return
        if period is None:
            stretches = (_stretch(first, 0, length) for first in amounts)
        else:
            near = _stretch(period, 1 - length, length)
            stretches = (
                near[start : start + length]
                for start in range(length)
                if start == 0 or near[start + length - 1] in amounts  # else the one before has all
            )
        for stretch in stretches:
            yield {each: amounts[each] for each in stretch if each in amounts}

    def _heaviest(
        self, amounts: Mapping[str, Decimal], period: str | None, until: str | None
    ) -> Decimal:
        """The largest sum of ``most`` of these amounts that fulfil the conditions."""
        own = amounts.get(period, Decimal(0)) if period else None
        if until and not (period and period <= until):
            early = [name for name in amounts if name <= until]
            if not early or (period and self.most == 1):
                return Decimal(0)
            first = max(early, key=amounts.__getitem__)
            rest = {name: each for name, each in amounts.items() if name != first}
            return amounts[first] + Design(self.most - 1)._heaviest(rest, period, None)
        top = sorted(amounts.values(), reverse=True)[: self.most]
        if own is not None and len(top) == self.most and own < top[-1]:
            top[-1] = own
        return sum(top, Decimal(0))


LIFETIME = Design(2**63 - 1)
"""Of a person who may take part in every period: all charges add up."""


@lru_cache(maxsize=4096)
def _stretch(period: str, start: int, end: int) -> tuple[str, ...]:
    """The periods from ``start`` to before ``end``, counted from a period."""
    read = SeriesPeriod.read(period)
    return tuple(str(SeriesPeriod.at(read.number + step, read.by)) for step in range(start, end))


@dataclass(frozen=True, slots=True)
class Panel:
    """A design in force, with those that it replaced.

    Attributes:
        design: In force.
        earlier: Each earlier one whose people take part under no other, with the last period that
            was charged when it was replaced.
        besides: In how many periods a person may take part under earlier designs besides.
    """

    design: Design = LIFETIME
    earlier: tuple[tuple[Design, str], ...] = ()
    besides: int = 0

    def followed_by(self, design: Design, last_period: str | None, *, apart: bool) -> Panel:
        """The panel once another design is in force.

        Args:
            design: The new one.
            last_period: The last period that was charged before; None if none was.
            apart: Whether nobody takes part both under an earlier design and under the new one.
        """
        same = replace(self.design, by=design.by) == design
        alone = self.design == LIFETIME and (apart or not self.earlier)
        if same or alone or last_period is None:
            return replace(self, design=design)  # lifetime says nothing of a person
        if apart:
            return Panel(design, (*self.earlier, (self._whole, last_period)))
        own = self.besides if self.design == LIFETIME else self.most
        return Panel(design, besides=max(own, *(each.most for each, _ in self.earlier), 0))

    @property
    def most(self) -> int:
        """In how many periods a person takes part at most who is in the design in force."""
        return self.design.most + self.besides

    @property
    def reach(self) -> int:
        """Periods after which more of the same charge no person more."""
        return max(self.most, self.design.within or 0)

    @property
    def _whole(self) -> Design:
        """The design that has all sets of periods of whoever is in the one in force."""
        return replace(self.design, most=self.most, within=None) if self.besides else self.design

    @property
    def words(self) -> str:
        """What it says of a person, as a clause."""
        words = self.design.words
        if self.besides and self.design != LIFETIME:
            words += f", and under earlier designs in at most {self.besides} besides"
        earlier = (
            f"; whoever took part in one up to {until} goes by the earlier design '{design}'"
            for design, until in self.earlier
        )
        return words + "".join(earlier)

    def largest(self, amounts: Mapping[str, Decimal], period: str | None = None) -> Decimal:
        """As of ``Design.largest``, over the sets of the design in force and the earlier ones."""
        before = (design.largest(amounts, period, until) for design, until in self.earlier)
        return max((self._whole.largest(amounts, period), *before))
