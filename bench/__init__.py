"""Benchmarks and the minimal queues that they compare with; not part of the package."""
