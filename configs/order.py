"""What is asked of a run: a config, and the values that differ from it this once.

``--set budget.epsilon=0.5`` and ``STATPRESS__BUDGET__EPSILON=0.5`` say the same; the command
line wins over the environment, and that over the file. What an override leads to is the
matter of ``configs.overrides``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.yaml_text import parse
from mechanisms.errors import ConfigError, YamlError

PREFIX = "STATPRESS__"


@dataclass(frozen=True)
class Override:
    """One value that differs from the file.

    Attributes:
        key: As given: ``budget.epsilon``, or of the environment ``BUDGET__EPSILON``.
        value: As YAML 1.2.
        place: What set it: ``--set budget.epsilon`` or the variable's name.
        separator: Between the keys.
    """

    key: str
    value: Any
    place: str
    separator: str = "."

    @property
    def by_environment(self) -> bool:
        """Whether a variable set it."""
        return self.place.startswith(PREFIX)


@dataclass(frozen=True)
class Order:
    """What is asked of a run.

    Attributes:
        path: The config.
        overrides: Values that differ from the file, the later over the earlier.
        folder: Where the config's paths go from; by default its own folder.
        supersedes: Seal of the bundle that this release follows.
    """

    path: Path
    overrides: tuple[Override, ...] = ()
    folder: Path | None = None
    supersedes: str | None = None


def from_environment(environment: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides among environment variables, by name.

    Raises:
        ConfigError: A variable names no key, or its value is not a YAML scalar or flow value.
    """
    return tuple(
        _override(name.removeprefix(PREFIX), environment[name], name, "__")
        for name in sorted(environment)
        if name.startswith(PREFIX)
    )


def from_options(options: Iterable[str]) -> tuple[Override, ...]:
    """The overrides that ``--set KEY=VALUE`` gives, in order.

    Raises:
        ConfigError: One has no key or no ``=``, or its value is not a YAML scalar or flow value.
    """
    found = []
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise ConfigError(
                "There is no '=' in it.",
                where=f"--set {key[:100]}",
                next_step="Give --set KEY=VALUE, such as --set budget.epsilon=0.5.",
            )
        found.append(_override(key.strip(), text, f"--set {key.strip()[:100]}", "."))
    return tuple(found)


def from_scalars(values: Mapping[str, str | int | float | bool]) -> tuple[Override, ...]:
    """The same from a mapping, as a scheduler hands it over; only scalars.

    Raises:
        ConfigError: A value is not a scalar.
    """
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    found = from_options(f"{key}={text}" for key, text in texts.items())
    for override in found:
        if isinstance(override.value, (dict, list)):
            raise ConfigError("Give a single value here.", where=override.place)
    return found


def _override(key: str, text: str, place: str, separator: str) -> Override:
    if not all(key.split(separator)):
        raise ConfigError(
            "This names no key.",
            where=place,
            next_step=f"Put '{separator}' between keys: {separator.join(('budget', 'epsilon'))}.",
        )
    value, opening = None, text.lstrip()[:1]
    if opening:
        value = parse(text, place).value
    block = isinstance(value, dict | list) and opening not in ("{", "[")
    if not opening:
        raise YamlError("There is no value.", where=place, next_step="Write null for no value.")
    if block:
        raise YamlError(
            "The value is neither a scalar nor a flow list or mapping.",
            where=place,
            next_step="Quote text that holds ': '; write null for no value.",
        )
    return Override(key, value, place, separator)
