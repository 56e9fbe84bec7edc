"""The options that several commands share, and the result that a command returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from statpress.configs.order import Order, Override
    from statpress.tasks.private_zone.folders import Home


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a command; only the form that is asked for is made.

    Attributes:
        json: Which form is asked for.
        facts: Makes the JSON object.
        report: Makes the text, or the parts that are printed one after the other.
        exit_code: Of a command that has done its work and found something wrong; else 0.
    """

    json: bool
    facts: Callable[[], Mapping[str, Any]]
    report: Callable[[], str | Iterable[Any]]
    exit_code: int = 0


Json = Annotated[bool, Parameter(help="Print one JSON object.")]
HomeFolder = Annotated[
    Path | None, Parameter(help="Folder of ledger and logs; by default STATPRESS_HOME or per user.")
]
NoOrchestrator = Annotated[bool, Parameter(help="Run without Prefect.")]
Timings = Annotated[bool, Parameter(help="Print where the time went.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask before charging.")]
Sign = Annotated[
    Path | None,
    Parameter(
        help="Sign the bundle with the private Ed25519 key of this PEM file, in place of one that "
        "the config names."
    ),
]
WorkerCount = Annotated[
    str | None,
    Parameter(
        help="Draw the products in so many processes, or 'auto': as the plan is long; by default "
        "STATPRESS_WORKERS, or 1."
    ),
]
Dask = Annotated[
    str | None,
    Parameter(
        help="Draw them on the workers of the Dask scheduler at this address, such as "
        "tcp://host:8786; by default STATPRESS_DASK."
    ),
]
Overrides = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        help="Change a value of the config, such as budget.epsilon=0.5; may be repeated, and "
        "wins over STATPRESS__BUDGET__EPSILON in the environment.",
    ),
]


Period = Annotated[
    str | None, Parameter(help="Of the config's series, such as 2026-10 or 2026-Q3.")
]


def home_of(folder: Path | None) -> Home:
    """The home that an option or the environment names; messages then name it as well."""
    from statpress.flows.terminal import remember_home
    from statpress.tasks.private_zone.folders import Home

    remember_home(folder)
    return Home.of(folder) if folder else Home.default()


def order_of(config: Path, options: list[str] | None, period: str | None = None) -> Order:
    """The order for a config with the overrides of the environment and of options."""
    from statpress.configs.order import Order

    order = Order(config, overrides_of(options or []))
    return order if period is None else order.at_period(period)


def overrides_of(options: list[str]) -> tuple[Override, ...]:
    """The overrides of the environment, then those of options."""
    from statpress.configs.order import from_environment, from_options

    return (*from_environment(os.environ), *from_options(options))


def private_key(path: Path) -> Ed25519PrivateKey:
    """The private key of a file; on a terminal its passphrase is asked for."""
    from statpress.tasks.ledger.entries import read_private_key

    ask = (lambda: getpass(f"Passphrase of {path}: ")) if sys.stdin.isatty() else None
    return read_private_key(path, ask)
