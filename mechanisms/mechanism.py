"""What every mechanism offers, and what a kind of product is to the planner.

* ``Mechanism`` is all that the planner, the schema and the flow use of a mechanism.
* ``Target`` is the budget that a mechanism is calibrated to.
* ``Kind`` says what a config may leave open, how mechanisms are compared, and how their expected
  errors are worded; there is one value for each kind. Nobody else asks which kind a product is of.
* ``Citation`` is where a guarantee is proven: a work, or a place in one. Every work stands in the
  references of mechanisms/README.md, with the same DOI or arXiv number.
* ``label``, ``figure`` and ``shown`` put parameters into words. ``Mechanism.describe`` names all
  that recomputing a loss takes, for programs; here are the labels of those that say something to a
  person, and how their values are written.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss, PureLoss
from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError

if TYPE_CHECKING:
    from statpress.mechanisms.sampling.randomness import Progress, Randomness


@dataclass(frozen=True)
class Citation:
    """A work, or a place in one.

    Attributes:
        work: Authors, year and title.
        doi: Its DOI, empty if it has none.
        arxiv: Its arXiv number, empty if it has none.
        part: The place: theorem, algorithm or section; empty for the whole work.
    """

    work: str
    doi: str = ""
    arxiv: str = ""
    part: str = ""

    def at(self, part: str) -> Citation:
        """A place in the work."""
        return replace(self, part=part)

    def describe(self) -> dict[str, str]:
        """The fields that are not empty, by name."""
        return {name: value for name, value in vars(self).items() if value}


OF_A_SECTION: Mapping[str, bool] = {"of a section": True}
"""Metadata of a knob that a section of the config sets, and no key of the product."""


IMPLIES_NOTHING: Mapping[str, bool] = {"implies nothing": True}
"""Metadata of a knob that another mechanism is meant by, where a product names none."""


def own_keys(knobs: type) -> list[Field[Any]]:
    """The knobs that are keys of a product."""
    return [each for each in fields(knobs) if each.metadata != OF_A_SECTION]


PROOF = Citation("statpress, mechanisms/README.md: methods, guarantees and proofs")
"""Proofs of this project's own, by section and theorem."""

ALDA_RUBINSTEIN = Citation("Aldà and Rubinstein 2017, The Bernstein mechanism", arxiv="1507.04499")
BALLE_BARTHE_GABOARDI = Citation(
    "Balle, Barthe and Gaboardi 2018, Privacy amplification by subsampling", arxiv="1807.01647"
)
BALLE_WANG = Citation("Balle and Wang 2018, Improving the Gaussian mechanism", arxiv="1805.06530")
CANONNE_KAMATH_STEINKE = Citation(
    "Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy",
    arxiv="2004.00010",
)
CESAR_ROGERS = Citation(
    "Cesar and Rogers 2021, Bounding, concentrating, and truncating", arxiv="2004.07223"
)
DELVING = Citation("Delving into Bootstrapping for Differential Privacy, under review")
DONG_ROTH_SU = Citation(
    "Dong, Roth and Su 2022, Gaussian differential privacy", doi="10.1111/rssb.12454"
)
DWORK = Citation(
    "Dwork, McSherry, Nissim and Smith 2006, Calibrating noise to sensitivity",
    doi="10.1007/11681878_14",
)
GHOSH = Citation(
    "Ghosh, Roughgarden and Sundararajan 2012, Universally utility-maximizing privacy mechanisms",
    arxiv="0811.2841",
)
HAY = Citation(
    "Hay, Rastogi, Miklau and Suciu 2010, Boosting the accuracy of differentially private"
    " histograms",
    arxiv="0904.0942",
)
MCSHERRY_TALWAR = Citation("McSherry and Talwar 2007, Mechanism design via differential privacy")
SMITH = Citation(
    "Smith 2011, Privacy-preserving statistical estimation with optimal convergence rates",
    doi="10.1145/1993636.1993743",
)
SMITH_THAKURTA = Citation(
    "Smith and Thakurta 2022, Fully adaptive composition for Gaussian differential privacy",
    arxiv="2210.17520",
)
WANG_CHENG_AWAN = Citation(
    "Wang, Cheng and Awan 2022, Differentially private bootstrap", arxiv="2210.06140"
)
WASSERMAN_ZHOU = Citation(
    "Wasserman and Zhou 2010, A statistical framework for differential privacy",
    doi="10.1198/jasa.2009.tm08651",
)


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
    "always": "columns whose pairs are all measured",
    "within_cells": "values within their cells",
    "confidence": "level of the intervals",
    "replicates": "bootstrap replicates",
    "subsamples": "subsamples",
    "subsample_size": "records of a subsample",
    "noise": "kind of noise",
    "degree": "degree of the polynomial",
    "order": "order of the iteration",
    "shape": "shape imposed",
    "per": "what counts one",
}
"""Of what a description may hold. Others are named as they are, without underscores."""

HIDDEN = frozenset(
    {
        "quantity", "shift", "factor", "origin", "is_share", "n_columns", "statistic",
        "n_records", "square_scale", "full_scale", "part_scale", "paper_mu", "sensitivity",
        "step_bits", "variable", "lower", "upper", "sizes", "one_way_share", "screen_share",
        "most_unit_records", "design", "end_share", "part_weight", "reach_factor", "reach_addend",
        "of_unit", "rounded", "categories", "of_some", "count_scale", "level_tables",
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
    private = described.get("adjacency") == Adjacency.ADD_REMOVE
    as_many = "as many as the noisy counts say" if private else "as many as there are"
    for name, value in described.items():
        words = label(name)
        if words is None or name == "mechanism" or (on_a_grid and name == _OF_NOISE):
            continue
        yield words, as_many if name == "published_records" and not value else figure(value)


@dataclass(frozen=True)
class UserDefined:
    """A user's own statistic or function; it is imported where configs are read, never here.

    Two of the same name are equal, since the object itself may not be hashable.

    Attributes:
        name: ``module:name``.
        value: The object.
    """

    name: str
    value: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PlacedBy:
    """Where the places of a product's records come from: a product that a config names.

    Attributes:
        product: Its name; it has tables of places (mechanisms.places).
        column: That of places, which is published as the last of the records' columns.
    """

    product: str
    column: Column

    def added_to(self, domain: Domain) -> Domain:
        """The columns of the records with that of their places behind."""
        return replace(domain, columns=(*domain.columns, self.column))


Variant = tuple[str, "type[Mechanism]", Any]
"""A mechanism that could serve a product: its label, its class, its knobs."""


TYPICAL_ASSOCIATION = 0.15
"""Cramér's V of relations that readers of records look for."""

MOST_NOISE = 0.25
"""Share of what can be read of a product that noise may be, before it is mostly noise."""


@dataclass(frozen=True)
class NoiseFigure:
    """How much of what will be read of a product is noise, from public quantities only.

    Attributes:
        words: What the figure is.
        value: 0 (none of it) to 1.
    """

    words: str
    value: float


class ExpectedError(Protocol):
    """What an analyst can expect of a product, from public quantities only; a dataclass."""

    def deciding(self, criterion: str) -> float:
        """The figure that decides between mechanisms; infinite where there is none."""

    def rows(self) -> Iterable[tuple[str, str]]:
        """Every figure as a person reads it: its label and its value with its unit."""

    def summary(self) -> str:
        """The most important figures in one line."""


class Kind:
    """A kind of product, as the planner sees it.

    Attributes:
        name: As in a config.
        left_open: Knobs of a product whose mechanism is left open, a frozen dataclass.
        may_omit: Whether a config may leave out ``mechanism`` instead of writing ``auto``.
        criteria: The errors by which its mechanisms are compared, each with its label.
        compared: Fields of its expected errors by which two plans are compared, likewise.
        user_defined: What an object is that a config names under ``function``; may be empty.
        further: What a config may say of what is published besides, whatever the mechanism: a
            frozen dataclass whose fields all have defaults; None if it may say nothing.
    """

    name: str
    left_open: type
    may_omit: bool
    criteria: Mapping[str, str]
    compared: Mapping[str, str]
    user_defined: str = ""
    further: type | None = None

    def __repr__(self) -> str:
        return self.name

    def criterion(self, knobs: Any) -> str:
        """The one of the ``criteria`` that decides, by what a config says; the first by default."""
        del knobs
        return next(iter(self.criteria), "")

    def judged_by(self, first: str, error: ExpectedError) -> str:
        """A criterion, or the first of which the error is known where that of this one is not."""
        known = (each for each in self.criteria if math.isfinite(error.deciding(each)))
        return first if math.isfinite(error.deciding(first)) else next(known, first)

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        """What could serve a product, with defaults for what the config does not say.

        Args:
            knobs: What the config says; those of ``left_open``, or of a mechanism.
            serving: The mechanisms that serve this kind.
        """
        for mechanism in serving:
            yield mechanism.name, mechanism, knobs

    def draws(self, mechanism: Any, n_cells: int) -> int:
        """How many records or noisy cells are drawn, for a progress bar; 0 if that is quick."""
        del mechanism, n_cells
        return 0

    def check(self, knobs: Any, target: Target) -> None:
        """Refuse what no mechanism can serve.

        Raises:
            ConfigError: The columns do not suit what is asked for.
        """
        del knobs, target  # by default every mechanism is tried

    def check_knobs(self, knobs: Any) -> None:
        """Refuse what a config says of a mechanism for products of another kind.

        Raises:
            ConfigError: Products of this kind have no such thing.
        """
        del knobs

    def objection(self, mechanism: Any, target: Target) -> str:
        """Why a mechanism at these parameters is never chosen for a product; may be empty."""
        del mechanism, target
        return ""

    def expected_error(self, mechanism: Mechanism, target: Target) -> ExpectedError:
        """The expected error by which a mechanism at fixed parameters is compared."""
        return stated_error(mechanism, target)

    def check_further(self, further: Any, domain: Domain, nulls: bool) -> None:
        """Refuse what cannot be published besides.

        Only asked if the config says something of it; what holds by default is for
        ``ProductKind.check`` to refuse.

        Args:
            further: What the config says, a value of ``further``.
            domain: The product's columns.
            nulls: Whether a column without a cell for them may have nulls.

        Raises:
            ConfigError: The columns do not suit it.
        """
        del further, domain, nulls

    def check_served(self, further: Any, mechanism: Any, target: Target) -> None:
        """Refuse what a mechanism at fixed parameters cannot publish besides.

        Raises:
            ConfigError: The mechanism cannot serve it.
        """
        del further, mechanism, target

    def with_further(
        self, error: ExpectedError, further: Any, mechanism: Any, target: Target
    ) -> ExpectedError:
        """The expected error, with what can be expected of what is published besides.

        Raises:
            ConfigError: The mechanism cannot serve it.
        """
        del further, mechanism, target
        return error

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """The error from noise of what an analyst will read; None where it is not known.

        Args:
            mechanism: At fixed parameters.
            error: What it expects, as the plan has it.
            target: With the public quantities.
        """
        del mechanism, error, target
        return None

    def largest_noise(self, error: Any) -> float | None:
        """Standard deviation in records of the noisiest count; None if there are no counts."""
        del error
        return None

    def label(self, mechanism: Mechanism) -> str:
        """The label of the variant that a mechanism at fixed parameters is."""
        return mechanism.name

    def extra_columns(self, knobs: Any) -> tuple[str, ...]:
        """Columns that a product needs besides those it names: its knobs' ``columns_beside``."""
        columns: tuple[str, ...] = getattr(knobs, "columns_beside", ())
        return columns

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        """The rows of an expected error, and what a reader has to know of the mechanism."""
        yield from error.rows()


def in_words(rows: Iterable[tuple[str, str]]) -> str:
    """The rows of an expected error on one line."""
    return "; ".join(f"{label} {value}" for label, value in rows)


_FIRST, _LAST, _DIGITS = -9, 6, 12  # powers of ten and digits of a pure epsilon
_ASKED = 1 << 14  # answers of losses that are kept
_SMALLEST_MU, _LARGEST_MU = 2.0**-30, 2.0**6


@dataclass(frozen=True, kw_only=True)
class Target:
    """A budget to meet, with the public quantities that decide what it buys.

    Attributes:
        epsilon: To be met at ``delta``.
        delta: At least 0.
        n_cells: Number of possible cells, the absent one included.
        rho: If given, the budget is this much of zero-concentrated privacy instead.
        rho_delta: But for which that has to hold.
        renyi: If given, it is a Rényi divergence instead, of the curves that will be composed:
            the order, above 1, and the most.
        shape: Number of codes of each column, for mechanisms that know cells as places;
            empty for the cells of one column, (0,) if not all combinations are cells or
            not all cells are combinations.
        domain: The product's columns, for mechanisms that go by their values.
        adjacency: The neighbouring relation, which only mechanisms that list it among their
            ``adjacencies`` need to heed.
        expected_records: About how many of the records are there, the others being absent; None
            if nothing is known of it.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    n_records: int
    n_cells: int
    unit_records: int = 1
    rho: float | None = None
    rho_delta: float = 0.0
    renyi: tuple[int, float] | None = None
    shape: tuple[int, ...] = ()
    domain: Domain | None = None
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    expected_records: int | None = None

    @property
    def n_there(self) -> int:
        """About how many records are there, as far as it is known."""
        return self.expected_records or self.n_records

    @property
    def frame(self) -> dict[str, int]:
        """The public quantities, as ``Mechanism.loss`` takes them."""
        return {
            "n_records": self.n_records,
            "n_cells": self.n_cells,
            "unit_records": self.unit_records,
        }

    def allows(self, loss: PrivacyLoss) -> bool:
        """Whether a loss is proven to be within the budget."""
        if self.rho is not None:
            return _rho_but_for(loss, self.rho_delta) <= self.rho
        if self.renyi is not None:
            order, most = self.renyi
            return _divergence(loss, order) <= most
        if not self.delta and self.epsilon < loss.pure_epsilon.lower:
            return False  # and so would its delta say, which is above 0
        return _delta(loss, self.epsilon) <= self.delta

    def pure_epsilon(self, loss: Callable[[Fraction], PrivacyLoss] = PureLoss) -> Decimal:
        """Largest epsilon per record that a pure guarantee may have, to twelve digits below.

        A unit of c records is charged c times this.

        Args:
            loss: What is charged for an epsilon: ``BoundedRangeLoss`` where the range of the loss
                is proven to be at most that.

        Raises:
            InfeasibleBudgetError: The budget does not allow 1e-9.
        """
        return _largest_pure_epsilon(self._budget, loss)

    def largest_mu(self) -> Fraction:
        """The largest mu for which mu-GDP is proven to be within the budget, to one in 10^9.

        Raises:
            InfeasibleBudgetError: The budget allows none; without delta no Gaussian noise does.
        """
        return _largest_mu(self._budget)

    @property
    def _budget(self) -> Target:
        """Without the table: all that ``allows`` goes by, and the unit."""
        return replace(self, n_records=1, n_cells=1, shape=(), domain=None)

    def grid(self, mechanism: str, *, columns: int | None = None, instead: str) -> tuple[int, ...]:
        """Number of codes of each column, whose combinations must all be cells.

        Args:
            mechanism: For whom.
            columns: Most columns that it can serve, by default any number.
            instead: What could serve a product that it cannot.

        Raises:
            ConfigError: The mechanism cannot serve this product.
        """
        shape = self.shape or (self.n_cells,)
        problem = ""
        if math.prod(shape) != self.n_cells:
            problem = "knows no cells that are impossible or stand for no value"
        elif columns is not None and len(shape) > columns:
            problem = f"serves products of only {columns} column, whose order it goes by"
        if problem:
            raise ConfigError(f"The mechanism '{mechanism}' {problem}.", next_step=instead)
        return shape


@functools.lru_cache(maxsize=256)
def _largest_pure_epsilon(budget: Target, loss: Callable[[Fraction], PrivacyLoss]) -> Decimal:
    """The largest pure epsilon, found once for all products of one budget."""

    def fits(epsilon: Decimal) -> bool:
        return budget.allows(loss(Fraction(epsilon) * budget.unit_records))

    powers = [p for p in range(_FIRST, _LAST + 1) if fits(Decimal(1).scaleb(p))]
    if not powers:
        raise InfeasibleBudgetError("The budget does not allow an epsilon of 1e-9 a record.")
    place = powers[-1] - _DIGITS + 1
    low, high = 10 ** (_DIGITS - 1), 10**_DIGITS
    while powers[-1] < _LAST and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(Decimal(middle).scaleb(place)) else (low, middle)
    return Decimal(low).scaleb(place).normalize()


@functools.lru_cache(maxsize=256)
def _largest_mu(budget: Target) -> Fraction:
    """The largest mu, found once for all products of one budget."""

    def fits(mu: float) -> bool:
        return budget.allows(GaussianLoss(Fraction(mu)))

    low, high = _SMALLEST_MU, _LARGEST_MU
    if not fits(low):
        raise InfeasibleBudgetError(
            "The budget does not allow Gaussian noise, which needs a delta above 0 (or a rho)."
        )
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Fraction(low)


@functools.lru_cache(maxsize=_ASKED)
def _rho_but_for(loss: PrivacyLoss, delta: float) -> float:
    """Cached rho that is proven but for delta; every product of a plan asks for it."""
    return loss.approximate_rho(delta).rho.upper


@functools.lru_cache(maxsize=_ASKED)
def _divergence(loss: PrivacyLoss, order: int) -> float:
    """Cached Rényi divergence of a loss's curve."""
    return loss.renyi_of_curve(order).upper


@functools.lru_cache(maxsize=_ASKED)
def _delta(loss: PrivacyLoss, epsilon: float) -> float:
    """Cached delta at epsilon."""
    return loss.delta(epsilon).upper


MOST_COPIES = 100
"""Of the records of one product."""


def check_copies(copies: int) -> None:
    """Refuse a number of copies that cannot be.

    Raises:
        ConfigError: It is not from 1 to ``MOST_COPIES``.
    """
    if not 1 <= copies <= MOST_COPIES:
        raise ConfigError(f"There may be 1 to {MOST_COPIES} copies.", where="copies")


def check_frame(*, n_records: int, n_cells: int, unit_records: int = 1) -> None:
    """Refuse a size that cannot be.

    Raises:
        RecordsError: Not 1 <= unit_records <= n_records, or no cell.
    """
    if n_cells < 1 or n_records < 1:
        raise RecordsError("n_records and n_cells must be positive.")
    if not 1 <= unit_records <= n_records:
        raise RecordsError("unit_records must be between 1 and n_records.")


Per = Literal["record", "unit"]
"""What counts one in a figure of units that may have several records."""


Needs = Literal["joint", "columns"]
"""What a mechanism is given of the count: a contingency table, or coded columns."""


def stated_error(mechanism: Mechanism, target: Target) -> ExpectedError:
    """The expected error that a mechanism states of itself, from public quantities only."""
    stated: Callable[..., Any] = mechanism.expected_error
    counted = {"n_records": target.n_records, "n_cells": target.n_cells}
    if getattr(mechanism, "counts_those_there", False):
        counted |= {"there": target.n_there}
    error: ExpectedError = stated(**counted)
    if target.n_there == target.n_records or "there" in counted:
        return error
    among = getattr(error, "among", None)  # errors of counts, relative to all records
    return error if among is None else among(target.n_there / target.n_records)


class Mechanism(Protocol):
    """A mechanism at fixed parameters.

    ``name`` is its key in the registry and in a config; ``citations`` are where its guarantee
    is proven, for the privacy statement of a bundle; ``kinds`` are the
    products it can serve; ``pure`` says that it needs no delta and is charged
    none; ``knobs`` is a frozen dataclass of what a config may set, its field
    names the keys of the YAML; ``needs`` says what it is given of the count. One that needs
    ``columns`` is given coded columns (mechanisms.domain.contingency_table) and serves products
    with any number of columns. One that serves other neighbouring relations than replace-one lists
    all of them in a class attribute ``adjacencies``; it is calibrated for that of its target, and
    its ``total`` estimates the number of records from a release. One whose expected errors go by
    the records that are there, and not by those that units may have, ``counts_those_there``: its
    ``expected_error`` takes ``there``, about how many they are.
    """

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    kinds: ClassVar[tuple[Kind, ...]]
    knobs: ClassVar[type]
    pure: ClassVar[bool]
    needs: ClassVar[Needs]

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet the target, from public quantities only."""
        ...

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss; takes no data."""
        ...

    def release(
        self,
        table: Any,
        rng: Randomness,
        progress: Progress | None = None,
    ) -> Any:
        """The private step; what it gives back is public.

        Args:
            table: A ``ContingencyTable``, or ``CodedColumns``, as ``needs`` says; private. Its
                size must be the public n.
            rng: Of all random bits; charge the ledger before building it.
            progress: Called with the number of records drawn, or of cells with noise, since the
                last call.
        """
        ...

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedError:
        """Expected error from public quantities only, a dataclass."""
        ...

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild the mechanism's loss and post-processing."""
        ...

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        ...
