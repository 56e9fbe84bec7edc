"""The loss of draws from (up, down, rest) against (down, up, rest): curve, Rényi divergence, rho.

Functions of that pair, in balls. Never here: the classes of losses, which use them.
"""
