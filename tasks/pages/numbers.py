"""Numbers as a person reads them, the same on every page and on the axes of charts.

Of what a guarantee bounds, figures are rounded against the release: what an attack gains upwards,
what it misses downwards.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

from statpress.mechanisms.domain.domain import Size

MISSING = "none"
"""What stands for a number that is not there."""


def count(value: float | None) -> str:
    """A number of records, whole, with its thousands apart.

    >>> count(29501), count(-3.4), count(None)
    ('29,501', '-3', 'none')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{round(value):,}"


def how_many(n_units: int, n_records: int, size: str = "declared") -> str:
    """The public size of a source: its units first, where one can have several records.

    How many records there are is then not public, but the most that are used.

    >>> how_many(17137, 17137), how_many(5912, 17736)
    ('17,137 records', '5,912 units (up to 17,736 records)')
    >>> how_many(17137, 17137, "from_source"), how_many(17000, 17000, "rough")
    ('17,137 records, counted in the source', 'about 17,000 records')

    Args:
        n_units: Number of units.
        n_records: Number of records, at most.
        size: Where the size comes from, a ``mechanisms.domain.domain.Size``.
    """
    text = f"{n_records:,} records"
    if n_units != n_records:
        text = f"{n_units:,} units (up to {text})"
    if size == Size.ROUGH:
        return f"about {text}"
    return f"{text}, counted in the source" if size == Size.FROM_SOURCE else text


def measured(value: float | None, digits: int = 4) -> str:
    """A measured value with a few significant digits, thousands apart, no needless exponent.

    >>> measured(6.0512345), measured(1234567.8), measured(0.000123456), measured(1e-18)
    ('6.051', '1,234,568', '0.0001235', '1e-18')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -6 or magnitude > 14:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = max(0, digits - 1 - magnitude)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def share(value: float | None) -> str:
    """A share in percent.

    >>> share(0.1234), share(0.00051), share(1), share(0)
    ('12.3 %', '0.051 %', '100 %', '0 %')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{measured(100 * value, 3)} %"


def interval(lower: float | None, upper: float | None, *, whole: bool = False) -> str:
    """From a lower to an upper end, either of which may be missing.

    >>> interval(1200.4, 1310.2, whole=True), interval(None, 2.5)
    ('1,200 to 1,310', 'up to 2.5')
    """
    low, high = (number for number in (lower, upper))
    write = count if whole else measured
    if low is None and high is None:
        return "without ends"
    if low is None:
        return f"up to {write(high)}"
    if high is None:
        return f"from {write(low)}"
    return f"{write(low)} to {write(high)}"


def plain(value: float) -> str:
    """A declared value as whoever declared it would write it.

    >>> plain(4.0), plain(0.1), plain(25000.0)
    ('4', '0.1', '25000')
    """
    return f"{value:.12g}"


def size(n_bytes: int) -> str:
    """The size of a file.

    >>> size(390), size(82036), size(2108920)
    ('390 B', '82 kB', '2.1 MB')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= factor:
            return f"{measured(n_bytes / factor, 2)} {unit}"
    return f"{n_bytes} B"


def per_hundred(share: Decimal | float, rounding: str = ROUND_CEILING) -> str:
    """How many of a hundred, to a tenth; a double stands for its shortest text.

    >>> per_hundred(0.07784411), per_hundred(0.92215588, ROUND_FLOOR), per_hundred(0.05)
    ('7.8', '92.2', '5')
    """
    exact = share if isinstance(share, Decimal) else Decimal(repr(share))
    number = (exact * 100).quantize(Decimal("0.1"), rounding=rounding)
    return f"{min(max(number, Decimal(0)), Decimal(100)):f}".removesuffix(".0")


def short(value: Decimal | float, rounding: str = ROUND_CEILING, digits: int = 3) -> str:
    """Some significant digits.

    >>> short(1.23456e-07), short(0.088641, ROUND_FLOOR), short(0.0)
    ('1.24e-7', '0.0886', '0')
    """
    if value == 0:
        return "0"
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    number = Context(prec=digits, rounding=rounding).create_decimal(exact).normalize()
    plain = Decimal("0.001") <= number < 10**6
    return f"{number:f}" if plain else str(number).lower()


def amount(text: str) -> str:
    """An exact amount without trailing zeros.

    >>> amount("0.0000010"), amount("1E-8"), amount("10")
    ('0.000001', '1e-8', '10')
    """
    number = Decimal(text).normalize()
    plain = number == 0 or (number.adjusted() >= -6 and number.adjusted() < 12)
    return f"{number:f}" if plain else str(number).lower()


def at_most(share: float) -> str:
    """An upper bound on a share in percent, to two decimals; a double stands for its shortest text.

    >>> at_most(0.0942001), at_most(0.5)
    ('9.43 %', '50 %')
    """
    number = (min(Decimal(repr(share)), Decimal(1)) * 100).quantize(Decimal("0.01"), ROUND_CEILING)
    return f"{number.normalize():f} %"
