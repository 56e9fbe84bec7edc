"""Releases that follow a bundle: which may be followed, the order for the next run, what changes.

What a plan changes against a published bundle is public: no data are read. The bundle's side is
what its privacy statement and its config say, so that a bundle of an earlier version is compared as
it was published.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

from statpress.configs.loading import PlannedOrder, Release, leaves_period_open, load_order
from statpress.configs.order import Order, Override, flow_text
from statpress.configs.series import SeriesConfig, stated_series
from statpress.configs.yaml_text import parse
from statpress.mechanisms.domain.domain import Size
from statpress.mechanisms.errors import (
    PolicyMismatchError,
    RereleaseError,
    SourceNotFoundError,
    UnregisteredDatasetError,
)
from statpress.mechanisms.planning.plan import Plan, Verdict, verdict
from statpress.tasks.bundle.manifest import CONFIG, STATEMENT, verify_bundle
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.ledger.home_ledger import account_terms, charges_so_far, remaining_budget
from statpress.tasks.ledger.rules import check_terms
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.foreseen import check_verdicts, plan_for_account
from statpress.tasks.release.ledger_check import check_bundle, terms_of

_VINTAGE = {("privacy", "n_records"), ("privacy", "n_units"), ("weight", "calibrate")}
_RENEWED = ("title", "dataset", "source", "publish", "curator")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A release that may follow a bundle; nothing was charged for it.

    Attributes:
        bundle: The bundle's folder.
        manifest: Of it.
        planned: The config with what differs from it, read and planned.
        remaining: What the ledger grants; None without an account.
        difference: What changes against the bundle.
        renewed: Whether it has the bundle's own config.
        stopping: What the ledger would refuse it for, besides its budget.
    """

    bundle: Path
    manifest: Mapping[str, Any]
    planned: PlannedOrder
    remaining: Loss | None
    difference: Mapping[str, Any]
    renewed: bool = False
    stopping: PolicyMismatchError | None = None

    @property
    def release(self) -> Release:
        """Its config."""
        return self.planned.release

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self.planned.plan

    def check(self, home: Home) -> None:
        """Raise unless the ledger published the bundle and has the dataset's account.

        And unless the config accepts what stops a run otherwise, and a renewal finds its data.
        """
        charges = charges_so_far(home, self.release.config.dataset)
        check_verdicts(self.release, self.plan, charges)
        if self.renewed:
            check_source(self.release, self.bundle)
        check_followed(home, self.bundle, self.manifest, self.release.config.dataset)


def propose(
    bundle: Path,
    revised: Path | None,
    overrides: Sequence[Override],
    folder: Path | None,
    home: Home,
) -> Proposal:
    """What a renewal, or a revision by a changed config, would be.

    Args:
        bundle: The bundle's folder.
        revised: The changed config; None for a renewal.
        overrides: What differs from the config, the later over the earlier.
        folder: Where the paths of a renewed config are taken from; by default where its own
            config lay, if the data is there, else the current folder.
        home: Where the ledger lies.

    Raises:
        StatpressError: The bundle may not be followed, or the config is not in order.
    """
    manifest = predecessor(bundle)
    if revised is None:
        order = renewal(bundle, manifest, overrides, folder)
    else:
        order = revision(bundle, manifest, revised, overrides)
    release = load_order(order)
    if release.config.privacy.is_from_source:  # about what it was; the run counts it
        release = release.sized(stated_units(bundle), Size.ROUGH)
    plan = plan_for_account(home, release, release.plan())
    planned = PlannedOrder(order, release, plan)
    account, stopping = account_terms(home, planned.release.config.dataset), None
    if account is not None:
        try:
            check_terms(account, terms_of(plan.privacy))
        except PolicyMismatchError as error:
            stopping = error
    return Proposal(
        bundle=bundle,
        manifest=manifest,
        planned=planned,
        remaining=remaining_budget(
            home, planned.release.config.dataset, planned.release.period_text
        ),
        difference=difference(bundle, manifest["seal"], planned.release, planned.plan),
        renewed=revised is None,
        stopping=stopping,
    )


def predecessor(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle that a release may follow."""
    manifest = verify_bundle(folder)
    flaw, next_step = "", ""
    if not manifest["publishable"]:
        flaw = "The bundle is NOT PUBLISHABLE: it was drawn from a known seed, for tests only."
        next_step = "Press a release of its own with 'statpress run'."
    elif manifest.get("reprint_of"):
        flaw = "The bundle is a reprint, and its config not the one that was charged."
        next_step = f"Name the original, which has the seal {manifest['reprint_of']['seal']}."
    if flaw:
        raise RereleaseError(flaw, where=str(folder), next_step=next_step)
    return manifest


def renewal(
    folder: Path,
    manifest: Mapping[str, Any],
    overrides: Iterable[Override],
    paths_from: Path | None,
) -> Order:
    """The order for the same config on new data.

    Args:
        folder: The bundle.
        manifest: Of it.
        overrides: Of what a new vintage has of its own: title, dataset, source, its public
            size, the totals that weights are raked to, and where it is published.
        paths_from: Folder that the config's paths are taken from; by default that of the
            bundle's own config where the source is there, else the current one.

    Raises:
        RereleaseError: An override changes something else.
    """
    order = Order(folder / CONFIG, tuple(overrides), paths_from or Path(), manifest["seal"])
    release = load_order(order)
    original = config_folder(folder)
    files = release.config.source.files
    there = original is not None and all(_has_source(original, each) for each in files)
    if paths_from is None and files and there:
        order = replace(order, folder=original)
    for change in release.overrides:
        if change.path[0] not in _RENEWED and change.path[:2] not in _VINTAGE:
            raise RereleaseError(
                f"'{'.'.join(map(str, change.path))}' is no matter of the data's vintage.",
                where=change.override.place,
                next_step="Change it in a config, and give that with --revise.",
            )
    return order


def config_folder(bundle: Path) -> Path | None:
    """The folder that a bundle's config lay in, by where it publishes; None if that is not known.

    A config names its publishing directory from its own folder.
    """
    stated = parse((bundle / CONFIG).read_text(encoding="utf-8"), CONFIG).value
    parts = Path(os.path.normpath(stated["publish"]["directory"])).parts
    series = stated_series(stated)
    if series is not None and series.current is not None:
        parts = (*parts, series.name, series.current)
    beside = bundle.resolve().parent
    if ".." in parts or beside.parts[len(beside.parts) - len(parts) :] != parts:
        return None
    return Path(*beside.parts[: len(beside.parts) - len(parts)])


def check_source(release: Release, bundle: Path) -> None:
    """Say before the charge that a renewal finds no data, and where it looked."""
    missing = [p for p in release.config.source.files if not _has_source(release.folder, p)]
    if not missing:
        return
    original = config_folder(bundle)
    looked = [release.folder]
    if original is not None and original != release.folder:
        looked.append(original)
    raise SourceNotFoundError(
        f"There is no file '{missing[0]}' in {' or in '.join(map(str, looked))}.",
        where=str(bundle),
        next_step="Name the folder of the config with --folder, or the data with "
        "--set source.path=FILE. Nothing was charged.",
    )


def _has_source(folder: Path, path: str) -> bool:
    pattern = str((folder / path).absolute())
    return any(map(os.path.isfile, (pattern, *glob.iglob(pattern, recursive=True))))


def revision(
    folder: Path, manifest: Mapping[str, Any], config: Path, overrides: Iterable[Override]
) -> Order:
    """The order for a changed config, of the same period if the bundle is of a series.

    Args:
        folder: The bundle.
        manifest: Of it.
        config: The changed config.
        overrides: What differs from it.

    Raises:
        RereleaseError: The config is of another series or period.
    """
    order = Order(config, tuple(overrides), supersedes=manifest["seal"])
    before = stated_series(parse((folder / CONFIG).read_text(encoding="utf-8"), CONFIG).value)
    if before is not None and before.current is not None and leaves_period_open(order):
        order = order.at_period(before.current)
    now = load_order(order).config.series
    if _of_period(before) != _of_period(now):
        raise RereleaseError(
            f"The bundle is of {_of_period(before)}, and the config of {_of_period(now)}.",
            where=str(config),
            next_step="A release follows one of its own series and period.",
        )
    return order


def _of_period(series: SeriesConfig | None) -> str:
    return "no series" if series is None else f"the series {series.name}, {series.current}"


def check_followed(home: Home, folder: Path, manifest: Mapping[str, Any], dataset: str) -> None:
    """Raise unless the ledger has the dataset's account, and published the bundle."""
    if remaining_budget(home, dataset) is None:
        raise UnregisteredDatasetError(
            "The ledger has no account of this name.", where=f"dataset {dataset!r}"
        )
    check_bundle(home, folder, dict(manifest))


COSTS = ("epsilon", "delta", "rho", "rho_delta")
_FRAME = ("adjacency", "unit_in_words", "n_units", "unit_records", "n_records")
_BESIDE = frozenset(
    {
        *COSTS, *_FRAME, "product", "expected_error", "unbiased", "epsilon_lower",
        "epsilon_upper", "attack_advantage", "curve", "trade_off", "chosen", "structural_zeros",
        "absent", "raw_sha256", "kind", "verdict", "absent_records", "grid", "tables",
        "score_scale", "known", "rho_rule", "estimated_records", "prior", "prior_pairs", "workload",
    }
)  # fmt: skip
"""What a bundle states of a product beside its mechanism's parameters and its columns."""
_DIGITS = 1000
Change = dict[str, Any]
"""``was`` and ``now``, with their ``change`` where they are amounts and ``ratio`` of errors."""


def stated_units(folder: Path) -> int:
    """The number of units that a bundle was made from; of records, where each is a unit."""
    stated = json.loads((folder / STATEMENT).read_text(encoding="utf-8"))
    return int(stated["n_units"])


def difference(folder: Path, seal: str, release: Release, plan: Plan) -> dict[str, Any]:
    """Products, costs and expected errors, in the bundle and in the plan.

    Returns:
        ``config``: the keys whose values differ, as YAML; ``protected``: what differs in
        the frame of the guarantee; ``cost`` of the release; and by name ``products``, each
        ``added``, ``removed``, ``changed`` or ``unchanged``, with its cost and errors.
    """
    stated = json.loads((folder / STATEMENT).read_text(encoding="utf-8"))
    text = (folder / CONFIG).read_text(encoding="utf-8")
    was, now_used = (parse(each, CONFIG).value for each in (text, release.text))
    config = dict(_differing(was, now_used, ()))
    privacy, planned = plan.privacy, {p.request.name: p for p in plan.products}
    now = {
        name: {
            **product.describe(privacy),
            **kind_of(product).stated(product),
            "columns": list(product.domain.names),
            "verdict": asdict(verdict(product)),
            "expected_error": json.loads(json.dumps(asdict(product.expected_error))),
        }
        for name, product in planned.items()
    }
    frame = {
        "adjacency": str(privacy.adjacency),
        "unit_in_words": privacy.words,
        "n_units": privacy.n_units,
        "unit_records": privacy.unit_records,
        "n_records": privacy.n_records,
    }
    costs = {name: str(amount) for name, amount in plan.amounts.items()}
    names = [*stated["products"], *(name for name in now if name not in stated["products"])]
    return {
        "supersedes": seal,
        "config": config,
        "protected": {
            name: {"was": stated.get(name), "now": frame[name]}
            for name in _FRAME
            if stated.get(name) != frame[name]
        },
        "cost": {name: _cost(_amount_of(stated, name), costs[name]) for name in COSTS},
        "products": {
            name: _product(stated["products"].get(name), now.get(name), _touched(name, config))
            for name in names
        },
    }


def _product(
    was: Mapping[str, Any] | None, now: Mapping[str, Any] | None, touched: bool
) -> dict[str, Any]:
    """One product on both sides, of which one may lack it."""
    before, after = was or {}, now or {}
    parameters = {
        key: {"was": before.get(key), "now": after.get(key)}
        for key in {**before, **after}
        if key not in _BESIDE and before.get(key) != after.get(key)
    }
    cost = {name: _cost(*(_amount_of(side, name) for side in (before, after))) for name in COSTS}
    past, expected = (side.get("expected_error", {}) for side in (before, after))
    errors = {name: _error(past.get(name), expected.get(name)) for name in {**past, **expected}}
    moved = any(
        repr(each["was"]) != repr(each["now"]) for each in (*cost.values(), *errors.values())
    )
    fate = "changed" if parameters or moved or touched else "unchanged"
    if was is None or now is None:
        fate = "added" if was is None else "removed"
    return {
        "fate": fate,
        "parameters": parameters,
        "cost": cost,
        "expected_error": errors,
        "verdict": {side: _verdict(each) for side, each in (("was", before), ("now", after))},
    }


def _verdict(side: Mapping[str, Any]) -> str | None:
    """The verdict that a side states, in words; bundles of earlier versions have none."""
    stated = Verdict.stated(side)
    return None if stated is None else stated.words


def _touched(name: str, config: Mapping[str, Any]) -> bool:
    """Whether the config asks something else of a product; other words for it are not that."""
    own = f"products.{name}."
    words = {f"{own}title", f"{own}description"}
    return any(f"{key}.".startswith(own) and key not in words for key in config)


def _amount_of(side: Mapping[str, Any], name: str) -> str | None:
    """An amount that a side states; no delta of rho is 0."""
    amount: str | None = side.get(name, "0" if side and name == "rho_delta" else None)
    return amount


def _cost(was: str | None, now: str | None) -> Change:
    """An amount on both sides, exact."""
    if was is None or now is None:
        return {"was": _amount(was), "now": _amount(now), "change": None}
    with localcontext(prec=_DIGITS):
        change = Decimal(now) - Decimal(was)
    sign = "-" if change < 0 else ""
    return {
        "was": _amount(was),
        "now": _amount(now),
        "change": sign + canonical(abs(change)),
    }


def _amount(text: str | None) -> str | None:
    return None if text is None else canonical(Decimal(text))


def _error(was: Any, now: Any) -> Change:
    """A figure on both sides, or a list of them, with the factor between."""
    ratio: Any = None
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        ratio = [_ratio(*pair) for pair in zip(was, now, strict=True)]
    elif not isinstance(was, list) and not isinstance(now, list):
        ratio = _ratio(was, now)
    return {"was": was, "now": now, "ratio": ratio}


def _ratio(was: Any, now: Any) -> float | None:
    numbers = isinstance(was, int | float) and isinstance(now, int | float)
    return now / was if numbers and was else None


def _same(was: Any, now: Any) -> bool:
    """Whether two values are one, however their numbers are spelt."""
    if type(was) is type(now) and not isinstance(was, dict | list):
        return bool(was == now)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return all(map(_same, was, now))
    return flow_text(was) == flow_text(now)


def _differing(was: Any, now: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Change]]:
    """The keys whose values differ, deepest first named; lists are compared whole."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            yield from _differing(was.get(key), now.get(key), (*path, key))
    elif not _same(was, now):
        yield (
            ".".join(path),
            {
                "was": None if was is None else flow_text(was),
                "now": None if now is None else flow_text(now),
            },
        )
