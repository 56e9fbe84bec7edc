"""The declared public domain: columns, structural zeros, privacy unit, contingency table.

It never reads a source and never looks at data to decide what a cell is.
"""
