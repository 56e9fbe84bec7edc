"""Whole functions in a bundle: coefficients, the evaluator that is copied along, plots."""
