"""Errors for whoever publishes or reads a bundle."""

from __future__ import annotations

from mechanisms.errors.base import StatpressError


class BundleError(StatpressError):
    """Base of what is wrong with the output."""

    exit_code = 50


class OutputNotWritableError(BundleError):
    """The publishing directory cannot be written."""

    exit_code = 51
    next_step = "Choose another publish.directory, or fix its permissions or free space."


class BundleExistsError(BundleError):
    """A bundle of that name is already there."""

    exit_code = 52
    next_step = "Choose another publish.name; bundles are never overwritten."


class BundleVerificationError(BundleError):
    """A bundle differs from its manifest."""

    exit_code = 53
    next_step = "Do not use this bundle; fetch it again from the publisher."


class ReleaseGateError(BundleError):
    """The drawn release does not agree with its own plan; nothing was published."""

    exit_code = 54
    next_step = "The budget stays spent; report this with the incident id."


class RefinementError(BundleError):
    """A bundle's tables cannot be refined as asked."""

    exit_code = 55
    next_step = "Name other products with --products, or leave out --consistent or --integers."


class ApprovalError(BundleError):
    """A release is not approved, or not by whom the ledger lets approve."""

    exit_code = 56
    next_step = "'statpress review' lists what waits for a decision."


class RereleaseError(BundleError):
    """A bundle cannot be released again as asked."""

    exit_code = 57
    next_step = "Release a changed config with 'statpress rerelease --revise', or anew with 'run'."


class QueryError(BundleError):
    """A question to a bundle that it cannot answer."""

    exit_code = 58
    next_step = "Ask for columns and values that the bundle's codebook lists."


class NotMeasuredError(QueryError):
    """A question about columns of which a release measured no table together."""

    exit_code = 59
    next_step = "Ask about columns that were measured together; data/PRODUCT_pairs lists them."


class SignatureError(BundleError):
    """A bundle is not signed by any of the keys that were given."""

    exit_code = 65
    next_step = "Ask its publisher, by another way than the bundle came, which key is theirs."


class BundleFetchError(BundleError):
    """A bundle on a web server cannot be fetched, so nothing is known of it."""

    exit_code = 66
    next_step = "Try again, or download the bundle and verify the folder."


class UploadError(BundleError):
    """A target did not take a published bundle; the release stands, and its budget is spent."""

    exit_code = 67
    next_step = "Put the target in order, then run 'statpress upload BUNDLE'."
