"""Tables down a tree of places, from a nation to its districts.

Nothing here reads a file: who lies in whom is public, and given as a ``Tree``.
"""
