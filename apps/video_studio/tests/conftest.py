"""Fixtures: a studio per test, with small films, quick retries and a clean environment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.video_studio.tests.chat_server import ChatServer
from apps.video_studio.tests.youtube_server import YouTubeServer
from onerow import Queue
from video_studio import open_queue


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """STUDIO_HOME, in a folder whose name is not plain ASCII."""
    for name in list(os.environ):
        if name.startswith("STUDIO_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)
    folder = tmp_path / "스튜디오 1"
    folder.mkdir()
    for name, value in {
        "STUDIO_HOME": str(folder),
        "STUDIO_SIZE": "320x180",
        "STUDIO_FPS": "10",
        "STUDIO_SECONDS": "2",
    }.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def queue(home: Path) -> Iterator[Queue]:
    opened = open_queue()
    yield opened
    opened.close()


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture
def youtube() -> Iterator[YouTubeServer]:
    with YouTubeServer() as server:
        yield server
