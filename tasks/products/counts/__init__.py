"""Microdata and tables in a bundle: both are counts of cells with their estimates."""
