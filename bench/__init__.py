"""Benchmarks of the stores and views."""
