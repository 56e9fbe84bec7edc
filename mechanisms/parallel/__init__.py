"""How many threads work on one step, and nothing of what they compute.

No result depends on their number: work is divided into parts that do not depend on it, sums are of
integers, and no two parts draw from one stream of random bits.
"""
