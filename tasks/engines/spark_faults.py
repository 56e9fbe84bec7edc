"""What Spark's failures are in public words, by the names of conditions and Java exceptions."""

from __future__ import annotations

import re

from mechanisms.errors import (
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
)

_MISSING = re.compile("PATH_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|UNABLE_TO_INFER")
_GONE = re.compile(
    "Connection refused|ConnectionRefused|Connection reset|UNAVAILABLE|StatusCode|"
    "Answer from Java side is empty|Error while sending|SparkContext was shut down|"
    "All masters are unresponsive|JAVA_GATEWAY_EXITED|network connection|RETRIES_EXCEEDED|"
    "RetriesExceeded|INVALID_HANDLE"
)
_NO_RIGHT = re.compile("AccessControlException|Permission denied|AccessDenied|UNAUTHENTICATED")


def failure_of(error: Exception, where: str) -> SourceError | None:
    """The public error that stands for one of Spark; None for one of something else."""
    gone = SourceUnavailableError("Spark cannot be reached, or its process ended.", where=where)
    try:
        text = f"{type(error).__name__} {error}"
    except Exception:  # Java is asked for what its error says, and has ended
        return gone
    if _MISSING.search(text):
        return SourceNotFoundError("Spark finds no such files, or no such table.", where=where)
    if _NO_RIGHT.search(text):
        return SourceAccessError(
            "Spark may not read the source.",
            where=where,
            next_step="See what the cluster lets this account do, and that the token in the "
            "variable SPARK_CONNECT_AUTHENTICATE_TOKEN is the server's, if it has one.",
        )
    ended = type(error).__name__ in ("Py4JError", "Py4JNetworkError")  # of Java itself: others
    if ended or isinstance(error, ConnectionError | EOFError) or _GONE.search(text):
        return gone
    if "UNRESOLVED_COLUMN" in text and "_metadata" in text:
        return SourceUnreadableError(
            "Spark does not say which files the table has, so that a change would go unseen.",
            where=where,
            next_step="Name its files as source.path.",
        )
    if type(error).__module__.split(".")[0] in ("pyspark", "py4j"):
        return SourceUnreadableError("Spark cannot read the source.", where=where)
    return None
