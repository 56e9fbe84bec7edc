"""Whole functions in a bundle: coefficients, and the evaluator that is copied along."""
