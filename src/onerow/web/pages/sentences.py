"""Sentences of the engine (findings, `why`) in the languages of the pages.

The engine writes English sentences with values in them. A sentence that one of these patterns matches is shown in the
page's language with the same values; another one stays English.
"""

import re
from functools import cache, lru_cache

from onerow.web.pages.language import language

SENTENCES = (
    "the clock is right",
    "the store's clock and this machine's differ by {span} s",
    "no lease is overdue",
    "the disk has room",
    "readers and the writer don't wait for each other (WAL)",
    "{n} leases ended and no worker rescued the tasks, for example {task}",
    "{n} lease ended and no worker rescued the tasks, for example {task}",
    "every row that was met can be read",
    "{n} live worker",
    "{n} live workers",
    "{n} live puller",
    "{n} live pullers",
    "no worker is running",
    "worker {name} is silent since {at}",
    "puller {name} is silent since {at}",
    "worker {name} can't receive from {inbox}: {error}",
    "{name} receives from {inbox}",
    "{n} messages of {inbox} were rejected in the last day",
    "{n} message of {inbox} was rejected in the last day",
    "{n} tasks were rescued in the last hour, because a worker died or lost its lease",
    "{n} task was rescued in the last hour, because a worker died or lost its lease",
    "{n} tasks wait at {phase}, which no live worker serves",
    "{n} task waits at {phase}, which no live worker serves",
    "{n} tasks failed in {phase}",
    "{n} task failed in {phase}",
    "{n} task stands at {phase}, which no published code knows",
    "{n} tasks stand at {phase}, which no published code knows",
    "{what} is paused by {by}: {reason}",
    "{what} is paused by {by}",
    "schedule {name} of {pipeline} missed {at}: no worker was there",
    "schedule {name} of {pipeline} adds no task: {error}",
    "It was completed.",
    "It was completed {ago} ago.",
    "It failed in {phase} at its first attempt {ago} ago ({class}): {error}",
    "It failed in {phase} after {n} attempts {ago} ago ({class}): {error}",
    "It was cancelled in {phase} {ago} ago ({reason}); a cancelled task never runs again.",
    "It is running: {phase}, attempt {n} for {span}, held by worker {worker} until {until}.",
    "It is parked for the signal {name} until {until} (in {span}).",
    "It is parked for the signal {name}.",
    "It is parked for its children: {ended} of {n} have ended.",
    "It is not due until {until} (in {span}): attempt {n} failed ({class}: {error}), {left} retries left after the next.",
    "It is not due until {until} (in {span}).",
    "The pipeline {name} was paused by {by} because: {reason}.",
    "The phase {name} was paused by {by} because: {reason}.",
    "The pipeline {name} was paused by {by}.",
    "The phase {name} was paused by {by}.",
    "No live worker serves {phase}: none is running.",
    "The limit {n} of {phase} is taken by {who}, held by worker {worker} until {until}.",
    "{n} tasks are ahead of it in {phase}, and the workers are busy.",
    "{n} task is ahead of it in {phase}, and the workers are busy.",
    "Nothing stands in its way; a worker should take it within a second.",
    "Someone asked to cancel it; worker {worker} is stopping the work.",
    "It came from the inbox {inbox}.",
)
"""In the order in which they are tried: the more special one first."""


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (text, re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(text)), re.DOTALL)) for text in SENTENCES
    ]


@lru_cache(4_096)
def sentence(code: str, text: str) -> str:
    """Return a sentence of the engine in a language; English if no pattern matches it."""
    if code == "en":
        return text
    for known, pattern in _patterns():
        if found := pattern.fullmatch(text):
            return language(code)(known, **found.groupdict()) if found.groupdict() else language(code)(known)
    return text
