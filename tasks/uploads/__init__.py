"""Where published bundles are uploaded to: stores, portals, and the order of an upload."""
