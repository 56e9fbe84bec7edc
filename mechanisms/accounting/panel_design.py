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

**A changed design** carries every earlier charge over. Whoever took part in a period up to the last
one that was charged before the change may have been recruited under the earlier design and may take
part as that one says; everybody else as the new one says. So the family in force is that of the
new design, together with the sets of each earlier one that have a period up to its last.
So a design is changed once the last period with people of the earlier one was charged.
``lifetime``, which says nothing of anybody, leaves none behind: the design that follows it is one
of all periods, those before it as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from functools import lru_cache

from statpress.mechanisms.periods import SeriesPeriod

_EXACT = Context(prec=2000, Emin=-2000, Emax=2000, traps=[Inexact, InvalidOperation])
_MOST = 1000
_DESIGN = re.compile(r"(?:at most )?([1-9][0-9]{0,3}) within ([1-9][0-9]{0,3})")
_SHORT = re.compile(r"(once)|any ([1-9][0-9]{0,3})|([1-9][0-9]{0,3}) consecutive")


@dataclass(frozen=True, slots=True)
class Design:
    """In how many periods a person takes part at most.

    Attributes:
        most: The number of periods.
        within: All of them lie within so many periods that follow one another on the calendar;
            None if they may lie anywhere.
    """

    most: int
    within: int | None = None

    @classmethod
    def parse(cls, text: str) -> Design:
        """The design that a text names.

        Args:
            text: ``once``, ``any 8``, ``8 consecutive``, ``8 within 16`` or ``lifetime``.

        Raises:
            ValueError: It names none.

        >>> Design.parse("at most 8 within 8")
        Design(most=8, within=8)
        """
        if text == "lifetime":
            return LIFETIME
        if found := _SHORT.fullmatch(text):
            most = int(found[2] or found[3] or 1)
            within = most if found[3] else None
        elif found := _DESIGN.fullmatch(text):
            most, within = int(found[1]), int(found[2])
        else:
            raise ValueError("is not 'once', 'any 8', '8 consecutive', '8 within 16' or 'lifetime'")
        if most > (within or _MOST) or (within or 1) > _MOST:
            raise ValueError(f"names more periods than it has, or more than {_MOST:,}")
        return cls(most, None if most == 1 else within)

    def __str__(self) -> str:
        if self == LIFETIME:
            return "lifetime"
        if self.most == 1:
            return "once"
        if self.within is None:
            return f"any {self.most}"
        return f"{self.most} " + ("consecutive" if self.runs_on else f"within {self.within}")

    @property
    def runs_on(self) -> bool:
        """Whether a person's periods follow one another."""
        return self.most == self.within

    @property
    def words(self) -> str:
        """What it says of a person, as a clause."""
        if self == LIFETIME:
            return "a person may take part in every period"
        if self.most == 1:
            return "a person takes part in at most one of the periods"
        clause = f"a person takes part in at most {self.most} of the periods"
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
        earlier: Each earlier one, with the last period that was charged when it was replaced.
    """

    design: Design = LIFETIME
    earlier: tuple[tuple[Design, str], ...] = ()

    def followed_by(self, design: Design, last_period: str | None) -> Panel:
        """The panel once another design is in force.

        Args:
            design: The new one.
            last_period: The last period that was charged before; None if none was.
        """
        if self.design in (LIFETIME, design) or last_period is None:
            return Panel(design, self.earlier)  # lifetime says nothing of a person
        return Panel(design, (*self.earlier, (self.design, last_period)))

    @property
    def words(self) -> str:
        """What it says of a person, as a clause."""
        earlier = (
            f"; whoever took part in one up to {until} goes by the earlier design '{design}'"
            for design, until in self.earlier
        )
        return self.design.words + "".join(earlier)

    def largest(self, amounts: Mapping[str, Decimal], period: str | None = None) -> Decimal:
        """As of ``Design.largest``, over the sets of the design in force and the earlier ones."""
        before = (design.largest(amounts, period, until) for design, until in self.earlier)
        return max((self.design.largest(amounts, period), *before))
