"""Measurements: what a task costs, and how many a second each store can take."""
