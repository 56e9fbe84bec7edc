"""Mechanisms for tables of counts and for microdata, each in the module of its registry key.

What a release costs is left to the accounting room; nothing here reads or writes files.
"""
