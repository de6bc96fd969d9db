"""A real HTTP server that answers like OpenAI's API, and serves media files and pages."""

import json
import threading
from typing import Any

from apps.video_studio.tests.serving import Handler, Server


class _Handler(Handler):
    owner: "ModelServer"  # type: ignore[misc]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.owner.asked.append(path)
        if self.owner.hold == path:
            self.owner.held.set()
            self.owner.released.wait(900)
            return self.hang_up()
        found = self.owner.files.get(path)
        if found is None:
            return self.answer(self.owner.statuses.pop(path, 404))
        if self.owner.statuses.get(path):
            return self.answer(self.owner.statuses.pop(path))
        self.answer(200, found[0], Content_Type=found[1])
        return None

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix("/v1")
        key = self.headers.get("Idempotency-Key", "")
        stage, _, part = key.split(":")[-2].partition("-")
        with self.owner.lock:
            self.owner.requests.append(
                {"stage": stage, "part": part, "path": path, "body": body, "key": key}
                | {"auth": self.headers.get("Authorization", "")}
            )
            self.owner.running += 1
            self.owner.most_at_once = max(self.owner.most_at_once, self.owner.running)
        try:
            if f"{stage}-{part}".startswith(self.owner.hold or "-"):
                self.owner.hold = ""
                self.owner.held.set()
                self.owner.released.wait(900)
                return self.hang_up()
            self.owner.meet()
            failures = self.owner.failures.get(stage)
            if failures and (failure := failures.pop(0)) is not None:
                return self.answer(failure[0], failure[1].encode(), Content_Type="application/json")
            self.answer(200, json.dumps(self._answer(stage, part, body)).encode(), Content_Type="application/json")
        finally:
            with self.owner.lock:
                self.owner.running -= 1

    def _answer(self, stage: str, part: str, body: bytes) -> dict[str, Any]:
        if stage == "chunk":
            if b"verbose_json" in body:
                return {"text": "x", "segments": [{"start": 0.5, "end": 1.5, "text": f" words of part {part}."}]}
            return {"text": self.owner.words.format(part=part)}
        return {"choices": [{"message": {"content": "요약입니다." if stage == "summary" else "번역입니다."}}]}


class ModelServer(Server):
    """failures: stage (chunk, summary, translation) → answers to give first, None for a good one. words: what a model hears that
    tells no times. hold: a stage or a path that never answers.
    together: how many requests must be there before one is answered."""

    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, tuple[bytes, str]] = {}
        self.statuses: dict[str, int] = {}
        self.asked: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.failures: dict[str, list[tuple[int, str] | None]] = {}
        self.words = "Words of part {part}. 조수와 달."
        self.hold = ""
        self.held = threading.Event()
        self.together = 1
        self.running = self.most_at_once = 0
        self.lock = threading.Lock()
        self.patience = 30.0
        self._met = threading.Condition()

    def stages(self) -> list[str]:
        return [each["stage"] for each in self.requests]

    def meet(self) -> None:
        """Wait until `together` requests have come, at most `patience` seconds."""
        with self._met:
            self._met.notify_all()
            self._met.wait_for(lambda: len(self.requests) >= self.together, self.patience)

    def release(self) -> None:
        """Answer the requests that wait for others."""
        with self._met:
            self.together = 1
            self._met.notify_all()
