"""Capacity planning: run a plan of arrivals, service times and workers on a virtual clock.

`model.py` is the plan as data and `reading.py` reads it from TOML. `simulation.py` runs it: with the real rules over a
memory store (`real_rules.py`), or for plans of one phase with an event loop that is proven equal and much faster
(`fast_path.py`). Both share arrivals, the fleet of workers with the real scaling decision, and the measurements.
"""
