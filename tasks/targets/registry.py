"""The store of a target, by its key: a module here that ``configs.models.targets`` lists."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from configs.models.targets import Target
    from tasks.targets.store import Bundle, Store


def check_target(target: Target) -> None:
    """Raise if an upload to a target could not begin on this machine; no connection is made.

    Raises:
        DependencyError: The target needs an extra that is not installed.
        UploadError: There are no credentials for it.
    """
    import_module(f"{__package__}.{target.key}").check()


def store_of(target: Target, bundle: Bundle) -> Store:
    """The place of a bundle in a target; nothing is sent yet.

    Raises:
        DependencyError: The target needs an extra that is not installed.
        UploadError: There are no credentials for it.
    """
    return cast("Store", import_module(f"{__package__}.{target.key}").store_of(target, bundle))
