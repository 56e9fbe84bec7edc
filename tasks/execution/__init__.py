"""How a step runs: the home folder, the private work folder, sealed errors, logs and output.

Nothing here knows what a release is.
"""
