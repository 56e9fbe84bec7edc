"""Prefect as seen from outside: its server, deployments, limits and artifacts.

Only public facts pass through here.
"""
