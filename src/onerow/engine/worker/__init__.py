"""The worker: claims and settles tasks in batches, runs them, extends leases, and runs periodic sweeps."""

from onerow.engine.worker.worker import Worker

__all__ = ["Worker"]
