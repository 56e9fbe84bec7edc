"""Public descriptions of a table's columns: reading their forms, and drafting a config from them.

Here are parsers of documents that are public already, one module for each form. Never here:
anything that opens a data file.
"""
