"""What keeps an installation in order: checkup, metrics, heads sent elsewhere, backup, retention.

Nothing here reads a source, and nothing that is shown here comes from one.
"""
