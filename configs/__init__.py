"""The release config: models, loading with places, JSON Schema, shipped examples."""
