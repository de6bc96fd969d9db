"""A fake chat endpoint with OpenAI's API; a list holds its next answers."""

import json
from collections.abc import Callable
from typing import Any

from apps.video_studio.tests.serving import Handler, Server

SCRIPT = {
    "title": "Ebb & flow",
    "description": "Short.",
    "scenes": [
        {"title": "One", "caption": "The sea comes."},
        {"title": "Two", "caption": "The sea goes."},
    ],
}


def said(content: Any) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


Round = Callable[["_Chat"], None]


class _Chat(Handler):
    owner: "ChatServer"  # type: ignore[misc]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.asked.append((self.path, self.headers.get("Authorization", ""), body))
        turns = self.owner.turns
        (turns.pop(0) if turns else good)(self)


def good(chat: _Chat) -> None:
    chat.answer(200, said(SCRIPT), Content_Type="application/json")


def saying(content: Any) -> Round:
    return lambda chat: chat.answer(200, said(content))


def refusing(status: int, **headers: str) -> Round:
    return lambda chat: chat.answer(status, b'{"error":{"message":"no"}}', **headers)


def dropping(chat: _Chat) -> None:
    chat.hang_up()


def hanging(chat: _Chat) -> None:
    """Block until the test releases it."""
    chat.owner.released.wait(900)
    good(chat)


class ChatServer(Server):
    """Answers each request with the next listed answer, or with a valid script if the list is empty."""

    handler = _Chat

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Round] = []
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
