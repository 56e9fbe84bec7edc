"""Errors for the author of the config."""

from __future__ import annotations

from mechanisms.errors.base import StatpressError


class ConfigError(StatpressError):
    """A value in the config is not usable."""

    exit_code = 10
    next_step = "Fix this field and run 'statpress validate'."


class ConfigNotFoundError(ConfigError):
    """The config file is missing or cannot be read."""

    exit_code = 11
    next_step = "Check the path of the config."


class YamlError(ConfigError):
    """The file is not YAML, or uses a part of YAML that a config may not."""

    exit_code = 12
    next_step = "Fix the YAML at this place."


class UnknownKeyError(ConfigError):
    """A key that the config does not have."""

    exit_code = 13
    next_step = "Remove the key or correct its spelling."


class DuplicateColumnError(ConfigError):
    """A column, or a key of the YAML, is given twice."""

    exit_code = 14
    next_step = "Name it once."


class EdgesError(ConfigError):
    """Edges, bins or widths that do not tile the range."""

    exit_code = 15
    next_step = "Give strictly increasing edges, or bins that divide the range."


class BudgetValueError(ConfigError):
    """An epsilon, delta or share that is not a valid amount."""

    exit_code = 16
    next_step = "Give epsilon > 0, 0 <= delta < 1, and shares that sum to 1."


class RecordsError(ConfigError):
    """A number of records, or a pseudocount, that is not positive."""

    exit_code = 17
    next_step = "Give a number in that range."


class MostlyNoiseError(ConfigError):
    """A product that would be mostly noise, which the config does not accept."""

    exit_code = 19
    next_step = (
        "Raise its budget or share, or give it fewer columns or cells; or write "
        "'accept: mostly_noise' with the product. Nothing was charged."
    )


class DomainTooLargeError(ConfigError):
    """More cells than a joint table, or the tables to measure, may have."""

    exit_code = 18
    next_step = "Leave a column out, use fewer cells in the largest, or choose another mechanism."


class DescriptionError(ConfigError):
    """A file that should describe columns does not, or is a data file."""

    exit_code = 64
    next_step = (
        "Give a datapackage.json, a Table Schema, CSVW metadata, a DDI Codebook, or a CSV with the "
        "columns name and type."
    )


class MemoryLimitError(ConfigError):
    """A plan that may need more memory than the config declares."""

    exit_code = 69
    next_step = "Raise resources.memory. Nothing was charged."
