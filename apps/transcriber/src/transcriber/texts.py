"""Summary and translation: through an endpoint with OpenAI's chat API; without one a summary of extracted sentences."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import httpx
import msgspec

from transcriber.captions import Segment
from transcriber.engines.remote import checked, headers
from transcriber.problems import Problem
from transcriber.settings import Endpoint

_SENTENCE = re.compile(r".+?(?:[.!?…]+(?=\s|$)|[。！？]+|$)", re.DOTALL)  # noqa: RUF001
_MARKS = ".!?…。！？"  # noqa: RUF001
_WORD = re.compile(r"\w+")
_MOST_SENTENCES = 5
_LONGEST_SENTENCE = 400
_LONGEST_CUE = 84  # two lines of a subtitle
_PIECE = 6_000  # characters of one request
Ask = Callable[[str, str, str], str]
"""Return the endpoint's answer for (name of the piece, task, text)."""


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]


def extract_summary(segments: Sequence[Segment]) -> str:
    """Return the sentences with the most frequent words, in their order: at most five, and about a third of the text."""
    # A sentence may go over several segments; words without punctuation, as of pocketsphinx, are cut at pauses.
    whole = " ".join(each.text for each in segments)
    found = _SENTENCE.findall(whole)
    parts = found if len(found) > 1 or whole.endswith(tuple(_MARKS)) else [each.text for each in segments]
    sentences = [sentence for part in parts for sentence in pieces(part, _LONGEST_SENTENCE)]
    words = [
        [word for word in _WORD.findall(each.lower()) if len(word) > 3 or not word.isascii()] for each in sentences
    ]
    counts = Counter(word for each in words for word in set(each))
    scores = [sum(counts[word] for word in set(each)) / (len(each) + 2) for each in words]
    best = sorted(range(len(sentences)), key=lambda number: (-scores[number], number))
    kept = sorted(best[: max(1, min(_MOST_SENTENCES, -(-len(sentences) // 3)))])
    return "\n".join(sentences[number] for number in kept)


def ask_summary(asked: Ask, text: str, language: str) -> str:
    """Return a summary by the endpoint; a long text is summarised in pieces first."""
    which = "its own language" if language == "auto" else f"the language {language!r}"
    task = f"Summarise this transcript in at most five sentences, in {which}. Answer with the summary only."
    parts = [asked(str(number), task, piece) for number, piece in enumerate(pieces(text), 1)]
    return "".join(parts) if len(parts) < 2 else asked("all", task, "\n".join(parts))


def ask_translation(asked: Ask, text: str, to: str) -> str:
    """Return the translation by the endpoint, piece by piece."""
    task = f"Translate this transcript into the language {to!r}. Keep line breaks and times. Answer with the translation only."
    return "\n".join(asked(str(number), task, piece) for number, piece in enumerate(pieces(text), 1))


def pieces(text: str, longest: int = _PIECE) -> list[str]:
    """Return parts of a text of at most `longest` characters, cut at line ends, sentence ends or blanks."""
    parts: list[str] = []
    rest = text.strip()
    while len(rest) > longest:
        ends = [rest.rfind(mark, longest // 2, longest) for mark in ("\n", ". ", "。", " ")]
        end = next((at + 1 for at in ends if at > 0), longest)
        parts.append(rest[:end].strip())
        rest = rest[end:].strip()
    return [*parts, rest] if rest else parts


def spread(text: str, speech: Sequence[tuple[float, float]]) -> list[Segment]:
    """Return a text without times as short cues, at estimated times: their length is their share of the speech."""
    cues = pieces(text, _LONGEST_CUE)
    total = sum(end - start for start, end in speech)
    letters = sum(map(len, cues)) or 1

    def at(share: float) -> float:
        rest = share * total
        for start, end in speech:
            if rest < end - start:
                return start + rest
            rest -= end - start
        return speech[-1][1]

    done = [sum(map(len, cues[:number])) / letters for number in range(len(cues) + 1)]
    return [Segment(at(done[number]), at(done[number + 1]), cue) for number, cue in enumerate(cues)]


def ask(endpoint: Endpoint, task: str, text: str, key: str) -> str:
    """Return the endpoint's answer; `key` is the same at each attempt."""
    with httpx.Client(timeout=endpoint.timeout) as client:
        answer = checked(
            client.post(
                f"{endpoint.url}/chat/completions",
                headers=headers(endpoint, key),
                json={
                    "model": endpoint.model,
                    "messages": [{"role": "system", "content": task}, {"role": "user", "content": text}],
                },
            ),
            _Answer,
        )
    if not answer.choices or not (said := answer.choices[0].message.content.strip()):
        raise Problem("the endpoint's answer has no text", "network")
    return said
