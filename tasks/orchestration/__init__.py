"""Prefect as seen from outside: its server, deployments, limits and artifacts."""
