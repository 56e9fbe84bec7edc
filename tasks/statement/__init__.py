"""What a release states of its guarantee: the loss, its composition, the account, what is left out.

From the plan and the ledger only; the words for people are in ``tasks.report``.
"""
