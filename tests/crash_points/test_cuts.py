"""Cut connections before each message of the protocol, in both directions: a repeated call leads to the right state."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onerow import Queue
from onerow.core.errors import StoreError
from tests.crash_points.cutting import CuttingProxy, mongo_length, postgres_length
from tests.crash_points.operations import OPERATIONS, Interrupted
from tests.servers.mongo import MongoDatabases
from tests.servers.postgres import Databases

pytestmark = pytest.mark.faults
STORES = ("postgres", "mongo")
_NEED_AN_EMPTY_STORE = ("migrate", "move")


class Place:
    """A server with a proxy in front of it."""

    def __init__(self, server: Databases | MongoDatabases, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.shared = server.fresh_database()
        is_postgres = self.shared.startswith("postgres")
        self.proxy = CuttingProxy(
            self.shared, 5432 if is_postgres else 27017, postgres_length if is_postgres else mongo_length
        )
        # Encryption would be asked for by messages of another form.
        self._options = {"sslmode": "disable", "gssencmode": "disable"} if is_postgres else {}
        with closing(Queue(self.shared)) as queue:
            queue.count()

    def close(self) -> None:
        self.proxy.close()
        self._server.drop_database(self.shared)

    def cut(self, name: str, number: int | None) -> int:
        """Do one operation with a cut, check it and do it again; return the number of messages that it took."""
        url = self._server.fresh_database() if name in _NEED_AN_EMPTY_STORE else self.shared
        operation = OPERATIONS[name](f"{name}-{number or 'whole'}", self._folder)
        direct, through = Queue(url), Queue(self._through(url))
        try:
            return self._cut(operation, direct, through, number)
        finally:
            through.close()
            direct.close()
            if url != self.shared:
                self._server.drop_database(url)

    def _cut(self, operation: Interrupted, direct: Queue, through: Queue, number: int | None) -> int:
        operation.before(direct)
        call = operation.ready(through)
        self.proxy.arm(number)
        try:
            call()
        except StoreError:
            assert number is not None, "the call failed without a cut"
        messages = self.proxy.messages
        self.proxy.arm(None)
        operation.check(direct)
        operation.again(through)
        return messages

    def _through(self, url: str) -> str:
        url = self.proxy.url(url)
        for name, value in self._options.items():
            url += f"{'&' if '?' in url else '?'}{name}={value}"
        return url


@pytest.fixture
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    made: list[Place] = []

    def make(store: str) -> Place:
        made.append(Place(request.getfixturevalue(f"{store}_server"), tmp_path))
        return made[-1]

    yield make
    for place in made:
        place.close()


def check_cuts(place: Place, name: str, most: int | None) -> None:
    total = place.cut(name, None)
    assert total > 1
    numbers = range(1, total + 1)
    if most is not None:
        numbers = range(1, total + 1, max(1, -(-total // most)))
    for number in numbers:
        place.cut(name, number)
    assert place.proxy.cuts >= len(numbers) * 0.9  # the number of messages may differ a little from run to run


@pytest.mark.parametrize("store", STORES)
def test_after_a_cut_before_some_messages_a_repeated_call_leads_to_the_right_state(
    make_place: Callable[[str], Place], store: str
) -> None:
    place = make_place(store)
    for name in ("add", "claim", "settle", "extend", "purge"):
        check_cuts(place, name, 3)
    check_cuts(place, "move", 1)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_after_a_cut_before_each_message_a_repeated_call_leads_to_the_right_state(
    make_place: Callable[[str], Place], store: str, name: str
) -> None:
    check_cuts(make_place(store), name, None)
