"""The engines that count: one module each, which opens sources and runs what counting asks of them.

What is counted is one Ibis expression for all (``tasks.counting``); here is only how an engine
differs. What comes back is private.
"""
