"""Substitutes for external services, for demos and tests."""
