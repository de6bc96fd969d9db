"""Words of a status column that name a phase: one of another phase is refused."""

import pytest

from onerow.core.table_mapping import read_mapping
from tests.tables.kit import Database, pipeline

PHASES = read_mapping(
    {
        "table": "jobs",
        "pipeline": "two",
        "columns": {"id": "task_id", "state": "status", "tag": "metadata.tag"},
        "statuses": {
            "a": "waiting", "first": "waiting/one", "r": "waiting/two", "also r": "waiting/two", "busy": "processing",
            "rendering": "processing/two", "done": "completed", "bad": "failed", "r bad": "failed/two", "off": "cancelled",
        },
    }
)  # fmt: skip
two = pipeline("two", "one", "two")


@pytest.fixture
def jobs(db: Database) -> Database:
    """The view, with one task waiting in the first phase."""
    db.queue(two)
    db.store.create_view(PHASES)
    db.sql("INSERT INTO jobs (id) VALUES ('1')")
    return db


def _state(db: Database) -> str:
    ((state,),) = db.sql("SELECT state FROM jobs WHERE id = '1'")
    return str(state)


@pytest.mark.parametrize("word", ["r", "also r", "r bad"])
def test_an_update_to_a_word_of_another_phase_is_refused(jobs: Database, word: str) -> None:
    refusal = jobs.refused(f"UPDATE jobs SET state = '{word}', tag = 'x'")
    assert "the phase of a task changes" in refusal
    assert "onerow finish ID --phase" in refusal
    assert jobs.sql("SELECT state, tag FROM jobs") == [("first", None)]


def test_a_word_of_its_own_phase_or_of_none_is_not_refused(jobs: Database) -> None:
    with jobs.queue(two).claim("two") as (lease,):
        assert "pull API" in jobs.refused("UPDATE jobs SET state = 'r'")
        assert "phase of a task changes" in jobs.refused("UPDATE jobs SET state = 'rendering'")
        lease.complete()
    assert _state(jobs) == "r"
    jobs.sql("UPDATE jobs SET state = 'also r', tag = 'x'")  # the same status and phase
    jobs.sql("UPDATE jobs SET state = 'r bad'")
    assert _state(jobs) == "r bad"
    assert "phase of a task changes" in jobs.refused("UPDATE jobs SET state = 'first'")
    jobs.sql("UPDATE jobs SET state = 'a'")  # failed → waiting, in whichever phase
    assert _state(jobs) == "r"
    assert "phase of a task changes" in jobs.refused("UPDATE jobs SET state = 'a'")
    assert "pull API" in jobs.refused("UPDATE jobs SET state = 'rendering'")
    jobs.sql("UPDATE jobs SET state = 'off'")
    assert _state(jobs) == "off"


def test_an_insert_with_the_word_of_a_later_phase_is_refused(jobs: Database) -> None:
    for word in ("r", "also r"):
        assert "first phase" in jobs.refused(f"INSERT INTO jobs (id, state) VALUES ('2', '{word}')")
    jobs.sql("INSERT INTO jobs (id, state) VALUES ('2', 'first')")
    jobs.sql("INSERT INTO jobs (id, state) VALUES ('3', 'a')")
    assert jobs.sql("SELECT state FROM jobs") == [("first",)] * 3
