"""What a kind of product is to the planner; there is one value of ``Kind`` for each.

A kind says what a config may leave open, how its mechanisms are compared, and how their
expected errors are worded. Nobody else asks which kind a product is of. The mechanisms that
serve a kind name it in ``Mechanism.kinds``, so the registry of mechanisms knows all kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mechanisms.base.mechanism import Mechanism, Target
    from mechanisms.domain.domain import Domain

Variant = tuple[str, "type[Mechanism]", Any]
"""A mechanism that could serve a product: its label, its class, its knobs."""


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


class Kind(ABC):
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

    @abstractmethod
    def criterion(self, knobs: Any) -> str:
        """The one of the ``criteria`` that decides, by what a config says."""

    @abstractmethod
    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        """What could serve a product, with defaults for what the config does not say.

        Args:
            knobs: What the config says; those of ``left_open``, or of a mechanism.
            serving: The mechanisms that serve this kind.
        """

    @abstractmethod
    def draws(self, mechanism: Any, n_cells: int) -> int:
        """How many records or noisy cells are drawn, for a progress bar; 0 if that is quick."""

    def check(self, knobs: Any, target: Target) -> None:
        """Refuse what no mechanism can serve.

        Raises:
            ConfigError: The columns do not suit what is asked for.
        """
        del knobs, target  # by default every mechanism is tried

    def objection(self, mechanism: Any, target: Target) -> str:
        """Why a mechanism at these parameters is never chosen for a product; may be empty."""
        del mechanism, target
        return ""

    def expected_error(self, mechanism: Mechanism, target: Target) -> ExpectedError:
        """The expected error by which a mechanism at fixed parameters is compared."""
        return mechanism.expected_error(n_records=target.n_records, n_cells=target.n_cells)

    def check_further(self, further: Any, domain: Domain, nulls: bool) -> None:
        """Refuse what cannot be published besides.

        Args:
            further: What the config says, a value of ``further``.
            domain: The product's columns.
            nulls: Whether a column without a cell for them may have nulls.

        Raises:
            ConfigError: The columns do not suit it.
        """
        del further, domain, nulls

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
        """Columns that a product needs besides those it names."""
        return ()

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        """The rows of an expected error, and what a reader has to know of the mechanism."""
        yield from error.rows()


def in_words(rows: Iterable[tuple[str, str]]) -> str:
    """The rows of an expected error on one line."""
    return "; ".join(f"{label} {value}" for label, value in rows)
