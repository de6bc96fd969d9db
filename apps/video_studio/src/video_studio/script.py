"""A script as a value: title, scenes and their timing; written from a template, the same for the same topic."""

import tomllib
from importlib.resources import files
from typing import Any
from zlib import crc32

import msgspec


class Scene(msgspec.Struct, frozen=True):
    """One picture's worth of film: a heading, what is said, and how long it is shown."""

    title: str
    caption: str
    seconds: float


class Script(msgspec.Struct, frozen=True):
    """A whole film on paper."""

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
_SIGNS_PER_SECOND = 18  # of scripts that set no spaces between words


def from_template(topic: str) -> Script:
    """The script that the studio knows by heart, or one that asks the topic the questions that fit any."""
    known = _repertoire().get(topic.casefold())
    if known is not None:
        return _scripted(known["title"], known["description"], known["scenes"], topic)
    patterns = _repertoire()["*"]
    # The same topic always gets the same script, and neighbours get different ones.
    choice = crc32(topic.encode())
    scenes = []
    for number, variants in enumerate(patterns["scenes"]):
        heading, caption = variants[(choice >> number) % len(variants)]
        scenes.append([heading.format(topic=topic), caption.format(topic=topic)])
    title = patterns["titles"][choice % len(patterns["titles"])].format(topic=topic)
    return _scripted(title, patterns["description"].format(topic=topic), scenes, topic)


def reading_time(text: str) -> float:
    """How long people need to read a caption, in seconds, to the half."""
    words, signs = len(text.split()), len(text.replace(" ", ""))
    needed = max(words / _WORDS_PER_SECOND, signs / _SIGNS_PER_SECOND) + 1
    return min(_LONGEST, max(_SHORTEST, round(needed * 2) / 2))


def _scripted(title: str, description: str, scenes: list[list[str]], topic: str) -> Script:
    return Script(
        title, description, [Scene(heading, caption, reading_time(caption)) for heading, caption in scenes], [topic]
    )


def _repertoire() -> dict[str, Any]:
    return tomllib.loads(files("video_studio").joinpath("scripts.toml").read_text(encoding="utf-8"))
