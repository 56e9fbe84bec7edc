"""The steps of a release, from the plan to publication, each a few lines of load, call, save.

No mathematics and no storage format; nothing here is retried after the charge.
"""
