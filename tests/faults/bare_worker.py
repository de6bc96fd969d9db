"""A worker process without a supervisor: python -m tests.faults.bare_worker."""

from onerow import Worker
from tests.faults import app

if __name__ == "__main__":
    Worker(app.queue, [app.relay], interval="200ms", grace="2s").run()
