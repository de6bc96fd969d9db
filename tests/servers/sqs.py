"""SQS, S3 and the other services of moto over real HTTP.

Differences from AWS: a stale receipt handle deletes the redelivered message, a desired capacity above MaxSize is
accepted, and messages are hardly ever duplicated or reordered.
"""

import urllib.request

from moto.server import ThreadedMotoServer


class SqsServer:
    """One endpoint for all services; `reset` deletes all data."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"

    def reset(self) -> None:
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        with urllib.request.urlopen(request):
            pass

    def close(self) -> None:
        self._server.stop()
