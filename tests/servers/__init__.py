"""Real servers for the tests: started when first asked for, gone when the tests end.

Each pytest-xdist worker has its own, so that nothing is shared and nothing needs a lock; only the replica set, which is
slow to start, is shared by all. A server that is already running can be given by its URL in ONEROW_TEST_POSTGRES_URL,
ONEROW_TEST_MONGO_URL or ONEROW_TEST_MONGO_REPLICA_SET_URL.
"""

from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"


class Missing(Exception):
    """A server can't be started here; the message says how to get it."""
