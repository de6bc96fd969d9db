"""Hand-made queue tables with rows in every status, as teams have them."""

from tests.tables.kit import Database

AI_TAG_QUEUE = """
CREATE TABLE ai_tag_queue (
  id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  workspace_threads_account_id UUID NOT NULL,
  post_id UUID NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending',
  attempts INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 3,
  error_message TEXT,
  created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  started_at TIMESTAMPTZ,
  completed_at TIMESTAMPTZ,
  UNIQUE (post_id)
);
CREATE INDEX idx_ai_tag_queue_status ON ai_tag_queue (status, created_at);
CREATE INDEX idx_ai_tag_queue_account ON ai_tag_queue (workspace_threads_account_id);
INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id, status, attempts, error_message, started_at, completed_at)
SELECT gen_random_uuid(), gen_random_uuid(), (ARRAY['pending', 'completed', 'failed'])[1 + n % 3], n % 3,
       CASE WHEN n % 3 = 2 THEN '오류 ' || n END, CASE WHEN n % 3 > 0 THEN now() - interval '1 hour' END,
       CASE WHEN n % 3 > 0 THEN now() END
  FROM generate_series(1, {rows}) AS n;
"""

DELAYED_JOBS = """
CREATE TABLE delayed_jobs (
  id bigserial PRIMARY KEY,
  priority integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  handler text NOT NULL,
  last_error text,
  run_at timestamp without time zone,
  locked_at timestamp without time zone,
  failed_at timestamp without time zone,
  locked_by character varying,
  queue character varying,
  created_at timestamp(6) without time zone NOT NULL DEFAULT now(),
  updated_at timestamp(6) without time zone NOT NULL DEFAULT now()
);
CREATE INDEX delayed_jobs_priority ON delayed_jobs (priority, run_at);
INSERT INTO delayed_jobs (priority, attempts, handler, last_error, run_at, failed_at, queue)
SELECT n % 10, n % 4, E'--- !ruby/object:Job\\nid: ' || n, CASE WHEN n % 4 = 3 THEN 'boom' END, now(),
       CASE WHEN n % 4 = 3 THEN now() END, CASE WHEN n % 2 = 0 THEN '메일' END
  FROM generate_series(1, {rows}) AS n;
"""

JOBS = """
CREATE TYPE job_status AS ENUM ('queued', 'running', 'done', 'failed', 'cancelled');
CREATE TABLE jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text NOT NULL DEFAULT 'default',
  payload jsonb NOT NULL,
  status job_status NOT NULL DEFAULT 'queued',
  priority smallint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL DEFAULT 5,
  run_at timestamptz NOT NULL DEFAULT now(),
  locked_by text,
  error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz
);
CREATE INDEX ON jobs (status, created_at);
INSERT INTO jobs (payload, status, priority, finished_at, error)
SELECT jsonb_build_object('n', n, '한', jsonb_build_array(1, NULL)), (ARRAY['queued', 'done', 'failed', 'cancelled'])[1 + n % 4]::job_status,
       n % 50, CASE WHEN n % 4 > 0 THEN now() END, CASE WHEN n % 4 = 2 THEN 'boom' END
  FROM generate_series(1, {rows}) AS n;
"""

TASK_QUEUE = """
CREATE TABLE task_queue (
  task_id TEXT PRIMARY KEY,
  type TEXT NOT NULL,
  status TEXT NOT NULL,
  user_id TEXT NOT NULL,
  priority INTEGER DEFAULT 0,
  created_at TEXT DEFAULT CURRENT_TIMESTAMP,
  started_at TEXT,
  completed_at TEXT,
  elapsed_time INTEGER,
  retry_count INTEGER DEFAULT 0,
  max_retries INTEGER DEFAULT 3,
  error TEXT,
  metadata TEXT,
  logs TEXT
)
"""

SQLITE_JOBS = """
CREATE TABLE transcription_jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, video_id TEXT, url TEXT, title TEXT, engine TEXT, status TEXT DEFAULT 'queued',
  error TEXT, retry_count INTEGER DEFAULT 0, transcript_path TEXT, summary TEXT, created_at TEXT DEFAULT CURRENT_TIMESTAMP,
  updated_at TEXT DEFAULT CURRENT_TIMESTAMP
)
"""


def make(db: Database, script: str, rows: int = 40) -> None:
    """Create a table and its rows."""
    for statement in script.replace("{rows}", str(rows)).split(";\n"):
        if statement.strip():
            db.connection.execute(statement)


def fill_task_queue(db: Database, rows: int) -> None:
    words, phases = ("waiting", "completed", "failed", "cancelled"), ("schedule", "script", "image", "video", "youtube")
    db.connection.executemany(
        "INSERT INTO task_queue (task_id, type, status, user_id, priority, completed_at, elapsed_time, error, metadata, logs) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                f"영상-{n:06}", phases[n % 5], words[n % 4], f"u{n % 7}", n % 3, "2026-01-02 03:04:05" if n % 4 else None,
                n * 10 if n % 4 else None, "오류" if n % 4 == 2 else None, '{"a": [1, null]}' if n % 2 else None, '["줄"]' if n % 3 else None,
            )
            for n in range(rows)
        ],
    )  # fmt: skip


def fill_transcription_jobs(db: Database, rows: int) -> None:
    words = ("queued", "completed", "failed", "cancelled")
    db.connection.executemany(
        "INSERT INTO transcription_jobs (video_id, url, title, status, transcript_path) VALUES (?, ?, ?, ?, ?)",
        [(f"v{n}", "u", f"제목 {n}", words[n % 4], "/t" if n % 4 == 1 else None) for n in range(rows)],
    )
