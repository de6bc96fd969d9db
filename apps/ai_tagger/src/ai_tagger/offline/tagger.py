"""A small tagger of posts in English, Korean and Chinese, by lists of words."""

import re
import shlex
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ai_tagger.model import Answer
from ai_tagger.offline.characters import traditional

NAME = "offline"
_MOST = 3
_ENOUGH = 2  # a strong word counts 2, a weak one 1
_SHARE = 0.4  # of the best tag's score, for a second one


class OfflineTagger:
    """Gives tags without network, at no cost."""

    def __init__(self, tags: Sequence[str]) -> None:
        self._tags = tuple(tags)

    async def ask(self, texts: Sequence[str]) -> Answer:
        return Answer(NAME, [tags_of(text, self._tags) for text in texts])


def tags_of(text: str, among: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a text, the best first; none if no words say what it is about."""
    folded = traditional(text.casefold())
    scores = {tag: score for tag in among if (score := _score(folded, tag)) >= _ENOUGH}
    least = max(scores.values(), default=0) * _SHARE
    best = sorted(scores, key=lambda tag: (-scores[tag], among.index(tag)))
    return tuple(tag for tag in best[:_MOST] if scores[tag] >= least)


def _score(folded: str, tag: str) -> int:
    found = _patterns()[tag]
    return sum(points * len(set(pattern.findall(folded))) for pattern, points in found)


def words(tag: str, language: str, strength: str = "strong") -> list[str]:
    """Return the words of a tag in one language."""
    return shlex.split(_lists()[tag][strength][language].replace(",", " "))


@cache
def _lists() -> dict[str, dict[str, dict[str, str]]]:
    return tomllib.loads(files("ai_tagger.offline").joinpath("words.toml").read_text(encoding="utf-8"))


@cache
def _patterns() -> dict[str, list[tuple[re.Pattern[str], int]]]:
    """Return for each tag its strong and weak words as expressions, with their points."""
    compiled = {}
    for tag in _lists():
        compiled[tag] = [
            (re.compile("|".join(_alternatives(tag, strength))), points)
            for strength, points in (("strong", 2), ("weak", 1))
        ]
    return compiled


def _alternatives(tag: str, strength: str) -> list[str]:
    english = [re.escape(word).replace(r"\*", r"\w*") for word in words(tag, "en", strength)]
    others = [word for language in ("ko", "zh") for word in words(tag, language, strength)]
    # Latin words in the other languages are whole words too; longer words first, so that they are found whole.
    latin = [word for word in others if word.isascii()]
    rest = sorted((word for word in others if not word.isascii()), key=len, reverse=True)
    bounded = "|".join(sorted([*english, *latin], key=len, reverse=True))
    return [rf"(?<![a-z])(?:{bounded})(?![a-z])", *map(re.escape, rest)]
