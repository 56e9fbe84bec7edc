"""Microdata by marginals in a bundle: records, the noisy tables behind them, the pairs."""
