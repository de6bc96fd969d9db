"""Run the quick tasks in this process until none is left; the tests run it under strace."""

from onerow import Worker
from tests.faults.app import queue, quick

if __name__ == "__main__":
    Worker(queue, [quick], until_idle=True, grace="1s").run()
