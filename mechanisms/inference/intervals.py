"""Confidence levels and normal quantiles."""

from __future__ import annotations

from statistics import NormalDist

from mechanisms.errors import ConfigError


def check_level(level: float) -> None:
    """Refuse a confidence level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise ConfigError("A confidence level must be above 0 and below 1.")


def normal_quantile(level: float) -> float:
    """The normal quantile of a two-sided interval."""
    check_level(level)
    return NormalDist().inv_cdf((1 + level) / 2)
