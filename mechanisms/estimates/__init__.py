"""Mechanisms for estimates with intervals, each in the module of its registry key.

They turn declared columns into numbers in [0, 1] and call the inference room; no user module
is imported here.
"""
