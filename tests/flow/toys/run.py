"""The command line with the toys registered: python run.py ARGUMENTS."""

import toys  # noqa: F401  (before anything reads configs)

from statpress.flows.cli import main

main()
