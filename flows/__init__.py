"""Flows a person can read on one page, and the command line."""
