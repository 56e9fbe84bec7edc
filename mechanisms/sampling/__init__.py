"""Exact samplers: from random bits to integers, counts and noise.

Every random bit comes from an argument; no floating point decides an output's probability
where a proof says it is exact; nothing here knows budgets or products.
"""
