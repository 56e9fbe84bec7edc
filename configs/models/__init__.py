"""The models of a release config: its sections, columns, products and number types.

What they say is the form of a config and its JSON Schema. Never here: reading a file, places in
it, or what needs two sections at once.
"""
