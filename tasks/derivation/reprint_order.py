"""What a reprint may change, and where it goes."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path

from configs.order import Override
from configs.overrides import Applied, apply
from configs.yaml_text import Document, parse
from mechanisms.errors import BundleExistsError, RereleaseError
from tasks.bundle.manifest import CONFIG

MARK = "-NOT-PUBLISHABLE"


ALLOWED = (("title",), ("publish", "formats"), ("publish", "name"))
"""Places of the config that may change."""


_NUMBERED = re.compile(r"-reprint-[0-9]+$")


def resolved(folder: Path, overrides: Iterable[Override]) -> tuple[Document, tuple[Applied, ...]]:
    """The bundle's config with what changes."""
    document = parse((folder / CONFIG).read_text(encoding="utf-8"), CONFIG)
    document, applied = apply(document, overrides)
    for each in applied:
        if each.path not in ALLOWED:
            raise RereleaseError(
                f"A reprint changes title, publish.formats and publish.name, and not "
                f"'{'.'.join(map(str, each.path))}'.",
                where=each.override.place,
            )
    return document, applied


def next_place(folder: Path, name: str | None, *, publishable: bool) -> Path:
    """Where the new bundle goes: beside the old one."""
    parent, own = folder.resolve().parent, _NUMBERED.sub("", folder.resolve().name)
    if name is None:
        numbered = (parent / f"{own}-reprint-{n}" for n in itertools.count(1))
        return next(place for place in numbered if not os.path.lexists(place))
    target = parent / (name if publishable or name.endswith(MARK) else f"{name}{MARK}")
    if os.path.lexists(target):
        raise BundleExistsError("A bundle of this name is already there.", where=str(target))
    return target
