"""Functions released as Bernstein polynomials: lattice, noise, coefficients, evaluation.

What the released function is of (a density, a classifier) is the functions room's business.
"""
