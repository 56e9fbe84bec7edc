"""The files of a bundle: writing, reading, describing, sealing and verifying them.

Everything here is public; nothing draws or charges.
"""
