"""Summary and translation: through an endpoint with OpenAI's chat API; without one a summary of extracted sentences."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import httpx

from transcriber.captions import Segment
from transcriber.engines.remote import checked, headers
from transcriber.problems import Problem
from transcriber.settings import Endpoint

_SENTENCE = re.compile(r"[^.!?。！？…]+[.!?。！？…]*\s*")  # noqa: RUF001
_WORD = re.compile(r"\w+")
_MOST_SENTENCES = 5
_PIECE = 6_000  # characters of one request
Ask = Callable[[str, str, str], str]
"""Return the endpoint's answer for (name of the piece, task, text)."""


def extract_summary(segments: Sequence[Segment]) -> str:
    """Return the sentences with the most frequent words, in their order: at most five, and about a third of the text."""
    sentences = [found for each in segments for part in _SENTENCE.findall(each.text) if (found := part.strip())]
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
    task = f"Summarise this transcript in at most five sentences, in the language {language!r}. Answer with the summary only."
    parts = [asked(str(number), task, piece) for number, piece in enumerate(pieces(text), 1)]
    return parts[0] if len(parts) == 1 else asked("all", task, "\n".join(parts))


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
    return [*parts, rest] if rest or not parts else parts


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
            )
        )
    try:
        return str(answer["choices"][0]["message"]["content"]).strip()
    except (KeyError, IndexError, TypeError):
        raise Problem("the endpoint's answer has no text", "network") from None
