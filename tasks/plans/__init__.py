"""What is known of a release before data are opened: its verdicts, what would stop it, changes.

Never here: the source's values, a charge, or a random bit.
"""
