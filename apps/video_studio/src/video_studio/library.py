"""The app's tables `task` and `task_schedule`, in the queue's file, written in one transaction with the queue's row."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any
from unicodedata import category

import msgspec

from onerow import BadInput, Task
from onerow.core.times import parse_time, spell
from video_studio.opening import open_queue
from video_studio.places import safe_name
from video_studio.settings import Settings

_TABLES = """
CREATE TABLE IF NOT EXISTS task (
  task_id    TEXT PRIMARY KEY NOT NULL,
  topic      TEXT NOT NULL,
  draw       INTEGER NOT NULL DEFAULT 0,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE TABLE IF NOT EXISTS task_schedule (
  task_id        TEXT PRIMARY KEY NOT NULL REFERENCES task (task_id),
  scheduled_time TEXT NOT NULL
);
"""
_SOME = 500
_LONGEST_TOPIC = 200


class VideoTask(msgspec.Struct, frozen=True):
    """A row of `task` with its row of `task_schedule`, if it has one."""

    task_id: str
    topic: str
    draw: bool
    scheduled_time: datetime | None


def add_video(
    topic: str,
    *,
    scheduled_time: datetime | str | None = None,
    draw: bool = False,
    task_id: str | None = None,
    user_id: str = "studio",
    priority: int = 0,
    metadata: dict[str, Any] | None = None,
) -> Task:
    """Add a video: the queue's row, `task` and `task_schedule`, in one transaction. Without a time it is due at once.

    Adding the same id and topic again returns the existing task.
    """
    queue = open_queue()
    topic = _checked(topic)
    moment = queue.store.now() if scheduled_time is None else parse_time(scheduled_time, "scheduled_time")
    if task_id is not None:
        safe_name(task_id)
    with writing() as tx:
        task = queue.add(
            "videos",
            {"scheduled_time": spell(moment)},
            task_id=task_id,
            user_id=user_id,
            title=topic,
            priority=priority,
            metadata=metadata or {"app": "video_studio"},
            tx=tx,
        )
        tx.execute("INSERT OR IGNORE INTO task (task_id, topic, draw) VALUES (?, ?, ?)", (task.task_id, topic, draw))
        (known,) = tx.execute("SELECT topic FROM task WHERE task_id = ?", (task.task_id,)).fetchone()
        if known != topic:
            raise BadInput(f"task_id {task_id!r} is taken by the topic {known!r}; choose another", field="task_id")
        tx.execute("INSERT OR IGNORE INTO task_schedule VALUES (?, ?)", (task.task_id, spell(moment)))
    return task


def find_video(task_id: str) -> VideoTask | None:
    """Return the app's row of a task; None if there is none."""
    return find_videos([task_id]).get(task_id)


def find_videos(task_ids: Iterable[str]) -> dict[str, VideoTask]:
    """Return task id → the app's row; tasks without a row are left out."""
    ids = list(task_ids)
    found: dict[str, VideoTask] = {}
    with _connection() as connection:
        for start in range(0, len(ids), _SOME):
            some = ids[start : start + _SOME]
            rows = connection.execute(
                "SELECT task_id, topic, draw, scheduled_time FROM task LEFT JOIN task_schedule USING (task_id) "
                f"WHERE task_id IN ({','.join('?' * len(some))})",
                some,
            )
            for task_id, topic, draw, time in rows:
                found[task_id] = VideoTask(task_id, topic, bool(draw), time and parse_time(time, "scheduled_time"))
    return found


@contextmanager
def writing() -> Iterator[sqlite3.Connection]:
    """Open a transaction on the studio's file: commit at the end, roll back on an exception."""
    open_queue().store  # noqa: B018  the file and the queue's table must be there before the lock is ours
    with _connection() as connection:
        # Immediate: a deferred one would fail with 'database is locked' when another writer came between its read
        # and its first write.
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@contextmanager
def _connection() -> Iterator[sqlite3.Connection]:
    database = Settings.of_environment().database
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'task_schedule'").fetchone():
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
        yield connection


def _checked(topic: str) -> str:
    topic = " ".join(topic.split())
    # Control characters and lone surrogates; emoji joiners are allowed.
    if not topic or len(topic) > _LONGEST_TOPIC or any(category(letter) in ("Cc", "Cs") for letter in topic):
        raise BadInput(f"a topic is text of 1 to {_LONGEST_TOPIC} characters on one line", field="topic")
    return topic
