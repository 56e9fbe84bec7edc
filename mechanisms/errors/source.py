"""Errors for the keeper of the data."""

from __future__ import annotations

from mechanisms.errors.base import StatpressError


class SourceError(StatpressError):
    """Base of what is wrong with the source."""

    exit_code = 40


class SourceNotFoundError(SourceError):
    """No file matches the source's path."""

    exit_code = 41
    next_step = "Check source.path; it is taken from the folder of the config."


class SourceUnreadableError(SourceError):
    """The engine cannot read the source."""

    exit_code = 42
    next_step = "Check that the file is complete and of the declared format."


class ColumnNotFoundError(SourceError):
    """The source lacks a column that the domain declares."""

    exit_code = 43
    next_step = "Correct the name in the domain, or the source."


class ColumnTypeError(SourceError):
    """A column's type cannot carry the declared discretisation."""

    exit_code = 44
    next_step = "Correct the column's type in the domain, or the source."


class EmptySourceError(SourceError):
    """The source has no records."""

    exit_code = 45
    next_step = "Check that the right file was delivered."


class QualityGateError(SourceError):
    """A quality check on private data stopped the run before any charge."""

    exit_code = 46
    next_step = "Read the curator log of this run."


class SourceUnavailableError(SourceError):
    """The server of the source cannot be reached, or its connection broke."""

    exit_code = 47
    next_step = "Nothing was charged: see that the server runs and can be reached, then run again."


class SourceAccessError(SourceError):
    """There are no credentials for the source, or they lack a right."""

    exit_code = 48
    next_step = "Check source.credentials, and what the role may do."


class SourceChangedError(SourceError):
    """The source was changed while it was read."""

    exit_code = 49
    next_step = "Nothing was charged: run again when nobody writes to it."
