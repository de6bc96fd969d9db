"""A server on loopback with OpenAI's chat API, for tests and the demo: it answers with the offline tagger."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

from ai_tagger.offline.tagger import tags_of
from ai_tagger.tags import TAGS

MODEL = "small-model"
KEY = "key-of-the-model-server"

Turn = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One call."""

    protocol_version = "HTTP/1.1"
    owner: ClassVar["ModelServer"]
    asked: dict[str, Any]

    def log_message(self, format: str, *args: object) -> None: ...

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.owner.lock:
            self.owner.calls.append(self.texts)
            self.owner.authorizations.append(self.headers.get("Authorization", ""))
            self.owner.questions.append(self.asked)
            turn = self.owner.turns.pop(0) if self.owner.turns else self.owner.usual
        turn(self)

    @property
    def texts(self) -> list[str]:
        return [post["text"] for post in json.loads(self.asked["messages"][1]["content"])["posts"]]

    def items(self) -> list[dict[str, Any]]:
        """Return a right answer for each post."""
        return [{"id": number, "tags": list(tags_of(text, TAGS))} for number, text in enumerate(self.texts, 1)]

    def complete(self, content: Any, *, finish_reason: str = "stop", **headers: str) -> None:
        """Answer as a model does."""
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        usage = {"prompt_tokens": 100 + sum(map(len, self.texts)), "completion_tokens": 12 * len(self.texts)}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
        self.answer(200, {"model": MODEL, "choices": [choice], "usage": usage}, **headers)

    def answer(self, status: int, body: Any, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def good(request: Request) -> None:
    request.complete({"posts": request.items()})


def refusing(status: int, message: str = "no", **headers: str) -> Turn:
    """Answer with an error."""
    return lambda request: request.answer(status, {"error": {"message": message}}, **headers)


class ModelServer:
    """Answers each call with the next of `turns`, or with `usual` when there are none; `with ModelServer() as server`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turns: list[Turn] = []
        self.usual: Turn = good
        self.calls: list[list[str]] = []
        self.questions: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.released = threading.Event()
        """Set to release calls that wait."""
        self._server = _Quiet(("127.0.0.1", 0), type("Bound", (Request,), {"owner": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a tagger that asks this server; a million tokens in cost 0.15, out 0.60."""
        return {
            "TAGGER_MODEL_URL": self.url,
            "TAGGER_MODEL": MODEL,
            "TAGGER_API_KEY": KEY,
            "TAGGER_INPUT_PRICE": "0.15",
            "TAGGER_OUTPUT_PRICE": "0.60",
        }

    def waiting(self, request: Request) -> None:
        """Wait until the test releases the call, and then answer."""
        self.released.wait(120)
        good(request)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of clients that were killed."""
