"""The press of a statistical agency: one reviewed YAML file in, a private release out.

Programs start here; releases are made by the command ``statpress``, which says what it charges.

>>> import statpress
>>> plan = statpress.plan("configs/census2000.yaml", overrides=["budget.epsilon=0.5"])
>>> plan.epsilon <= 0.5
True
>>> plan.products[0].request.name
'workers'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from statpress.mechanisms.planning.plan import Plan
    from statpress.tasks.release.opened import Release

    __version__: str

__all__ = ["__version__", "open", "plan", "verify"]


def plan(config: str | PathLike[str], *, overrides: Iterable[str] = ()) -> Plan:
    """Plan the release of a config, from public quantities only: no data, no ledger, no charge.

    Args:
        config: Path of the release config.
        overrides: Values in place of the config's, as ``statpress plan --set`` takes them:
            ``"budget.epsilon=0.5"``. Variables of the environment change nothing.

    Returns:
        Every product with its mechanism, cost and expected error, and the cost of them all:
        ``epsilon``, ``delta`` and ``rho`` as exact decimals, rounded up.

    Raises:
        ConfigError: The config is not in order; of this class, or a kind of it, that says where.
        InfeasibleBudgetError: The knobs of a product do not fit its budget.
        DependencyError: The source needs an extra that is not installed.
    """
    from pathlib import Path

    from statpress.configs.loading import load
    from statpress.configs.order import from_options

    return load(Path(config), from_options(list(overrides))).plan()


def open(
    bundle: str | PathLike[str],
    *,
    product: str | None = None,
    keys: Iterable[str | PathLike[str]] = (),
) -> Release:
    """Open a published bundle for analysis: its microdata, and estimates with intervals.

    Estimates come from the noisy tables behind the microdata, never from the records, and cost no
    budget. No data, ledger or network is needed, but for a bundle at an address.

    Args:
        bundle: Its folder, a zip file of it, or the address below which its files lie; it is
            verified first.
        product: Microdata by marginals to ask; by default the only such product.
        keys: As for ``verify``.

    Raises:
        BundleVerificationError: As ``verify`` raises, with its other errors.
    """
    from statpress.tasks.release.opened import open_release

    return open_release(bundle, product=product, keys=keys)


def verify(
    bundle: str | PathLike[str], *, keys: Iterable[str | PathLike[str]] = ()
) -> Mapping[str, Any]:
    """Check every file of a bundle against its manifest, its signature and its approval.

    A reprint in a folder must also follow from what was drawn for its original. No ledger is asked.

    Args:
        bundle: Its folder, a zip file of it, or the address below which its files lie.
        keys: PEM files of the public keys that the publisher is known by; with any, one of them
            must have signed the bundle.

    Returns:
        The manifest: what was released, at what cost, and each file with its size and SHA-256.

    Raises:
        BundleVerificationError: A file is changed, missing or added, or a reprint does not follow
            from its original.
        ApprovalError: The manifest says that the release was approved, and no approval holds.
        SignatureError: None of the keys signed the bundle, or the signature is not valid.
        SigningKeyError: A file of ``keys`` holds no public key.
        BundleFetchError: An address does not give its files.
    """
    from pathlib import Path

    from statpress.tasks.bundle.locations import Folder, location_of
    from statpress.tasks.bundle.manifest import signed_by, verify_location
    from statpress.tasks.ledger.entries import read_public_key

    trusted = [read_public_key(Path(key)) for key in keys]
    location = location_of(str(bundle))
    manifest = verify_location(location)
    signed_by(location.where, manifest, trusted)
    if manifest.get("reprint_of") and isinstance(location, Folder):
        from statpress.tasks.release.reprint import check_reprint

        check_reprint(Path(bundle))
    return manifest


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("statpress")
    raise AttributeError(f"module 'statpress' has no attribute {name!r}")
