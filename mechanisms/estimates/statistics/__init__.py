"""The statistics that an estimate can be of, each in the module of its registry key.

A statistic is a value: its name and knobs, its scale and words, and the structure that mechanisms
ask for. No privacy loss is stated here and nothing is released.
"""
