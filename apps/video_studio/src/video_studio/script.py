"""Scripts: title, scenes and timing; the template is deterministic for a topic."""

import tomllib
from importlib.resources import files
from typing import Any
from zlib import crc32

import msgspec


class Scene(msgspec.Struct, frozen=True):
    """One scene: a heading, a caption, and its duration."""

    title: str
    caption: str
    seconds: float


class Script(msgspec.Struct, frozen=True):
    """The script of one film."""

    title: str
    description: str
    scenes: list[Scene]
    tags: list[str] = []

    @property
    def seconds(self) -> float:
        return TITLE_SECONDS + sum(scene.seconds for scene in self.scenes) + END_SECONDS


TITLE_SECONDS = 2.5
END_SECONDS = 1.5
_SHORTEST, _LONGEST = 3.0, 8.0
_WORDS_PER_SECOND = 3.2
_SIGNS_PER_SECOND = 18  # for writing systems without spaces


def from_template(topic: str) -> Script:
    """Return the built-in script for a topic, or a generic one."""
    known = _repertoire().get(topic.casefold())
    if known is not None:
        return _scripted(known["title"], known["description"], known["scenes"], topic)
    patterns = _repertoire()["*"]
    # The same topic always gets the same script, and similar topics get different ones.
    choice = crc32(topic.encode())
    scenes = []
    for number, variants in enumerate(patterns["scenes"]):
        heading, caption = variants[(choice >> number) % len(variants)]
        scenes.append([heading.format(topic=topic), caption.format(topic=topic)])
    title = patterns["titles"][choice % len(patterns["titles"])].format(topic=topic)
    return _scripted(title, patterns["description"].format(topic=topic), scenes, topic)


def reading_time(text: str) -> float:
    """Return the seconds needed to read a caption, rounded to halves."""
    words, signs = len(text.split()), len(text.replace(" ", ""))
    needed = max(words / _WORDS_PER_SECOND, signs / _SIGNS_PER_SECOND) + 1
    return min(_LONGEST, max(_SHORTEST, round(needed * 2) / 2))


def _scripted(title: str, description: str, scenes: list[list[str]], topic: str) -> Script:
    return Script(
        title, description, [Scene(heading, caption, reading_time(caption)) for heading, caption in scenes], [topic]
    )


def _repertoire() -> dict[str, Any]:
    return tomllib.loads(files("video_studio").joinpath("scripts.toml").read_text(encoding="utf-8"))
