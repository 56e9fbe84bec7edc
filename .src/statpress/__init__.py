"""The press of a statistical agency: one reviewed YAML file in, a private release out."""
