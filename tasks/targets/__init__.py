"""Where published bundles are uploaded to: stores, portals, and the order of an upload.

Never here: credentials in any message, and anything that is not in a published bundle.
"""
