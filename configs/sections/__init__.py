"""What the sections of a valid config come to: domain, products' requests, shares, limits.

Here is also what sections must be to each other. Never here: a document's text, or the plan.
"""
