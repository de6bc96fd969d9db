"""An app of which two releases exist: the second adds a phase at the end and one in the middle."""

import os

from onerow import Context, Pipeline, Queue
from tests.conformance.stores import ENTRIES

RELEASE = os.environ.get("ROLLING_RELEASE", "1")


def pipeline(release: str) -> Pipeline:
    orders = Pipeline("orders")

    @orders.phase
    def charge(job: int) -> str:
        return release

    if release == "2":

        @orders.phase
        async def pack(job: int) -> str:
            return release

    @orders.phase
    async def ship(job: int) -> str:
        return release

    if release == "2":

        @orders.phase
        def receipt(job: int, ctx: Context) -> str:
            return release

    return orders


def opened(entry: str, address: str) -> Queue:
    return Queue(ENTRIES[entry].open(address, None))


if "ROLLING_ENTRY" in os.environ:
    queue = opened(os.environ["ROLLING_ENTRY"], os.environ["ROLLING_ADDRESS"]).serve(pipeline(RELEASE))
