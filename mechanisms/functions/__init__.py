"""The targets of released functions: densities, regressions, classifiers, and their sensitivities.

No user module is imported here, and no noise is drawn.
"""
