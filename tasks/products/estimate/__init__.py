"""Estimates with intervals in a bundle: numbers and sampling distributions."""
