"""What people read on a terminal: plans, outcomes, ledgers.

These modules word facts that are given to them; they open nothing.
"""
