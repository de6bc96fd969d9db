"""Real servers for the tests: started on first use, stopped when the tests end.

All processes of a run share one server of each kind (`shared`); a test that stops or kills a server starts its own. To
use a running server, set ONEROW_TEST_POSTGRES_URL, ONEROW_TEST_MONGO_URL or ONEROW_TEST_MONGO_REPLICA_SET_URL.
"""

from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"


class Missing(Exception):
    """A server cannot be started on this machine; the message explains how to install it."""
