"""The pure core: domain, accounting, samplers, mechanisms, inference, post-processing.

Nothing in this package does I/O or reads the clock, the environment or a global
random generator.
"""
