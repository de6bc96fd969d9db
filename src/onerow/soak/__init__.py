"""Soak: run a queue under seeded faults, record what happens, and check the records against the promises."""
