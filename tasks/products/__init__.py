"""Kinds of product as they stand in a bundle: their files, their words, their readers.

A kind is one value in the registry, its parts a package here and one in ``mechanisms``.
Everything written here is post-processing of what a mechanism released; nothing draws,
charges or opens a source.
"""
