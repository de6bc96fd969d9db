"""Precision and recall of the offline tagger on labelled posts, beside a majority and a keyword baseline."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files

import msgspec

from ai_tagger.offline.tagger import tags_of, words
from ai_tagger.tags import TAGS

LANGUAGES = {"en": "English", "ko": "Korean", "zh": "Chinese"}
_KEYWORDS = 5

Method = Callable[[str, str], Iterable[str]]
"""Language and text → tags."""


class Labelled(msgspec.Struct, frozen=True):
    """A post with the tags that a person gave it."""

    language: str
    tags: tuple[str, ...]
    text: str


class Score(msgspec.Struct, frozen=True):
    """How well a method does on posts of one language, over all their tags."""

    method: str
    language: str
    posts: int
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def labelled(half: str) -> list[Labelled]:
    """Return the posts of a half: 'development' or 'held_out'."""
    lines = files("ai_tagger.labelled").joinpath(f"{half}.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Labelled) for line in lines]


def methods() -> dict[str, Method]:
    """Return the baselines and the tagger, by name."""
    frequent = {
        language: Counter(tag for post in labelled("development") if post.language == language for tag in post.tags)
        for language in LANGUAGES
    }
    return {
        "majority": lambda language, text: [frequent[language].most_common(1)[0][0]],
        "keywords": lambda language, text: [
            tag for tag in TAGS if any(word in text.casefold() for word in words(tag, language)[:_KEYWORDS])
        ],
        "offline tagger": lambda language, text: tags_of(text, TAGS),
    }


def evaluate(half: str = "held_out") -> list[Score]:
    """Score each method for each language on one half of the labelled posts."""
    posts = labelled(half)
    return [
        _score(name, method, language, [post for post in posts if post.language == language])
        for language in LANGUAGES
        for name, method in methods().items()
    ]


def _score(name: str, method: Method, language: str, posts: Sequence[Labelled]) -> Score:
    given = right = wanted = 0
    for post in posts:
        tags = set(method(language, post.text))
        given, right, wanted = given + len(tags), right + len(tags & set(post.tags)), wanted + len(post.tags)
    return Score(name, language, len(posts), right / given if given else 0.0, right / wanted)


def as_markdown(scores: Iterable[Score]) -> str:
    """Return the scores as a table for the README."""
    rows = ["| language | method | precision | recall | F1 |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| {LANGUAGES[score.language]} | {score.method} | {score.precision:.2f} | {score.recall:.2f} | {score.f1:.2f} |"
        for score in scores
    ]
    return "\n".join(rows)
