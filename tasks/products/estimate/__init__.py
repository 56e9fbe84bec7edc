"""Estimates with intervals in a bundle: numbers, sampling distributions, plots."""
