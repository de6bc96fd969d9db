"""The proxy of the soak: forwards, cuts, loses answers and delays them."""

import socket
import threading
from collections.abc import Iterator

import pytest

from onerow.soak.proxy import Proxy
from tests.engine.kit import until


@pytest.fixture
def heard() -> list[bytes]:
    return []


@pytest.fixture
def proxy(heard: list[bytes]) -> Iterator[Proxy]:
    """A proxy before a server that answers each request with the same bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    heard.append(data)
                    connection.sendall(data)
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,)).start()

    server = threading.Thread(target=serve)
    server.start()
    made, url = Proxy.before(f"postgresql://someone:secret@127.0.0.1:{listener.getsockname()[1]}/name?x=1")
    assert url == f"postgresql://someone:secret@127.0.0.1:{made.port}/name?x=1"
    yield made
    made.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.join()


def connected(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=900)
    connection.sendall(b"first")
    assert connection.recv(1000) == b"first"
    return connection


def test_a_cut_resets_connections_and_new_ones_work(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        proxy.cut()
        try:
            assert connection.recv(1000) == b""
        except ConnectionResetError:
            pass
    connected(proxy).close()


def test_a_lost_answer_means_that_the_request_arrived(proxy: Proxy, heard: list[bytes]) -> None:
    with connected(proxy) as connection:
        proxy.lose_answers(True)
        connection.sendall(b"write")
        until(lambda: b"write" in heard, "the request")
        proxy.lose_answers(False)
        try:
            assert connection.recv(1000) == b""
        except ConnectionResetError:
            pass
    connected(proxy).close()


def test_delayed_answers_arrive_whole(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        proxy.delay_answers(0.05)
        connection.sendall(b"slow")
        assert connection.recv(1000) == b"slow"
        proxy.delay_answers(0.0)
