"""The statistics behind estimates: noisy moments, replicates, intervals, deconvolution.

These functions know numbers in [0, 1] and never a config, a domain or a product.
"""
