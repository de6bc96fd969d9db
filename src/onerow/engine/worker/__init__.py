"""The worker: claims in batches, runs, settles in batches, keeps leases alive, and sweeps what spans rows."""

from onerow.engine.worker.worker import Worker

__all__ = ["Worker"]
