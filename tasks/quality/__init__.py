"""Quality gates in a process of their own, on profiles that hold no row.

They decide yes or no before the charge; their figures reach the curator's log only.
"""
